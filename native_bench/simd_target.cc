#include "native_bench/simd_target.h"

#include "heed/error.h"
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace heed::bench {
namespace {

// Highway's dispatch reads a cached choice: refresh it after every change. Only attention is
// compiled for AVX3_SPR; what is not runs as it does on such a processor.
void Restrict(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets == HWY_AVX3_SPR ? HWY_AVX3_SPR | HWY_AVX3 : targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace

std::vector<std::string> SupportedTargetNames() {
  std::vector<std::string> names;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

std::string ChosenTarget() {
  // Highway gives better targets lower bits.
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(usable & -usable);
}

void ForceTarget(std::string_view name) {
  UseBestTarget();
  std::string choices;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name == hwy::TargetName(target)) {
      Restrict(target);
      return;
    }
    choices += std::string(choices.empty() ? "" : ", ") + hwy::TargetName(target);
  }
  throw Error(ErrorCode::kOption, "--simd: '" + std::string(name) + "' is not one of " + choices);
}

void UseBestTarget() { Restrict(0); }

}  // namespace heed::bench
