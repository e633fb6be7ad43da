#include "selective_case.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "heed/attention.h"
#include "heed/cost.h"
#include "heed/gradient.h"
#include "request_tensors.h"
#include "src/parallel/dry_run.h"

namespace heed::testing {
namespace {

// NaN and infinities must be where they are expected.
void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected,
                double error, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 1;
  for (const double x : expected) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  for (size_t n = 0; n < expected.size(); ++n) {
    const bool same =
        actual[n] == expected[n] || (std::isnan(actual[n]) && std::isnan(expected[n]));
    ASSERT_TRUE(same || std::abs(actual[n] - expected[n]) <= error * largest)
        << what << ", element " << n << ": " << actual[n] << " instead of " << expected[n];
  }
}

}  // namespace

std::vector<SelectiveSizes> SelfSizes() {
  return {{1, 1, 1, 1, 1, 1, 1},    {1, 2, 1, 5, 5, 4, 3},      {2, 4, 2, 63, 63, 16, 16},
          {1, 3, 1, 65, 65, 17, 9}, {2, 2, 2, 150, 150, 8, 20}, {1, 4, 1, 300, 300, 24, 24}};
}

std::vector<SelectiveSizes> CrossSizes() {
  std::vector<SelectiveSizes> sizes = SelfSizes();
  sizes.push_back({2, 2, 1, 1, 90, 8, 8});
  sizes.push_back({1, 2, 2, 37, 310, 12, 5});
  return sizes;
}

std::vector<float> Normals(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.Normal();
  return values;
}

RequestBuilder SelectiveRequest(const std::string& id, const SelectiveSizes& s, uint64_t seed) {
  RequestBuilder builder(id);
  builder
      .Floats("q", {s.batch, s.num_heads, s.q_len, s.head_dim},
              Normals(s.batch * s.num_heads * s.q_len * s.head_dim, seed))
      .Floats("k", {s.batch, s.num_kv_heads, s.kv_len, s.head_dim},
              Normals(s.batch * s.num_kv_heads * s.kv_len * s.head_dim, seed + 1))
      .Floats("v", {s.batch, s.num_kv_heads, s.kv_len, s.head_dim_v},
              Normals(s.batch * s.num_kv_heads * s.kv_len * s.head_dim_v, seed + 2));
  return builder;
}

void ExpectChoiceMatchesOracle(const Request& request, const std::string& what, double factor) {
  const Values actual = RunByName(request);
  const Values expected = RunOracle(request);
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) {
    ExpectNear(actual.at(name), values, factor * kAttentionMaxError, what + ": " + name);
  }
}

void ExpectSameOutput(const Request& request, const Request& other, double factor) {
  ExpectNear(RunByName(request).at("output"), RunByName(other).at("output"),
             factor * kAttentionMaxError, request.id + " and " + other.id);
}

int64_t ScratchBytes(const Request& request) {
  return EstimateCost(request, 2).scratch_bytes.value();
}

int64_t BackwardScratchBytes(const Request& request) {
  const BackwardPlan plan = PlanBackward(request);
  Tensors results(plan.results), d_results(plan.results), gradients(plan.gradients);
  DryRun dry;
  IdlePool pool(2);
  RunBackward(request, results.named(), d_results.named(), gradients.named(), &pool);
  return dry.most_bytes();
}

}  // namespace heed::testing
