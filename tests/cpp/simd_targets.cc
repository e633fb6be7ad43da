#include "simd_targets.h"

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace heed::testing {

std::vector<int64_t> RunnableTargets() {
  std::vector<int64_t> targets;
  // HWY_TARGETS: the library and its tests are compiled with the same list.
  const int64_t runnable = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t rest = runnable; rest != 0; rest &= rest - 1) targets.push_back(rest & -rest);
  return targets;
}

std::string TargetLabel(const ::testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}

void OnEveryTarget::SetUp() {
  hwy::SetSupportedTargetsForTest(GetParam());
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void OnEveryTarget::TearDown() {
  hwy::SetSupportedTargetsForTest(0);  // 0: back to what the machine has
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace heed::testing
