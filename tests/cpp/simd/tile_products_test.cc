// Products of tiles of bfloat16 pairs, beside the definition of tdpbf16ps: from vectors on every
// target that has them, and by AMX where the machine has it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/tile_products_test.cc"
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "simd_targets.h"
#include "src/simd/tile_products-inl.h"
#include "tile_units.h"

#ifndef HEED_TESTS_CPP_SIMD_TILE_PRODUCTS_TEST_SHAPE_
#define HEED_TESTS_CPP_SIMD_TILE_PRODUCTS_TEST_SHAPE_
namespace heed::testing {
struct TileShape {
  size_t rows, steps, num_panels;
};
}  // namespace heed::testing
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::testing {
namespace HWY_NAMESPACE {

// Floats of a panel's rows; 0 for a target without products of bfloat16, which no test asks.
size_t PanelWidth() {
#if HWY_NATIVE_DOT_BF16
  return heed::HWY_NAMESPACE::PanelCols();
#else
  return 0;
#endif
}

// a [rows][steps * 16], panels [panel][steps * 16][PanelWidth()], c [rows][panels * PanelWidth()].
void Multiply([[maybe_unused]] TileUnit unit, [[maybe_unused]] const TileShape& shape,
              [[maybe_unused]] const float* a, [[maybe_unused]] const float* panels,
              [[maybe_unused]] const uint8_t* visible, [[maybe_unused]] float* c) {
#if HWY_NATIVE_DOT_BF16
  namespace simd = heed::HWY_NAMESPACE;
  const size_t pairs = shape.steps * simd::kStepPairs;
  const simd::TileProduct product = {.rows = shape.rows,
                                     .steps = shape.steps,
                                     .a = a,
                                     .a_stride = pairs,
                                     .panels = panels,
                                     .panel_stride = pairs * simd::PanelCols(),
                                     .num_panels = shape.num_panels,
                                     .c = c,
                                     .c_stride = shape.num_panels * simd::PanelCols()};
  if (visible != nullptr) return simd::MultiplyByVectors(product, visible, 2 * pairs);
  simd::MultiplyTiles(unit, product);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::testing
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::testing {
namespace {

HWY_EXPORT(PanelWidth);
HWY_EXPORT(Multiply);

constexpr size_t kPairs = 16;  // of a step

// The unit has numbers below 2^-126 as 0. What is below is decided after rounding, as if there were
// smaller ones: so it is computed 2^64 times as large.
constexpr float kLarger = 0x1p64f;
float OrZero(float larger) {
  return std::abs(larger) < 0x1p-126f * kLarger ? std::copysign(0.0f, larger) : larger / kLarger;
}
float Normal(uint32_t bits) { return OrZero(std::bit_cast<float>(bits) * kLarger); }
float First(float pair) { return Normal(std::bit_cast<uint32_t>(pair) << 16); }
float Second(float pair) { return Normal(std::bit_cast<uint32_t>(pair) & 0xFFFF0000u); }
float MultiplyAdd(float a, float b, float c) {
  return OrZero(std::fma(a * kLarger, b, c * kLarger));
}
float Add(float a, float b) { return OrZero(a * kLarger + b * kLarger); }

// One number of C by the definition.
float Dot(const TileShape& shape, const float* a, const float* column, size_t width) {
  float sum = 0;
  for (size_t s = 0; s < shape.steps; ++s) {
    float first = 0, second = 0;
    for (size_t k = s * kPairs; k < (s + 1) * kPairs; ++k) {
      first = MultiplyAdd(First(a[k]), First(column[k * width]), first);
      second = MultiplyAdd(Second(a[k]), Second(column[k * width]), second);
    }
    sum = Add(sum, Add(first, second));
  }
  return sum;
}

// Exponents of what is drawn, beside zeros and subnormals: [first, first + count).
struct Exponents {
  uint32_t first, count;
};

std::vector<float> Draw(size_t count, uint32_t seed, Exponents exponents) {
  std::mt19937 random(seed);
  std::vector<float> pairs(count);
  for (float& pair : pairs) {
    uint32_t bits = 0;
    for (int half = 0; half < 2; ++half) {
      const auto word = static_cast<uint32_t>(random());
      const uint32_t exponent =
          word >> 29 == 0 ? 0 : exponents.first + (word >> 16) % exponents.count;
      bits = bits << 16 | (word & 0x807Fu) | exponent << 7;
    }
    pair = std::bit_cast<float>(bits);
  }
  return pairs;
}

// Of A and of B: numbers near 1; products and sums around 2^-126; the same of inputs.
constexpr Exponents kDrawn[][2] = {{{120, 12}, {120, 12}}, {{60, 8}, {60, 8}}, {{0, 3}, {124, 8}}};

class TileProducts : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(BFloat16Targets, TileProducts, ::testing::ValuesIn([] {
                           std::vector<int64_t> targets = RunnableTargets();
                           std::erase_if(targets, [](int64_t t) { return !MultipliesBFloat16(t); });
                           return targets;
                         }()),
                         TargetLabel);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TileProducts);

// Calls `check(shape, a, panels)` for products of many shapes and sizes of numbers.
template <class Check>
void ForEachProduct(size_t width, const Check& check) {
  for (const TileShape& shape : {TileShape{1, 1, 1}, TileShape{16, 1, 1}, TileShape{7, 2, 2},
                                 TileShape{16, 3, 3}, TileShape{16, 8, 4}}) {
    const size_t pairs = shape.steps * kPairs;
    for (const auto& [of_a, of_b] : kDrawn) {
      check(shape, Draw(shape.rows * pairs, 1, of_a),
            Draw(pairs * shape.num_panels * width, 2, of_b));
    }
  }
}

// The bits of the product by the unit in use.
std::vector<uint32_t> ProductBits(const TileShape& shape, const std::vector<float>& a,
                                  const std::vector<float>& panels, size_t width) {
  std::vector<float> c(shape.rows * shape.num_panels * width + 1, 5.0f);
  HWY_DYNAMIC_DISPATCH(Multiply)
  (CurrentTileUnit(), shape, a.data(), panels.data(), nullptr, c.data());
  EXPECT_EQ(c.back(), 5.0f);
  std::vector<uint32_t> bits;
  for (const float x : c) bits.push_back(std::bit_cast<uint32_t>(x));
  return bits;
}

TEST_P(TileProducts, HaveTheBitsOfTheDefinition) {
  const size_t width = HWY_DYNAMIC_DISPATCH(PanelWidth)();
  ForEachProduct(width, [&](const TileShape& shape, const std::vector<float>& a,
                            const std::vector<float>& panels) {
    const size_t pairs = shape.steps * kPairs, cols = shape.num_panels * width;
    OnEveryTileUnit(GetParam(), [&] {
      const std::vector<uint32_t> bits = ProductBits(shape, a, panels, width);
      for (size_t r = 0; r < shape.rows; ++r) {
        for (size_t col = 0; col < cols; ++col) {
          const float* const column = panels.data() + col / width * pairs * width + col % width;
          ASSERT_EQ(bits[r * cols + col],
                    std::bit_cast<uint32_t>(Dot(shape, a.data() + r * pairs, column, width)))
              << "row " << r << ", column " << col;
        }
      }
    });
  });
}

TEST_P(TileProducts, HaveTheSameBitsByEveryUnit) {
  const size_t width = HWY_DYNAMIC_DISPATCH(PanelWidth)();
  ForEachProduct(width, [&](const TileShape& shape, const std::vector<float>& a,
                            const std::vector<float>& panels) {
    SetTileUnitForTest(TileUnit::kEmulated);
    const std::vector<uint32_t> emulated = ProductBits(shape, a, panels, width);
    OnEveryTileUnit(GetParam(), [&] { EXPECT_EQ(ProductBits(shape, a, panels, width), emulated); });
  });
}

// What is not visible adds nothing, whatever it is, and changes no bit beside it.
TEST_P(TileProducts, LeaveOutWhatIsNotVisible) {
  const size_t width = HWY_DYNAMIC_DISPATCH(PanelWidth)();
  const TileShape shape = {3, 2, 1};
  const size_t pairs = shape.steps * kPairs;
  std::vector<float> a = Draw(shape.rows * pairs, 3, {120, 12});
  std::vector<float> panels = Draw(pairs * width, 4, {120, 12});
  std::vector<uint8_t> visible(shape.rows * 2 * pairs, 1);
  constexpr size_t kHidden = 9;  // key 18 is seen, key 19 is not
  for (size_t r = 0; r < shape.rows; ++r) {
    visible[r * 2 * pairs + 2 * kHidden + 1] = 0;
    const uint32_t kept = std::bit_cast<uint32_t>(a[r * pairs + kHidden]) & 0xFFFFu;
    a[r * pairs + kHidden] = std::bit_cast<float>(kept);  // its weight is 0
  }
  std::vector<float> clean(shape.rows * width), poisoned(shape.rows * width);
  HWY_DYNAMIC_DISPATCH(Multiply)
  (TileUnit::kEmulated, shape, a.data(), panels.data(), nullptr, clean.data());
  for (size_t col = 0; col < width; ++col) {
    float& pair = panels[kHidden * width + col];
    pair = std::bit_cast<float>((std::bit_cast<uint32_t>(pair) & 0xFFFFu) | 0x7FC00000u);
  }
  HWY_DYNAMIC_DISPATCH(Multiply)
  (TileUnit::kEmulated, shape, a.data(), panels.data(), visible.data(), poisoned.data());
  EXPECT_EQ(poisoned, clean);
  visible[2 * kHidden + 1] = 1;
  HWY_DYNAMIC_DISPATCH(Multiply)
  (TileUnit::kEmulated, shape, a.data(), panels.data(), visible.data(), poisoned.data());
  EXPECT_TRUE(std::isnan(poisoned[0]));
  EXPECT_FALSE(std::isnan(poisoned[width]));
}

}  // namespace
}  // namespace heed::testing
#endif  // HWY_ONCE
