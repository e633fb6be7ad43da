// Accuracy first: every peer is compared with the float64 oracle before it is timed.
#ifndef HEED_NATIVE_BENCH_VERIFY_H_
#define HEED_NATIVE_BENCH_VERIFY_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "heed/reference.h"
#include "heed/thread_pool.h"
#include "native_bench/accuracy.h"
#include "native_bench/peer.h"
#include "native_bench/problem.h"

namespace heed::bench {

struct Verdict {
  double max_error = 0;  // |output - oracle| where it is largest relative to its bound; NaN counts
                         // as infinite
  double bound = 0;      // there: AccuracyOf(mechanism), times what it is relative to
  int64_t rows = 0;      // rows of the output compared
  std::string failure;   // empty when the peer threw nothing
  bool Passed() const { return failure.empty() && max_error <= bound; }
};

// The line of a row that was verified only: its name, padded to `width`, and the verdict.
void PrintUntimed(std::ostream& out, const std::string& name, int width, const Verdict& verdict);

// The oracle's rows of a problem: computed once, compared with every peer.
class Oracle {
 public:
  // Every row of a problem that the oracle computes in a moment. Of larger ones, exact attention to
  // nothing but q, k and v gives the first, the last and evenly spread rows of every head, about
  // `kMostRows` in all; recurrent attention gives the first and the last column of every row in the
  // first and the last batch entry, each column held to a bound of its own; others give none, and
  // only VerifySmall speaks for them.
  explicit Oracle(const Problem& problem);
  static constexpr int64_t kMostRows = 128;

  // Compares the problem's output.
  Verdict Compare(const Problem& problem) const;

 private:
  // A row of the output, or a column of a head.
  struct Line {
    int64_t begin;   // index of its first element in the output
    int64_t stride;  // from each to the next
    std::vector<double> values;
    double bound = 0;
  };
  double SizeOf(const Problem& problem, RelativeTo relative_to) const;
  void AddAllRows(const Problem& problem);
  void AddSampledRows(const Problem& problem);
  void AddColumns(const Problem& problem);

  std::vector<Line> lines_;
  int64_t rows_ = 0;  // that the lines are of
  double bound_ = 0;  // of a problem of which no row is compared
};

// The queries of 0 .. q_len - 1 to look at when `count` are affordable: ascending, distinct, the
// first and the last among them when count >= 2. 1 <= count.
std::vector<int64_t> SpreadQueries(int64_t q_len, int64_t count);

// A row of the output of attention.
struct OutputRow {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t query = 0;
  bool operator==(const OutputRow&) const = default;
};

// Rows to look at in a problem whose tensors are not on the host: 8 to 32, fewer the more keys
// there are, spread over batch entries, heads and queries; the first and the last query are among
// them. Fewer where the output has no more.
std::vector<OutputRow> SampledRows(const Case& c);

// The result of the oracle that is named "output". Throws heed::Error(kUnsupported) without one.
const std::vector<double>& OutputOf(const std::vector<reference::Result>& results);

// |actual - expected|; a NaN is a wrong answer, not a missing one: infinite.
double Difference(float actual, double expected);

// What storage of q, k, v and the output in a type may add to the error of attention, relative to
// the largest value: four times the rounding of one number.
double StorageAllowance(DType dtype);

// The problem of VerifySmall(): the same heads, head_dim and options at a length of at most 95.
Case SmallCaseOf(const Case& c);

// Runs the peer once on a small problem with the case's heads, head_dim and options (length at most
// 96 and odd, so that tiles have tails) and compares every row.
Verdict VerifySmall(const Peer& peer, const Case& c, uint64_t seed, ThreadPool& pool);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_VERIFY_H_
