// Every row of the registry, with random combinations of its inputs and parameters, against the
// oracle: the same results within the declared bounds, the same refusals, the same bits for any
// number of threads.
//
// HEED_PROPERTY_SEED=<n> runs that one draw of each row; HEED_FULL_TESTS=1 runs many times as many.
#include <algorithm>
#include <cstdlib>

#include "attention_accuracy.h"
#include "every_row.h"
#include "gtest/gtest.h"
#include "heed/reference.h"
#include "hwy/targets.h"
#include "random_request.h"
#include "request_bounds.h"
#include "request_outcome.h"
#include "simd_targets.h"
#include "tile_units.h"

namespace heed::testing {
namespace {

constexpr uint64_t kDraws = 60, kFullDraws = 2000;

void ExpectShapesMatch(const Request& request, const std::vector<reference::Result>& expected) {
  const std::vector<OutputSpec> specs = PlanOutputs(request);
  ASSERT_EQ(specs.size(), expected.size());
  for (const OutputSpec& spec : specs) {
    const auto at = std::ranges::find(expected, spec.name, &reference::Result::name);
    ASSERT_NE(at, expected.end()) << spec.name;
    ASSERT_EQ(spec.rank, at->rank) << spec.name;
    for (size_t axis = 0; axis < static_cast<size_t>(spec.rank); ++axis) {
      ASSERT_EQ(spec.shape[axis], at->shape[axis]) << spec.name << " axis " << axis;
    }
  }
}

class EveryRow : public ::testing::TestWithParam<std::string_view> {
 protected:
  void TearDown() override { UseTarget(0); }

  // Returns whether the draw was accepted.
  bool Check(const DrawnRequest& draw, bool wild) {
    const Request request = draw.request();
    std::vector<reference::Result> results;
    const Refusal oracle = Try([&] { results = reference::Run(request); });
    const Refusal heed = Try([&] { PlanOutputs(request); });
    // Of several faults each may name another.
    const bool alike = wild ? heed.code.empty() == oracle.code.empty() : heed.code == oracle.code;
    EXPECT_TRUE(alike) << "heed: " << heed.text << "\noracle: " << oracle.text;
    if (heed.code != "" || oracle.code != "") return false;
    ExpectShapesMatch(request, results);
    Values expected;
    for (const reference::Result& result : results) expected[result.name] = result.values;
    const auto bounds = BoundsOf(draw, expected);
    for (const int64_t target : RunnableTargets()) {
      SCOPED_TRACE(hwy::TargetName(target));
      UseTarget(target);
      OnEveryTileUnit(target, [&] { CheckResults(request, expected, bounds); });
    }
    return true;
  }

  void CheckResults(const Request& request, const Values& expected,
                    const std::map<std::string, std::vector<double>>& bounds) {
    const Outcome one = RunOn(request, pools_[0].get());
    for (const auto& [name, values] : expected) {
      const std::vector<double>& actual = one.values.at(name);
      ExpectWithin(std::vector<float>(actual.begin(), actual.end()), values, bounds.at(name), name);
    }
    for (size_t n = 1; n < 3; ++n) {
      EXPECT_EQ(one.bytes, RunOn(request, pools_[n].get()).bytes) << n + 1 << " threads";
    }
  }

  std::unique_ptr<ThreadPool> pools_[3] = {MakeThreadPool(1), MakeThreadPool(2), MakeThreadPool(3)};
};

INSTANTIATE_TEST_SUITE_P(Registry, EveryRow, ::testing::ValuesIn(AllRows()), RowName);

TEST_P(EveryRow, DoesWhatTheOracleDoes) {
  const Mechanism& row = *FindMechanism(GetParam());
  const char* only = std::getenv("HEED_PROPERTY_SEED");
  const char* full = std::getenv("HEED_FULL_TESTS");
  const bool many = full != nullptr && std::string_view(full) != "0";
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 0;
  const uint64_t last = only != nullptr ? first + 1 : many ? kFullDraws : kDraws;
  uint64_t tidy = 0, accepted = 0;
  for (uint64_t seed = first; seed < last; ++seed) {
    const Draw draw = seed % 10 == 0 ? Draw::kLeast : seed % 5 == 4 ? Draw::kWild : Draw::kTidy;
    const DrawnRequest request = DrawRequest(row, draw, seed);
    SCOPED_TRACE("HEED_PROPERTY_SEED=" + std::to_string(seed) + ": " + request.Describe());
    const bool ran = Check(request, draw == Draw::kWild);
    if (draw != Draw::kWild) {
      ++tidy;
      accepted += ran ? 1 : 0;
    }
    if (HasFailure()) return;  // one broken draw says enough
  }
  // Draws that are refused prove little.
  EXPECT_GE(4 * accepted, 3 * tidy) << accepted << " of " << tidy << " tidy draws were accepted";
}

}  // namespace
}  // namespace heed::testing
