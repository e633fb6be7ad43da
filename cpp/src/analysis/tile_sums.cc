#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/analysis/tile_sums.cc"
#include "src/analysis/tile_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
//
#include "hwy/contrib/math/math-inl.h"
#include "src/simd/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Long sums are closed in double after so many elements.
constexpr size_t kRun = 1024;

// p log p, with 0 log 0 = 0. NaN stays NaN.
HWY_INLINE VF PLogP(DF d, VF p) {
  return hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), hn::Mul(p, hn::Log(d, p)));
}

// a log(2 a / (a + b)), 0 where a is 0.
HWY_INLINE VF Share(DF d, VF a, VF sum) {
  const VF log = hn::Log(d, hn::Div(hn::Add(a, a), sum));
  return hn::IfThenZeroElse(hn::Eq(a, hn::Zero(d)), hn::Mul(a, log));
}

float SumEntropy(const float* HWY_RESTRICT row, size_t count) {
  const DF d;
  VF sum = hn::Zero(d);
  for (size_t c = 0; c < count; c += hn::Lanes(d))
    sum = hn::Sub(sum, PLogP(d, hn::Load(d, row + c)));
  return hn::ReduceSum(d, sum);
}

// `ahead` is how far the first column's key lies behind the position.
float SumDistance(const float* HWY_RESTRICT row, size_t count, float ahead) {
  const DF d;
  VF sum = hn::Zero(d);
  VF column = hn::Iota(d, 0);
  const VF step = hn::Set(d, static_cast<float>(hn::Lanes(d)));
  const VF from = hn::Set(d, ahead);
  for (size_t c = 0; c < count; c += hn::Lanes(d)) {
    sum = Fma(hn::Load(d, row + c), hn::Abs(hn::Sub(from, column)), sum);
    column = hn::Add(column, step);
  }
  return hn::ReduceSum(d, sum);
}

void SumTileRowsOfTarget(const ScoreTile& tile, RowSumsAsked asked, RowSums* sums) {
  const DF d;
  const size_t count = tile.last - tile.first;
  for (size_t r = 0; r < tile.num_rows; ++r) {
    float* HWY_RESTRICT row = tile.row_scores(r);
    for (size_t c = tile.num_keys; c < tile.last; ++c) row[c] = 0.0f;
    row += tile.first;
    VF sum = hn::Zero(d);
    VF largest = hn::Zero(d);
    for (size_t c = 0; c < count; c += hn::Lanes(d)) {
      const VF p = hn::Load(d, row + c);
      sum = hn::Add(sum, p);
      largest = hn::Max(largest, p);
    }
    sums[r] = {hn::ReduceSum(d, sum), hn::ReduceMax(d, largest), 0.0f, 0.0f};
    if (asked.entropy) sums[r].entropy = SumEntropy(row, count);
    if (asked.distance) {
      const int64_t first_key = tile.key_begin + static_cast<int64_t>(tile.first);
      const float ahead = static_cast<float>(tile.rows[r].position - first_key);
      sums[r].distance = SumDistance(row, count, ahead);
    }
  }
}

void SumTileColumnsOfTarget(const ScoreTile& tile, size_t first, size_t step,
                            const float* HWY_RESTRICT factors, float* HWY_RESTRICT sums) {
  const DF d;
  for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
    VF sum = hn::Zero(d);
    for (size_t r = first; r < tile.num_rows; r += step) {
      if (factors[r] == 0.0f) continue;
      sum = Fma(hn::Set(d, factors[r]), hn::Load(d, tile.row_scores(r) + c), sum);
    }
    hn::StoreU(sum, d, sums + c);
  }
  for (size_t c = tile.num_keys; c < tile.last; ++c) sums[c] = 0.0f;
}

void MultiplyByDotsOfTarget(const ScoreTile& tile, size_t begin, size_t end,
                            const float* const* rows, const TileValues& values) {
  const DF d;
  for (size_t r = 0; r < tile.num_rows; ++r) {
    float* HWY_RESTRICT cells = tile.row_scores(r);
    for (size_t c = begin; c < end; ++c) {
      if (cells[c] == 0.0f) continue;
      const float* value = values.value + static_cast<int64_t>(c) * values.stride;
      VF sum = hn::Zero(d);
      for (size_t e = 0; e < values.dim; e += hn::Lanes(d)) {
        const size_t left = values.dim - e;
        sum = Fma(hn::LoadN(d, rows[r] + e, left), hn::LoadN(d, value + e, left), sum);
      }
      cells[c] *= hn::ReduceSum(d, sum);
    }
  }
}

// Adds term(d, a, b) over two arrays; what is left of the last vector counts as 0.
template <class Term>
HWY_INLINE double SumTerms(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t count,
                           const Term& term) {
  const DF d;
  double total = 0;
  for (size_t begin = 0; begin < count; begin += kRun) {
    const size_t end = std::min(count, begin + kRun);
    VF sum = hn::Zero(d);
    for (size_t c = begin; c < end; c += hn::Lanes(d)) {
      const size_t left = end - c;
      const VF va = hn::LoadN(d, a + c, left);
      const VF vb = hn::LoadN(d, b + c, left);
      sum = hn::Add(sum, term(d, va, vb));
    }
    total += static_cast<double>(hn::ReduceSum(d, sum));
  }
  return total;
}

double SumProductsOfTarget(const float* a, const float* b, size_t count) {
  return SumTerms(a, b, count, [](DF, VF x, VF y) HWY_ATTR { return hn::Mul(x, y); });
}

double SumSquaredDifferencesOfTarget(const float* a, const float* b, size_t count) {
  return SumTerms(a, b, count, [](DF, VF x, VF y) HWY_ATTR {
    const VF difference = hn::Sub(x, y);
    return hn::Mul(difference, difference);
  });
}

double SumJensenShannonOfTarget(const float* a, const float* b, size_t count) {
  return 0.5 * SumTerms(a, b, count, [](DF d, VF x, VF y) HWY_ATTR {
           const VF sum = hn::Add(x, y);
           return hn::Add(Share(d, x, sum), Share(d, y, sum));
         });
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(SumTileRowsOfTarget);
HWY_EXPORT(SumTileColumnsOfTarget);
HWY_EXPORT(MultiplyByDotsOfTarget);
HWY_EXPORT(SumProductsOfTarget);
HWY_EXPORT(SumSquaredDifferencesOfTarget);
HWY_EXPORT(SumJensenShannonOfTarget);

void SumTileRows(const ScoreTile& tile, RowSumsAsked asked, RowSums* sums) {
  HWY_DYNAMIC_DISPATCH(SumTileRowsOfTarget)(tile, asked, sums);
}
void SumTileColumns(const ScoreTile& tile, size_t first, size_t step, const float* factors,
                    float* sums) {
  HWY_DYNAMIC_DISPATCH(SumTileColumnsOfTarget)(tile, first, step, factors, sums);
}
void MultiplyByDots(const ScoreTile& tile, size_t begin, size_t end, const float* const* rows,
                    const TileValues& values) {
  HWY_DYNAMIC_DISPATCH(MultiplyByDotsOfTarget)(tile, begin, end, rows, values);
}
namespace {

// The sum, or where float32 may have lost terms of it, or overflowed, that of float64.
template <class Term>
double SumInRange(double sum, const float* a, const float* b, size_t count, const Term& term) {
  constexpr double kLeast = 1e-25;
  if (sum >= kLeast && std::isfinite(sum)) return sum;
  sum = 0;
  for (size_t n = 0; n < count; ++n) {
    sum += term(static_cast<double>(a[n]), static_cast<double>(b[n]));
  }
  return sum;
}

}  // namespace

double SumProducts(const float* a, const float* b, size_t count) {
  return SumInRange(HWY_DYNAMIC_DISPATCH(SumProductsOfTarget)(a, b, count), a, b, count,
                    [](double x, double y) { return x * y; });
}
double SumSquaredDifferences(const float* a, const float* b, size_t count) {
  return SumInRange(HWY_DYNAMIC_DISPATCH(SumSquaredDifferencesOfTarget)(a, b, count), a, b, count,
                    [](double x, double y) { return (x - y) * (x - y); });
}
double SumJensenShannon(const float* a, const float* b, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumJensenShannonOfTarget)(a, b, count);
}

}  // namespace heed
#endif  // HWY_ONCE
