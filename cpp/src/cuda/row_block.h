// What the threads of a block do together with the keys of one row: sums, maxima, and sums of what
// comes after a key. Thread t takes keys t, t + kBlockThreads, ...; results are the same for all
// threads, and the same run after run.
#ifndef HEED_SRC_CUDA_ROW_BLOCK_H_
#define HEED_SRC_CUDA_ROW_BLOCK_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/row_rules.h"

namespace heed::cuda {

template <class Block>
class RowBlock {
 public:
  HEED_DEVICE explicit RowBlock(Block& block)
      : block_(block), parts_(block.template Allocate<double>(kBlockThreads)) {}
  static constexpr int kSharedBytes = kBlockThreads * static_cast<int>(sizeof(double));

  // body(t, j) for the keys of each thread; then a barrier.
  template <class Body>
  HEED_DEVICE void EachKey(const RowKeys& keys, const Body& body) {
    block_.Each([&](int t) {
      HEED_NO_UNROLL for (int j = keys.begin + t; j < keys.end; j += kBlockThreads) body(t, j);
    });
    block_.Sync();
  }

  // The sum of part(t, j) over all keys.
  template <class Part>
  HEED_DEVICE double SumKeys(const RowKeys& keys, const Part& part) {
    return Fold(keys, 0.0, part, [](double a, double b) { return a + b; });
  }
  // The largest part(t, j), at least -inf; NaN is passed over.
  template <class Part>
  HEED_DEVICE float MaxKeys(const RowKeys& keys, const Part& part) {
    return static_cast<float>(MaxOf(keys, part));
  }
  // The same in float64.
  template <class Part>
  HEED_DEVICE double MaxOf(const RowKeys& keys, const Part& part) {
    return Fold(keys, static_cast<double>(-HUGE_VALF), part,
                [](double a, double b) { return fmax(a, b); });
  }

  // visit(t, j, x, after) for every key, x = value(t, j) and `after` what `op` makes of the values
  // of all later keys, beginning with `start`. Each thread takes a run of keys, last one first.
  template <class Op, class Value, class Visit>
  HEED_DEVICE void ScanBackwards(const RowKeys& keys, double start, const Op& op,
                                 const Value& value, const Visit& visit) {
    const int run = (keys.end - keys.begin + kBlockThreads - 1) / kBlockThreads;
    const auto first = [&](int t) {
      const int64_t at = keys.begin + static_cast<int64_t>(t) * run;
      return static_cast<int>(at < keys.end ? at : keys.end);
    };
    block_.Each([&](int t) {
      double mine = start;
      HEED_NO_UNROLL for (int j = first(t + 1) - 1; j >= first(t); --j) mine =
          op(mine, value(t, j));
      parts_.Store(t, t, mine);
    });
    block_.Sync();
    block_.Each([&](int t) {
      double after = start;
      HEED_NO_UNROLL for (int n = kBlockThreads - 1; n > t; --n) after =
          op(after, parts_.Load(t, n));
      HEED_NO_UNROLL for (int j = first(t + 1) - 1; j >= first(t); --j) {
        const double x = value(t, j);
        visit(t, j, x, after);
        after = op(after, x);
      }
    });
    block_.Sync();
  }

 private:
  // Parts of a thread's keys in ascending order, then those of the threads.
  template <class Part, class Op>
  HEED_DEVICE double Fold(const RowKeys& keys, double start, const Part& part, const Op& op) {
    block_.Each([&](int t) {
      double mine = start;
      HEED_NO_UNROLL for (int j = keys.begin + t; j < keys.end; j += kBlockThreads) {
        mine = op(mine, static_cast<double>(part(t, j)));
      }
      parts_.Store(t, t, mine);
    });
    block_.Sync();
    double all = start;
    HEED_NO_UNROLL for (int n = 0; n < kBlockThreads; ++n) all = op(all, parts_.LoadUniform(n));
    block_.Sync();
    return all;
  }

  Block& block_;
  typename Block::template Shared<double> parts_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ROW_BLOCK_H_
