// The kernels of states that are taken token by token, against plain loops: every width around
// vectors and blocks of them, and numbers of rows that are no multiple of four.
#include "src/recurrent/state_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kError = 1e-5f;

template <class Draw>
std::vector<float> Numbers(const Draw& draw, size_t count, uint64_t seed) {
  return draw(static_cast<int64_t>(count), seed);
}

template <class T, class Vector>
StateRows<T> Of(Vector& values, size_t count, size_t width) {
  return {values.data(), static_cast<int64_t>(count), static_cast<int64_t>(width)};
}

class StateRowsKernels : public OnEveryTarget {
 protected:
  // body(count, width) for sizes of all kinds.
  template <class Body>
  static void ForEachSize(const Body& body) {
    for (const size_t count : {0u, 1u, 3u, 4u, 5u, 9u}) {
      for (const size_t width :
           {0u, 1u, 3u, 4u, 7u, 15u, 16u, 17u, 31u, 32u, 63u, 64u, 70u, 130u}) {
        SCOPED_TRACE(std::to_string(count) + " rows of " + std::to_string(width));
        body(count, width);
      }
    }
  }
};
HEED_ON_EVERY_TARGET(StateRowsKernels);

TEST_P(StateRowsKernels, SumsOfRows) {
  ForEachSize([](size_t count, size_t width) {
    const std::vector<float> rows = Numbers(LogDecays, count * width, 1),
                             factors = Numbers(Betas, count, 2);
    std::vector<float> sum(width + 1, 7.0f);
    SumRows(Of<const float>(rows, count, width), factors.data(), sum.data());
    for (size_t e = 0; e < width; ++e) {
      float expected = 0;
      for (size_t c = 0; c < count; ++c) expected += factors[c] * rows[c * width + e];
      EXPECT_NEAR(sum[e], expected, kError);
    }
    EXPECT_EQ(sum.back(), 7.0f);
  });
}

TEST_P(StateRowsKernels, RowsMeetOneOrTheirOwn) {
  ForEachSize([](size_t count, size_t width) {
    const std::vector<float> rows = Numbers(LogDecays, count * width, 1);
    const std::vector<float> others = Numbers(Betas, (count + 1) * width, 2);
    for (const size_t stride : {size_t{0}, width}) {
      std::vector<float> dots(count + 1, 7.0f);
      MeetRows(Of<const float>(rows, count, width), others.data(), static_cast<int64_t>(stride),
               dots.data());
      for (size_t c = 0; c < count; ++c) {
        double expected = 0;
        for (size_t e = 0; e < width; ++e) {
          expected += double{rows[c * width + e]} * double{others[c * stride + e]};
        }
        EXPECT_NEAR(double{dots[c]}, expected, double{kError} * (1 + std::abs(expected)));
      }
      EXPECT_EQ(dots.back(), 7.0f);
    }
  });
}

TEST_P(StateRowsKernels, ProductsAreAdded) {
  ForEachSize([](size_t count, size_t width) {
    const std::vector<float> factors = Numbers(Betas, count, 2),
                             other = Numbers(LogDecays, width, 3);
    std::vector<float> rows = Numbers(LogDecays, count * width + 1, 1);
    const std::vector<float> before = rows;
    AddOuter(factors.data(), other.data(), Of<float>(rows, count, width));
    for (size_t n = 0; n < count * width; ++n) {
      EXPECT_NEAR(rows[n], before[n] + factors[n / width] * other[n % width], kError);
    }
    EXPECT_EQ(rows.back(), before.back());
  });
}

TEST_P(StateRowsKernels, StepsForgetWhatDecaysToNothing) {
  ForEachSize([](size_t count, size_t width) {
    std::vector<float> decays = Numbers(Betas, count, 2);
    std::vector<float> from = Numbers(LogDecays, count * width, 1);
    if (count > 2 && width > 0) {
      decays[2] = 0;
      from[2 * width] = std::numeric_limits<float>::infinity();
    }
    const std::vector<float> factors = Numbers(Betas, 2 * count, 4),
                             others = Numbers(LogDecays, 2 * width, 5);
    const Outer products[] = {{factors.data(), others.data()},
                              {factors.data() + count, others.data() + width}};
    for (const size_t used : {1u, 2u}) {
      std::vector<float> to(from.size() + 1, 7.0f), in_place = from;
      StepRows(Of<const float>(from, count, width), decays.data(), {products, used}, to.data());
      StepRows(Of<const float>(in_place, count, width), decays.data(), {products, used},
               in_place.data());
      for (size_t n = 0; n < count * width; ++n) {
        const size_t c = n / width, e = n % width;
        float expected = decays[c] == 0 ? 0 : decays[c] * from[n];
        for (size_t p = 0; p < used; ++p) expected += products[p].factors[c] * products[p].other[e];
        EXPECT_NEAR(to[n], expected, kError * (1 + std::abs(expected)));
        EXPECT_EQ(in_place[n], to[n]);
      }
      EXPECT_EQ(to.back(), 7.0f);
    }
  });
}

}  // namespace
}  // namespace heed::testing
