// heed-bench --steps: one more token of a recurrent mechanism, which costs the same after any
// number.
#ifndef HEED_NATIVE_BENCH_STEPS_H_
#define HEED_NATIVE_BENCH_STEPS_H_

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "native_bench/draw.h"
#include "native_bench/report.h"
#include "native_bench/run.h"

namespace heed::bench {

struct StepRow {
  Case shape;
  Verdict verdict;       // of the outputs and the state after a few steps
  Summary seconds = {};  // of one token
  int64_t state_bytes = 0;
  double Gbps() const {  // the state is read and written
    return seconds.count ? 2 * static_cast<double>(state_bytes) / seconds.median * 1e-9 : 0;
  }
};

struct StepReport {
  Report context;
  std::vector<StepRow> rows = {};
};

// Rows of the registry that take a state and return it.
std::vector<std::string> StepMechanisms();

// One token, and the state that is carried on in place: what a decoder calls.
class StepProblem {
 public:
  StepProblem(const Case& c, uint64_t seed);
  const Request& request() const { return request_; }
  const OwnedTensor& output() const { return results_.front(); }
  const OwnedTensor& state() const { return inputs_.back(); }
  const OwnedTensor& v() const;
  // Works on the token once more; the state changes.
  void Step(ThreadPool& pool) const;
  // The state of before the first token.
  void Reset() const;

 private:
  std::vector<OwnedTensor> inputs_;  // the state last
  std::vector<OwnedTensor> results_;
  std::vector<NamedTensor> outputs_;  // the same, as the registry takes them
  Request request_;
};

// The grid's heads and head sizes with its first thread count.
StepReport MeasureSteps(const Options& options, Report context, const Progress& progress,
                        const CheckpointOf<StepReport>& checkpoint = {});

bool AnyWrong(const StepReport& report);
void PrintSteps(std::ostream& out, const StepReport& report);
nlohmann::json ToJson(const StepReport& report);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_STEPS_H_
