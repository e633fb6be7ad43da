#include "backward_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "gtest/gtest.h"

namespace heed::testing {
namespace {

// A gradient may be 0 but for rounding, as that of a query whose only weight is 1: differences are
// then about as wrong.
void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected,
                double bound, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (size_t n = 0; n < expected.size(); ++n) {
    EXPECT_NEAR(actual[n], expected[n], bound * largest + 1e-7) << what << ", element " << n;
  }
}

}  // namespace

Backward::Backward(const Request& request, ThreadPool* pool)
    : results(PlanBackward(request).results),
      d_results(PlanBackward(request).results),
      gradients(PlanBackward(request).gradients) {
  Random random(3);
  d_results.Draw(random);
  RunForward(request, results.named(), pool);
  Run(request, pool);
}

void Backward::Run(const Request& request, ThreadPool* pool) {
  RunBackward(request, results.named(), d_results.named(), gradients.named(), pool);
}

void ExpectElementsMatch(const Request& request, double bound, const std::string& what) {
  Backward backward(request);
  GradientOracle oracle(request, backward.d_results.ByName());
  for (const auto& [name, gradient] : backward.gradients.ByName()) {
    ExpectNear(gradient, oracle.Gradient(name), bound, what + ": " + name);
  }
}

void ExpectDirectionsMatch(const Request& request, double bound, const std::string& what) {
  Backward backward(request);
  GradientOracle oracle(request, backward.d_results.ByName());
  Random random(11);
  for (const auto& [name, gradient] : backward.gradients.ByName()) {
    ExpectAlong(oracle, name, gradient, bound, random, what);
  }
}

void ExpectSameGradientsForAnyThreads(const Request& request, const std::string& what) {
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3}) {
    const std::unique_ptr<ThreadPool> pool = MakeThreadPool(threads);
    Backward backward(request, pool.get());
    for (size_t n = 0; n < backward.gradients.size(); ++n) {
      const std::vector<float>& values = backward.gradients.values(n);
      if (threads == 1) {
        first.push_back(values);
      } else {
        EXPECT_EQ(std::memcmp(values.data(), first[n].data(), values.size() * sizeof(float)), 0)
            << what << ", " << threads << " threads";
      }
    }
  }
}

std::string BackwardRefusal(const Request& request) {
  try {
    PlanBackward(request);
  } catch (const Error& error) {
    return std::string(ErrorCodeName(error.code())) + ": " + error.what();
  }
  return "";
}

}  // namespace heed::testing
