// Four vectors reduced at a time, on every target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/reduce_test.cc"
#include <algorithm>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "simd_targets.h"
#include "src/simd/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::testing {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

size_t NumLanes() { return hn::Lanes(hn::ScalableTag<float>()); }

// Rows of NumLanes() floats; results of rows 0 to 3 each.
void ReduceRows(const float* rows, float* max, float* sum) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> v[4];
  for (size_t i = 0; i < 4; ++i) v[i] = hn::LoadU(d, rows + i * hn::Lanes(d));
  const heed::HWY_NAMESPACE::D4 four;
  hn::StoreU(heed::HWY_NAMESPACE::ReduceFour(d, v, heed::HWY_NAMESPACE::MaxOf()), four, max);
  hn::StoreU(heed::HWY_NAMESPACE::ReduceFour(d, v, heed::HWY_NAMESPACE::SumOf()), four, sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::testing
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::testing {
namespace {

HWY_EXPORT(NumLanes);
HWY_EXPORT(ReduceRows);

class Reduce : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Reduce);

TEST_P(Reduce, EveryLaneCountsOnceAndInItsOwnRow) {
  const size_t lanes = HWY_DYNAMIC_DISPATCH(NumLanes)();
  std::vector<float> rows(4 * lanes);
  std::iota(rows.begin(), rows.end(), 1.0f);
  for (size_t n = 0; n < rows.size(); ++n) {
    std::vector<float> probe = rows;
    probe[n] = 1000.0f;  // sums of small whole numbers are exact
    std::vector<float> max(4), sum(4), expected_max(4), expected_sum(4);
    HWY_DYNAMIC_DISPATCH(ReduceRows)(probe.data(), max.data(), sum.data());
    for (size_t i = 0; i < 4; ++i) {
      const auto row = probe.begin() + static_cast<std::ptrdiff_t>(i * lanes);
      const auto end = row + static_cast<std::ptrdiff_t>(lanes);
      expected_max[i] = *std::max_element(row, end);
      expected_sum[i] = std::accumulate(row, end, 0.0f);
    }
    EXPECT_THAT(max, ::testing::ElementsAreArray(expected_max)) << "element " << n;
    EXPECT_THAT(sum, ::testing::ElementsAreArray(expected_sum)) << "element " << n;
  }
}

}  // namespace
}  // namespace heed::testing
#endif  // HWY_ONCE
