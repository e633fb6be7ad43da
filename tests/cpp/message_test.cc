// Texts of errors: parts in their places, numbers as printf shows them.
#include "src/message.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "random.h"

namespace heed {
namespace {

TEST(Message, PutsPartsIntoTheirPlaces) {
  const Extents shape = {1, 2, 30, 4};
  EXPECT_EQ(Join("{} has shape {}, {} of {}; {}", {"q", shape, 3, std::string("x"), int64_t{-7}}),
            "q has shape [1, 2, 30, 4], 3 of x; -7");
  EXPECT_EQ(Join("{} and {", {1}), "1 and {");
}

std::string Printed(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

TEST(Message, ShowsNumbersAsPrintfDoes) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double number :
       {0.0, -0.0, 1.0, -1.5, 0.1, 1e-39, 123456.0, 1234567.0, 100000.0, 1e6, 1e300, 1e-5,
        0.00012345, 3.0, 10.0, 0.5, infinity, -infinity, double{1e-4f}}) {
    EXPECT_EQ(Join("{}", {number}), Printed(number));
  }
  EXPECT_EQ(Join("{}", {std::nan("")}), "nan");
  testing::Random random(3);
  for (int n = 0; n < 2000; ++n) {
    const double number = random.Normal() * std::exp(20.0 * random.Normal());
    const double shown = std::stod(Join("{}", {number}));
    EXPECT_NEAR(shown / number, 1, 1.01e-5) << number;
  }
}

}  // namespace
}  // namespace heed
