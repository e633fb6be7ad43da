#include "simd_targets.h"

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "oracle_memo.h"

namespace heed::testing {

std::vector<int64_t> RunnableTargets() {
  std::vector<int64_t> targets;
  // HWY_TARGETS: those that the library is compiled for, attention's AVX3_SPR included.
  const int64_t runnable = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t rest = runnable; rest != 0; rest &= rest - 1) targets.push_back(rest & -rest);
  return targets;
}

std::string TargetLabel(const ::testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}

std::string WithoutTarget(const ::testing::TestInfo& test) {
  const std::string name = std::string(test.test_suite_name()) + "." + test.name();
  for (const int64_t target : RunnableTargets()) {
    const std::string end = std::string("/") + hwy::TargetName(target);
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  }
  return name;
}

void UseTarget(int64_t target) {
  // What is not compiled for AVX3_SPR runs as it does on such a processor.
  hwy::SetSupportedTargetsForTest(target == HWY_AVX3_SPR ? HWY_AVX3_SPR | HWY_AVX3 : target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void OnEveryTarget::SetUp() {
  KeepAnswersOf(WithoutTarget(*::testing::UnitTest::GetInstance()->current_test_info()));
  UseTarget(GetParam());
}

void OnEveryTarget::TearDown() {
  StopKeepingAnswers();
  UseTarget(0);
}

}  // namespace heed::testing
