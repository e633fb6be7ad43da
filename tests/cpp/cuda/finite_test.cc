// Numbers that are not finite, one by one and all of a word at once.
#include "src/cuda/finite.h"

#include <cmath>

#include "gtest/gtest.h"

namespace heed::testing {
namespace {

template <class T>
class Finite : public ::testing::Test {};
using Types = ::testing::Types<Float16, BFloat16, Float8E4M3>;
TYPED_TEST_SUITE(Finite, Types);

template <class T>
constexpr int kBits = 8 * static_cast<int>(sizeof(T));

template <class T>
T NumberOf(uint32_t bits) {
  return T{static_cast<decltype(T::bits)>(bits)};
}

TYPED_TEST(Finite, EveryNumberIsWhatItIsAsAFloat) {
  for (uint32_t bits = 0; bits < 1u << kBits<TypeParam>; ++bits) {
    ASSERT_EQ(cuda::IsNotFinite(TypeParam{}, static_cast<uint16_t>(bits)),
              !std::isfinite(ToFloat(NumberOf<TypeParam>(bits))))
        << bits;
  }
}

// A number carries in its own place and no other, whatever its neighbours are.
TYPED_TEST(Finite, EveryNumberOfAWordCarriesInItsPlace) {
  constexpr uint32_t kOnes = (1u << kBits<TypeParam>)-1;
  for (const uint32_t others : {0u, 0x80808080u, ~0u, 0x7c007c00u, 0x7b7f7f7eu}) {
    for (int place = 0; place < 32; place += kBits<TypeParam>) {
      for (uint32_t bits = 0; bits <= kOnes; ++bits) {
        const uint32_t word = (others & ~(kOnes << place)) | bits << place;
        uint32_t expected = 0;
        for (int n = 0; n < 32; n += kBits<TypeParam>) {
          const bool finite = std::isfinite(ToFloat(NumberOf<TypeParam>(word >> n & kOnes)));
          if (!finite) expected |= (kOnes ^ kOnes >> 1) << n;
        }
        ASSERT_EQ(cuda::CarriesOfNonFinite<TypeParam>(word) & cuda::kCarries<TypeParam>, expected)
            << std::hex << word;
      }
    }
  }
}

}  // namespace
}  // namespace heed::testing
