#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/selective/dots.cc"
#include "src/selective/dots.h"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kCols = static_cast<size_t>(DotPanels::kPanel);

template <size_t kRows>
HWY_NOINLINE void DotPanel(const float* const* rows, const float* HWY_RESTRICT panel, size_t dim,
                           double* HWY_RESTRICT dots, size_t stride) {
  const hn::CappedTag<double, kCols> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr size_t kVectors = kCols / hn::MaxLanes(d);
  hn::Vec<decltype(d)> sums[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (size_t t = 0; t < dim; ++t) {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto column = hn::PromoteTo(d, hn::Load(df, panel + t * kCols + v * hn::MaxLanes(d)));
      for (size_t r = 0; r < kRows; ++r) {
        const auto x = hn::Set(d, static_cast<double>(rows[r][t]));
        sums[r][v] = hn::MulAdd(x, column, sums[r][v]);
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[r][v], d, dots + r * stride + v * hn::MaxLanes(d));
    }
  }
}

void Dots(const float* const* rows, size_t num_rows, const DotPanels& vectors, int64_t count,
          double* dots, size_t stride) {
  const size_t dim = static_cast<size_t>(vectors.dim());
  for (int64_t n = 0; n < count; n += DotPanels::kPanel) {
    const float* panel = vectors.panel(n / DotPanels::kPanel);
    if (num_rows == kDotRows) {
      DotPanel<kDotRows>(rows, panel, dim, dots + n, stride);
      continue;
    }
    for (size_t r = 0; r < num_rows; ++r) {
      DotPanel<1>(rows + r, panel, dim, dots + r * stride + n, stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(Dots);

DotPanels::DotPanels(int64_t count, int64_t dim)
    : count_(count),
      dim_(dim),
      memory_(RoundUp(static_cast<size_t>(count), kPanel) * static_cast<size_t>(dim)) {}

void DotPanels::FillGap() const {
  for (int64_t n = count_; n % kPanel != 0; ++n) {
    for (int64_t d = 0; d < dim_; ++d) at(n, d) = 0;
  }
}

void ExactDots(const float* const* rows, size_t num_rows, const DotPanels& vectors, int64_t count,
               double* dots, size_t stride) {
  HWY_DYNAMIC_DISPATCH(Dots)(rows, num_rows, vectors, count, dots, stride);
}

}  // namespace heed
#endif  // HWY_ONCE
