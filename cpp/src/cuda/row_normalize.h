// Every normaliser on a row of scores in memory. Scores become weights in place; what is hidden has
// -inf before and after, and hidden counts as well what top_k and hard leave out. The formulas and
// the treatment of NaN are those of cpp/src/exact/normalize.
#ifndef HEED_SRC_CUDA_ROW_NORMALIZE_H_
#define HEED_SRC_CUDA_ROW_NORMALIZE_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/plugs.h"
#include "src/cuda/row_block.h"
#include "src/cuda/row_params.h"

namespace heed::cuda {

struct RowResult {
  float lse;
  bool empty;
};

template <class Block>
class RowNormalizer {
 public:
  // `row` holds the scores of all keys, those of `keys` matter.
  HEED_DEVICE RowNormalizer(RowBlock<Block>& block, const RowParams& p, int head,
                            const RowKeys& keys, float* row)
      : block_(block), p_(p), head_(head), keys_(keys), row_(row) {}

  // `logit(t, position)` is what kCope adds at a whole position.
  template <class Logit>
  HEED_DEVICE RowResult Normalize(const Logit& logit) {
    switch (p_.base.normalize) {
      case Normalize::kSoftmax:
      case Normalize::kSoftmax1:
        return Softmax();
      case Normalize::kTopK:
        return KeepLargest(p_.top_k) ? Softmax() : Lose();
      case Normalize::kCope:
        AddPositions(logit);
        return Softmax();
      case Normalize::kKernelSum:
        return p_.kernel == Kernel::kGaussian ? Softmax() : KernelSum();
      case Normalize::kHard:
        return Hard();
      case Normalize::kSparsemax:
        return Threshold(1);
      case Normalize::kEntmax15:
        return Threshold(0.5);
      case Normalize::kStickBreaking:
        return BreakStick();
      default:
        return Pointwise();
    }
  }

 private:
  HEED_DEVICE static bool Hidden(float score) { return score == kMinusInfinity; }

  HEED_DEVICE float Max() {
    return block_.MaxKeys(keys_, [&](int, int j) { return row_[j]; });
  }
  template <class Test>
  HEED_DEVICE double Count(const Test& test) {
    return block_.SumKeys(keys_, [&](int, int j) { return test(row_[j]) ? 1.0 : 0.0; });
  }
  HEED_DEVICE bool HasNaN() {
    return Count([](float s) { return s != s; }) > 0;
  }
  // weight(score) in place of every visible score.
  template <class Weight>
  HEED_DEVICE void Replace(const Weight& weight) {
    block_.EachKey(keys_, [&](int, int j) {
      if (!Hidden(row_[j])) row_[j] = weight(row_[j]);
    });
  }
  // The row of a score that has no place among the others.
  HEED_DEVICE RowResult Lose() {
    Replace([](float) { return NAN; });
    return {NAN, false};
  }

  HEED_DEVICE RowResult Softmax() {
    const float highest = Max();
    const float subtrahend = Subtrahend(highest);
    const double sum = block_.SumKeys(keys_, [&](int, int j) { return Exp(row_[j] - subtrahend); });
    const RowEnd end = FinishSoftmax(p_.base, head_, {highest, static_cast<float>(sum)});
    Replace([&](float s) { return Exp(s - subtrahend) * end.factor; });
    return {end.lse, end.empty};
  }

  HEED_DEVICE RowResult Pointwise() {
    const double visible = Count([](float s) { return !Hidden(s); });
    const RowEnd end = FinishPointwise(p_.base, {0, static_cast<float>(visible)});
    Replace([&](float s) { return PointwiseWeight(p_.base, s) * end.factor; });
    return {0, end.empty};
  }

  // Scores are -u^2 / 2.
  HEED_DEVICE RowResult KernelSum() {
    Replace([&](float s) { return KernelWeight(-2 * s); });
    const double sum = block_.SumKeys(
        keys_, [&](int, int j) { return Hidden(row_[j]) ? 0.0 : static_cast<double>(row_[j]); });
    Replace([&](float w) { return sum == 0 ? 0.0f : static_cast<float>(w / sum); });
    return {0, sum == 0};
  }
  HEED_DEVICE float KernelWeight(float square) const {
    if (square != square) return square;
    switch (p_.kernel) {
      case Kernel::kBoxcar:
        return square <= 1 ? 1.0f : 0.0f;
      case Kernel::kTriangular:
        return fmaxf(0.0f, 1 - sqrtf(square));
      case Kernel::kEpanechnikov:
        return fmaxf(0.0f, 1 - square);
      default:
        return 1.0f;
    }
  }

  HEED_DEVICE RowResult Hard() {
    if (!KeepLargest(1)) return Lose();
    const bool empty = Hidden(Max());
    Replace([](float) { return 1.0f; });
    return {0, empty};
  }

  // Hides all but the `count` largest scores, lower keys first of equals. The bound is found by
  // bisection over the floats in their order, and so is the last key of those that equal it. False
  // where NaN leaves no order.
  HEED_DEVICE bool KeepLargest(int64_t count) {
    if (HasNaN()) return false;
    if (Count([](float s) { return !Hidden(s); }) <= static_cast<double>(count)) return true;
    const int64_t bound = CountedBound(count);
    const double rest =
        static_cast<double>(count) - Count([&](float s) { return Ordered(s) > bound; });
    const int last = LastOfEquals(bound, rest);
    block_.EachKey(keys_, [&](int, int j) {
      const int64_t place = Ordered(row_[j]);
      if (place < bound || (place == bound && j > last)) row_[j] = kMinusInfinity;
    });
    return true;
  }
  // The largest bound that at least `count` scores reach.
  HEED_DEVICE int64_t CountedBound(int64_t count) {
    int64_t low = Ordered(kMinusInfinity) + 1;
    int64_t high = Ordered(Max());
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      if (Count([&](float s) { return Ordered(s) >= middle; }) < static_cast<double>(count)) {
        high = middle - 1;
      } else {
        low = middle;
      }
    }
    return low;
  }
  // The key with which `rest` scores that equal the bound are there.
  HEED_DEVICE int LastOfEquals(int64_t bound, double rest) {
    int first = keys_.begin, last = keys_.end - 1;
    while (first < last) {
      const int middle = first + (last - first) / 2;
      const double equals = block_.SumKeys({keys_.begin, middle + 1}, [&](int, int j) {
        return Ordered(row_[j]) == bound ? 1.0 : 0.0;
      });
      if (equals < rest) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return last;
  }
  // Floats as integers in the same order; both zeros are one.
  HEED_DEVICE static int64_t Ordered(float x) {
    const int32_t bits = std::bit_cast<int32_t>(x == 0 ? 0.0f : x);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
  }

  // Sparsemax (`slope` 1) and entmax15 (`slope` 1 / 2): max(0, slope (s - max) - tau), of entmax15
  // the square, tau such that they sum to 1. Newton's steps from the left of the root never
  // overshoot it; those of entmax15 are of the norm of the roots.
  HEED_DEVICE RowResult Threshold(double slope) {
    const float highest = Max();
    if (Hidden(highest) && !HasNaN()) return {kMinusInfinity, true};
    if (HasNaN() || highest == -kMinusInfinity) return Lose();
    const bool squares = slope != 1;
    double tau = -1;
    const auto above = [&](float s) {
      const double x = slope * (static_cast<double>(s) - static_cast<double>(highest)) - tau;
      return x > 0 ? x : 0.0;
    };
    for (int n = 0; n < kMostSteps; ++n) {
      const auto root = [&](int, int j) { return above(row_[j]); };
      const double sum = block_.SumKeys(keys_, root);
      const double other =
          squares ? block_.SumKeys(keys_, [&](int t, int j) { return root(t, j) * root(t, j); })
                  : Count([&](float s) { return above(s) > 0; });
      const double step = squares ? (other - sqrt(other)) / sum : (sum - 1) / other;
      tau += step;
      if (!(step > kSmallStep)) break;
    }
    Replace([&](float s) {
      const double root = above(s);
      return static_cast<float>(squares ? root * root : root);
    });
    return {0, false};
  }
  static constexpr int kMostSteps = 100;
  static constexpr double kSmallStep = 0x1p-30;

  // From the last key on, each takes its share sigmoid(s) of what the later ones left.
  HEED_DEVICE RowResult BreakStick() {
    const double visible = Count([](float s) { return !Hidden(s); });
    block_.ScanBackwards(
        keys_, 1.0, [](double a, double b) { return a * b; },
        [&](int, int j) { return Hidden(row_[j]) ? 1.0 : Sigmoid(-static_cast<double>(row_[j])); },
        [&](int, int j, double, double left) {
          if (Hidden(row_[j])) return;
          row_[j] = static_cast<float>(left * Sigmoid(static_cast<double>(row_[j])));
        });
    return {0, visible == 0};
  }

  // The position of a key is the sum of the gates sigmoid(s) from it to the last visible key;
  // between whole positions their logits mix.
  template <class Logit>
  HEED_DEVICE void AddPositions(const Logit& logit) {
    const double last = p_.cope_table.rows - 1;
    block_.ScanBackwards(
        keys_, 0.0, [](double sum, double gate) { return sum + gate; },
        [&](int, int j) { return Hidden(row_[j]) ? 0.0 : Sigmoid(static_cast<double>(row_[j])); },
        [&](int t, int j, double gate, double after) {
          if (Hidden(row_[j])) return;
          const double position = after + gate;
          const double here = position < last ? position : last;
          if (here != here) {
            row_[j] = NAN;
            return;
          }
          const int whole = static_cast<int>(here);
          const float rest = static_cast<float>(here - whole);
          const int next = whole < p_.cope_table.rows - 1 ? whole + 1 : whole;
          row_[j] += (1 - rest) * logit(t, whole) + rest * logit(t, next);
        });
  }

  HEED_DEVICE static double Sigmoid(double x) {
    const double e = exp(-fabs(x));
    return x != x ? x : (x >= 0 ? 1.0 : e) / (1 + e);
  }

  RowBlock<Block>& block_;
  const RowParams& p_;
  int head_;
  RowKeys keys_;
  float* row_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ROW_NORMALIZE_H_
