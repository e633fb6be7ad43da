// Softmax of a row that lies in memory, and of columns side by side.
#if defined(HEED_ROWS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_ROWS_SOFTMAX_INL_H_
#undef HEED_ROWS_SOFTMAX_INL_H_
#else
#define HEED_ROWS_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "src/rows/problem.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Elements whose exponentials are added in float before the sum goes on in double.
inline constexpr size_t kSumBlock = 1024;

// What becomes of the exponentials while they are summed: they are kept, or not.
struct KeepExponentials {
  float* HWY_RESTRICT out;
  HWY_INLINE void Whole(size_t c, VF e) const { hn::StoreU(e, DF(), out + c); }
  HWY_INLINE void Part(size_t c, VF e, size_t count) const { hn::StoreN(e, DF(), out + c, count); }
};
struct DropExponentials {
  HWY_INLINE void Whole(size_t, VF) const {}
  HWY_INLINE void Part(size_t, VF, size_t) const {}
};

// What to subtract before exponentials are taken: the largest element, 0 for a row of -inf alone.
// NaN may or may not show: it reaches the sum.
inline float ShiftOf(const float* HWY_RESTRICT x, size_t n) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF max[2] = {hn::Set(d, kLowest), hn::Set(d, kLowest)};
  size_t c = 0;
  for (; c + 2 * lanes <= n; c += 2 * lanes) {
    max[0] = hn::Max(hn::LoadU(d, x + c), max[0]);
    max[1] = hn::Max(hn::LoadU(d, x + c + lanes), max[1]);
  }
  for (; c < n; c += lanes) {
    max[0] = hn::Max(hn::LoadNOr(hn::Set(d, kLowest), d, x + c, n - c), max[0]);
  }
  max[0] = hn::Max(max[0], max[1]);
  // Not every target's ReduceMax knows a number below the lowest finite one.
  if (hn::AllTrue(d, hn::Eq(max[0], hn::Set(d, kLowest)))) return 0.0f;
  return hn::ReduceMax(d, max[0]);
}

// Hands e^(x - shift) to `take` and returns the sum.
template <class Take>
double SumExponentials(const float* x, float shift, size_t n, const Take& take) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const VF from = hn::Set(d, shift);
  const VF to_log2 = hn::Set(d, kLog2E);
  double total = 0;
  for (size_t begin = 0; begin < n; begin += kSumBlock) {
    const size_t end = std::min(n, begin + kSumBlock);
    VF sum[2] = {hn::Zero(d), hn::Zero(d)};
    size_t c = begin;
    for (; c + 4 * lanes <= end; c += 4 * lanes) {
      VF e[4];
      for (size_t i = 0; i < 4; ++i) {
        e[i] = hn::Mul(hn::Sub(hn::LoadU(d, x + c + i * lanes), from), to_log2);
      }
      Exp2NonPositive(d, e);
      for (size_t i = 0; i < 4; ++i) {
        take.Whole(c + i * lanes, e[i]);
        sum[i % 2] = hn::Add(sum[i % 2], e[i]);
      }
    }
    for (; c < end; c += lanes) {
      const VF loaded = hn::LoadNOr(hn::Set(d, kLowest), d, x + c, end - c);
      VF e[1] = {hn::Mul(hn::Sub(loaded, from), to_log2)};
      Exp2NonPositive(d, e);
      take.Part(c, e[0], end - c);
      sum[0] = hn::Add(sum[0], e[0]);
    }
    total += static_cast<double>(hn::ReduceSum(d, hn::Add(sum[0], sum[1])));
  }
  return total;
}

// out = body(x), vector by vector. out may be x.
template <class Body>
HWY_INLINE void MapRow(const float* x, size_t n, float* out, Body&& body) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= n; c += lanes) hn::StoreU(body(hn::LoadU(d, x + c)), d, out + c);
  if (c < n) hn::StoreN(body(hn::LoadN(d, x + c, n - c)), d, out + c, n - c);
}

// out = softmax(x); out may be x. Returns whether NaN or infinity made the row NaN.
inline bool SoftmaxRow(const float* x, size_t n, float* out) {
  const DF d;
  const double sum = SumExponentials(x, ShiftOf(x, n), n, KeepExponentials{out});
  const VF factor = hn::Set(d, sum == 0 ? 0.0f : static_cast<float>(1 / sum));
  MapRow(out, n, out, [&](VF e) HWY_ATTR { return hn::Mul(e, factor); });
  return std::isnan(sum);
}

// out = log(softmax(x)).
inline void LogSoftmaxRow(const float* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT out) {
  const DF d;
  const float shift = ShiftOf(x, n);
  const double sum = SumExponentials(x, shift, n, DropExponentials());
  const VF from = hn::Set(d, shift);
  const VF log = hn::Set(d, sum == 0 ? 0.0f : static_cast<float>(std::log(sum)));
  MapRow(x, n, out, [&](VF v) HWY_ATTR { return hn::Sub(hn::Sub(v, from), log); });
}

// One vector of columns whose elements lie `stride` apart.
class Columns {
 public:
  // `count` columns from x on, at most a vector.
  Columns(const float* x, int64_t stride, size_t n, size_t count)
      : x_(x), stride_(stride), n_(n), count_(count) {}

  VF Load(size_t i) const {
    const DF d;
    const float* row = x_ + static_cast<int64_t>(i) * stride_;
    return count_ == hn::Lanes(d) ? hn::LoadU(d, row) : hn::LoadN(d, row, count_);
  }

  VF Largest() const {
    VF max = hn::Set(DF(), kLowest);
    for (size_t i = 0; i < n_; ++i) max = hn::Max(Load(i), max);
    return max;
  }

  // e^(x - shift) of element i.
  VF Exponential(size_t i, VF shift) const {
    const DF d;
    VF e[1] = {hn::Mul(hn::Sub(Load(i), shift), hn::Set(d, kLog2E))};
    Exp2NonPositive(d, e);
    return e[0];
  }

  // Sums of blocks are summed: long columns round no more than their square root.
  VF Sum(VF shift) const {
    const DF d;
    VF total = hn::Zero(d);
    for (size_t begin = 0; begin < n_; begin += 64) {
      VF sum = hn::Zero(d);
      for (size_t i = begin; i < std::min(n_, begin + 64); ++i) {
        sum = hn::Add(sum, Exponential(i, shift));
      }
      total = hn::Add(total, sum);
    }
    return total;
  }

 private:
  const float* x_;
  int64_t stride_;
  size_t n_, count_;
};

// Up to a vector of columns of n elements each; results lie out_stride apart.
inline void SoftmaxColumns(SoftmaxResult result, const float* x, int64_t stride, size_t n,
                           size_t count, float* out, int64_t out_stride) {
  const DF d;
  const Columns columns(x, stride, n, count);
  const VF max = columns.Largest();
  // A column of -inf alone: nothing is subtracted, all exponentials are 0.
  const VF shift = hn::IfThenElseZero(hn::Ne(max, hn::Set(d, kLowest)), max);
  const VF sum = columns.Sum(shift);
  const auto empty = hn::Eq(sum, hn::Zero(d));
  HWY_ALIGN float logs[hn::MaxLanes(DF())];
  hn::Store(hn::IfThenElse(empty, hn::Set(d, 1.0f), sum), d, logs);
  for (float& value : logs) value = std::log(value);
  const VF log = hn::Load(d, logs);
  const VF factor = hn::IfThenZeroElse(empty, hn::Div(hn::Set(d, 1.0f), sum));
  for (size_t i = 0; i < n; ++i) {
    const VF y = result == SoftmaxResult::kLogs ? hn::Sub(hn::Sub(columns.Load(i), shift), log)
                                                : hn::Mul(columns.Exponential(i, shift), factor);
    hn::StoreN(y, d, out + static_cast<int64_t>(i) * out_stride, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_ROWS_SOFTMAX_INL_H_
