// heed-bench --backward: gradients of every row that has them, checked against differences of the
// oracle, then timed.
#ifndef HEED_NATIVE_BENCH_BACKWARD_H_
#define HEED_NATIVE_BENCH_BACKWARD_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "native_bench/problem.h"
#include "native_bench/report.h"
#include "native_bench/run.h"

namespace heed::bench {

struct BackwardRow {
  Case shape;
  std::string peer = {};  // on a GPU, where more than one implementation is measured
  Status status = Status::kRefused;
  std::string reason = {};  // of kWrong and kRefused
  Verdict verdict = {};     // of a short problem of the same heads, along random directions
  Summary forward = {};     // of one call, lse included
  Summary seconds = {};     // of the backward call alone
  double flop = 0;          // kBackwardOverForward times what forward counts; 0 = not counted
  double peak_gflops = 0;   // of the machine; 0 = not measured
  std::optional<int64_t> peak_bytes = {};  // high water of one backward call; HighWater

  double Gflops() const { return seconds.count ? flop / seconds.median * 1e-9 : 0; }
  double OverForward() const { return seconds.median / forward.median; }
};

// Five matrix products for two. By convention, not what a mechanism recomputes.
inline constexpr double kBackwardOverForward = 2.5;

struct BackwardReport {
  Report context;
  std::vector<BackwardRow> rows = {};
};

// A case forward and backward: every gradient that it has, for random gradients of its results. All
// of it is float32; numbers of a case of two bytes are rounded to its type.
class BackwardProblem {
 public:
  BackwardProblem(const Case& c, uint64_t seed);
  const Problem& problem() const { return problem_; }
  // What arrives at the results, and the places of the gradients of the inputs, by their names.
  const std::vector<OwnedTensor>& d_results() const { return d_results_; }
  const std::vector<OwnedTensor>& gradients() const { return gradients_; }
  void Forward(ThreadPool& pool) const;
  void Backward(ThreadPool& pool) const;
  double flop() const;
  // The derivative of sum(d_result * result) along random directions of each input, by the
  // gradients and by differences of the oracle; errors relative to the terms of the sum. After both
  // calls. `rounding` is what a type adds to the bound of float32.
  Verdict Verify(uint64_t seed, double rounding = 0) const;
  // Whether every gradient is a number. After both calls.
  bool IsFinite() const;

 private:
  Problem problem_;
  std::vector<OwnedTensor> results_, d_results_, gradients_;
  std::vector<NamedTensor> named_results_, named_d_results_, named_gradients_;
};

// The case with few tokens, whose gradients are compared with the oracle.
Case ShortOf(Case c);

// The verdict becomes the status of the row.
void Judge(const Verdict& verdict, BackwardRow& row);

// Tokens of the problem that is compared with the oracle.
inline constexpr int64_t kBackwardCheckedLen = 65;

// Every case of the grid whose mechanism has a gradient.
BackwardReport MeasureBackward(const Options& options, Report context, const Progress& progress,
                               const CheckpointOf<BackwardReport>& checkpoint = {});

// Plain attention by heed::cuda, on the prompts of --device cuda or what the line names, a row for
// each of the peers heed and heed_hopper: others compute no gradients here. Throws
// heed::Error(kUnsupported), with what was found and what is needed, where no GPU can be used.
BackwardReport MeasureDeviceBackward(const Options& options, Report context,
                                     const Progress& progress,
                                     const CheckpointOf<BackwardReport>& checkpoint = {});

bool AnyWrong(const BackwardReport& report);
void PrintBackward(std::ostream& out, const BackwardReport& report);
void PrintCsv(std::ostream& out, const BackwardReport& report);
void PrintMarkdown(std::ostream& out, const BackwardReport& report);
nlohmann::json ToJson(const BackwardReport& report);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_BACKWARD_H_
