// Which views share memory, against a set of all their bytes.
#include "src/view_checks.h"

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "random.h"

namespace heed::testing {
namespace {

bool IsRefused(const ViewSpan& output, const ViewSpan& input) {
  try {
    CheckNoAlias("output", output, "x", input);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("output overlaps x"));
    return true;
  }
  return false;
}

template <typename T>
std::set<uintptr_t> BytesOf(const TensorView<T>& view) {
  std::set<uintptr_t> bytes;
  const Extents& shape = view.shape;
  for (int64_t n = 0; n < shape[0] * shape[1] * shape[2] * shape[3]; ++n) {
    int64_t rest = n, offset = 0;
    for (size_t axis = 4; axis-- > 0; rest /= shape[axis]) {
      offset += rest % shape[axis] * view.strides[axis];
    }
    const auto first = reinterpret_cast<uintptr_t>(view.data) +
                       static_cast<uintptr_t>(offset * static_cast<int64_t>(sizeof(T)));
    for (size_t byte = 0; byte < sizeof(T); ++byte) bytes.insert(first + byte);
  }
  return bytes;
}

template <typename T, typename U>
bool ShareBytes(const TensorView<T>& a, const TensorView<U>& b) {
  const std::set<uintptr_t> bytes = BytesOf(a);
  for (const uintptr_t byte : BytesOf(b)) {
    if (bytes.contains(byte)) return true;
  }
  return false;
}

constexpr int64_t kMiddle = 4096;

template <typename T>
TensorView<const T> RandomView(Random& random, const T* memory) {
  TensorView<const T> view;
  view.data = memory + random.Integer(kMiddle - 40, kMiddle + 40);
  for (size_t axis = 0; axis < 4; ++axis) {
    view.shape[axis] = random.Integer(1, 4);
    view.strides[axis] = random.Integer(-3, 9) * (random.Chance(0.5) ? 1 : 8);
  }
  return view;
}

TEST(CheckNoAlias, RefusesExactlyWhatSharesBytes) {
  static const std::vector<float> memory(2 * kMiddle);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(memory.data() + kMiddle) - kMiddle;
  Random random(1);
  int refused = 0;
  for (int n = 0; n < 4000; ++n) {
    const TensorView<const float> output = RandomView(random, memory.data());
    const TensorView<const float> x = RandomView(random, memory.data());
    const bool expected = ShareBytes(output, x);
    refused += expected ? 1 : 0;
    ASSERT_EQ(IsRefused(SpanOf(output), SpanOf(x)), expected) << n;
    const TensorView<const uint8_t> keep = RandomView(random, bytes);
    ASSERT_EQ(IsRefused(SpanOf(output), SpanOf(keep)), ShareBytes(output, keep)) << n;
  }
  EXPECT_GT(refused, 400);
  EXPECT_LT(refused, 3600);
}

TEST(CheckNoAlias, TellsPartsOfAPackedBufferApart) {
  // [batch, len, q k v output, heads, dim], and rows of one of them that are shifted by a token.
  constexpr int64_t kLen = 1000, kHeads = 8, kDim = 64, kToken = 4 * kHeads * kDim;
  static const std::vector<float> memory(2 * (kLen + 1) * kToken);
  const auto part = [&](int64_t which, int64_t token = 0) {
    return SpanOf(TensorView<const float>{memory.data() + token * kToken + which * kHeads * kDim,
                                          {2, kHeads, kLen, kDim},
                                          {kLen * kToken, kDim, kToken, 1}});
  };
  for (int64_t which = 0; which < 3; ++which) {
    EXPECT_FALSE(IsRefused(part(3), part(which)));
    EXPECT_FALSE(IsRefused(part(3, 1), part(which)));
    EXPECT_TRUE(IsRefused(part(which, 1), part(which)));
  }
}

TEST(CheckNoAlias, LooksAtLargeTensorsForAMomentOnly) {
  // Strides that share no divisor and lie apart: no sum of few steps decides.
  static const float number = 0;
  const TensorView<const float> a = {&number, {500, 500, 500, 500}, {10007, 10009, 10037, 10039}};
  TensorView<const float> b = {&number, {500, 500, 500, 500}, {10061, 10067, 10069, 10079}};
  b.data += 1;
  const auto begin = std::chrono::steady_clock::now();
  IsRefused(SpanOf(a), SpanOf(b));  // either answer
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(passed.count(), 1);  // 500^8 sums would take years
}

}  // namespace
}  // namespace heed::testing
