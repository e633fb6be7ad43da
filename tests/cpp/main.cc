// Runs the tests. Of several processes that share them (GTEST_TOTAL_SHARDS) each has whole tests,
// on all SIMD targets, where GoogleTest would give every target to another process: what the oracle
// has said is asked once (oracle_memo.h).
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

int64_t NumberIn(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

void Unset(const char* variable) {
#if defined(_WIN32)
  _putenv_s(variable, "");
#else
  unsetenv(variable);
#endif
}

// The names of tests that other processes run: every `total`-th test is this one's, from `own`.
std::vector<std::string> TestsOfOthers(int64_t total, int64_t own) {
  std::vector<std::string> others;
  std::string last;
  int64_t place = -1;
  const ::testing::UnitTest& unit = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < unit.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *unit.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string whole = WithoutTarget(test);
      if (whole != last) ++place;
      last = whole;
      if (place % total != own) others.push_back(std::string(suite.name()) + "." + test.name());
    }
  }
  return others;
}

// Takes the tests of others out of the filter.
void TakeOwnShard() {
  const int64_t total = NumberIn("GTEST_TOTAL_SHARDS", 1);
  if (total <= 1) return;
  std::string filter = ::testing::GTEST_FLAG(filter);
  filter += filter.find('-') == std::string::npos ? "-" : ":";
  for (const std::string& name : TestsOfOthers(total, NumberIn("GTEST_SHARD_INDEX", 0))) {
    filter += name + ":";
  }
  ::testing::GTEST_FLAG(filter) = filter;
  Unset("GTEST_TOTAL_SHARDS");
  Unset("GTEST_SHARD_INDEX");
}

}  // namespace
}  // namespace heed::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  heed::testing::TakeOwnShard();
  return RUN_ALL_TESTS();
}
