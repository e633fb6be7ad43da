// Accuracy first: every peer is compared with the float64 oracle before it is timed.
#ifndef HEED_NATIVE_BENCH_VERIFY_H_
#define HEED_NATIVE_BENCH_VERIFY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/thread_pool.h"
#include "native_bench/peer.h"
#include "native_bench/problem.h"

namespace heed::bench {

struct Verdict {
  double max_error = 0;  // max |output - oracle| over the rows compared; NaN counts as infinite
  double bound = 0;      // MaxError(mechanism) * max |v|
  int64_t rows = 0;      // rows of the output compared
  std::string failure;   // empty when the peer threw nothing
  bool Passed() const { return failure.empty() && max_error <= bound; }
};

// What a mechanism promises relative to max |v|; every peer is held to it.
double MaxError(std::string_view mechanism);

// The oracle's rows of a problem: computed once, compared with every peer.
class Oracle {
 public:
  // Every row of a problem that the oracle computes in a moment. Of larger ones, mechanisms whose
  // rows do not depend on each other give the first, the last and evenly spread rows of every head,
  // about `kMostRows` in all; others give none, and only VerifySmall speaks for them.
  explicit Oracle(const Problem& problem);
  static constexpr int64_t kMostRows = 128;

  // Compares the problem's output.
  Verdict Compare(const Problem& problem) const;

 private:
  struct Row {
    int64_t batch, head, query;
    std::vector<double> values;  // [head_dim]
  };
  void AddAllRows(const Problem& problem);
  void AddSampledRows(const Problem& problem);

  std::vector<Row> rows_;
  double bound_ = 0;
};

// The queries of 0 .. q_len - 1 to look at when `count` are affordable: ascending, distinct, the
// first and the last among them when count >= 2. 1 <= count.
std::vector<int64_t> SpreadQueries(int64_t q_len, int64_t count);

// Runs the peer once on a small problem with the case's heads, head_dim and options (length at most
// 96 and odd, so that tiles have tails) and compares every row.
Verdict VerifySmall(const Peer& peer, const Case& c, uint64_t seed, ThreadPool& pool);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_VERIFY_H_
