// Which instruction sets Highway was compiled for, which this machine runs, which one is chosen.
#ifndef HEED_NATIVE_BENCH_SIMD_TARGET_H_
#define HEED_NATIVE_BENCH_SIMD_TARGET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heed::bench {

// Names of the targets that are both compiled in and supported here, best first.
std::vector<std::string> SupportedTargetNames();

// The name of the target that dynamic dispatch uses now.
std::string ChosenTarget();

// Restricts every Highway kernel of this process, heed's included, to one target. Throws
// heed::Error(kOption) that lists the choices when it is not among SupportedTargetNames(). Not to
// be called while kernels run.
void ForceTarget(std::string_view name);

// Lifts the restriction.
void UseBestTarget();

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_SIMD_TARGET_H_
