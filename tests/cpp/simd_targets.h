// Runs a test suite once for each SIMD target that was compiled and that this machine can run.
#ifndef HEED_TESTS_SIMD_TARGETS_H_
#define HEED_TESTS_SIMD_TARGETS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace heed::testing {

// Highway target bits, one per entry, best first.
std::vector<int64_t> RunnableTargets();

// The name that the test output shows: EveryTarget/Suite.Test/AVX2.
std::string TargetLabel(const ::testing::TestParamInfo<int64_t>& info);

// Suite and name of a test, without the target where it ends with one.
std::string WithoutTarget(const ::testing::TestInfo& test);

// Lets the library use that target only; 0: back to what the machine has.
void UseTarget(int64_t target);

// Base of suites that run on every target: while a test runs, the library uses that target only,
// and what the oracle says is kept for the other targets.
class OnEveryTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override;
  void TearDown() override;
};

#define HEED_ON_EVERY_TARGET(Suite) \
  INSTANTIATE_TEST_SUITE_P(EveryTarget, Suite, ::testing::ValuesIn(RunnableTargets()), TargetLabel)

}  // namespace heed::testing

#endif  // HEED_TESTS_SIMD_TARGETS_H_
