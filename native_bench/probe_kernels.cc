#include "native_bench/probe_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "native_bench/probe_kernels.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace heed::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;

// 14 chains hide a latency of 7 cycles at two multiply-adds a cycle, and fit 16 registers. The
// accumulator is a factor: as the addend, targets without a fused instruction would hoist the
// product out of the loop. Values stay near 1.
FmaRun FmaChains(int64_t rounds) {
  const Floats d;
  const auto a = hn::Set(d, 0.999f);
  const auto b = hn::Set(d, 0.001f);
  auto s0 = hn::Set(d, 1.0f), s1 = hn::Set(d, 1.1f), s2 = hn::Set(d, 1.2f), s3 = hn::Set(d, 1.3f);
  auto s4 = hn::Set(d, 1.4f), s5 = hn::Set(d, 1.5f), s6 = hn::Set(d, 1.6f), s7 = hn::Set(d, 1.7f);
  auto s8 = hn::Set(d, 1.8f), s9 = hn::Set(d, 1.9f), sa = hn::Set(d, 2.0f), sb = hn::Set(d, 2.1f);
  auto sc = hn::Set(d, 2.2f), sd = hn::Set(d, 2.3f);
  for (int64_t i = 0; i < rounds; ++i) {
    s0 = hn::MulAdd(s0, a, b), s1 = hn::MulAdd(s1, a, b), s2 = hn::MulAdd(s2, a, b);
    s3 = hn::MulAdd(s3, a, b), s4 = hn::MulAdd(s4, a, b), s5 = hn::MulAdd(s5, a, b);
    s6 = hn::MulAdd(s6, a, b), s7 = hn::MulAdd(s7, a, b), s8 = hn::MulAdd(s8, a, b);
    s9 = hn::MulAdd(s9, a, b), sa = hn::MulAdd(sa, a, b), sb = hn::MulAdd(sb, a, b);
    sc = hn::MulAdd(sc, a, b), sd = hn::MulAdd(sd, a, b);
  }
  const auto low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  const auto high =
      hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(hn::Add(sa, sb), hn::Add(sc, sd)));
  return {.flops = 2.0 * 14.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds),
          .sum = hn::ReduceSum(d, hn::Add(low, high))};
}

float Read(const float* HWY_RESTRICT data, int64_t count) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  const float* const end = data + count;
  for (; data < end; data += 4 * lanes) {
    s0 = hn::Add(s0, hn::Load(d, data));
    s1 = hn::Add(s1, hn::Load(d, data + lanes));
    s2 = hn::Add(s2, hn::Load(d, data + 2 * lanes));
    s3 = hn::Add(s3, hn::Load(d, data + 3 * lanes));
  }
  return hn::ReduceSum(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

void Triad(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, const float* HWY_RESTRICT c,
           float factor, int64_t count) {
  const Floats d;
  const auto s = hn::Set(d, factor);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    hn::Stream(hn::MulAdd(s, hn::Load(d, c + i), hn::Load(d, b + i)), d, a + i);
  }
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::bench {

HWY_EXPORT(FmaChains);
HWY_EXPORT(Read);
HWY_EXPORT(Triad);

FmaRun RunFmaChains(int64_t rounds) { return HWY_DYNAMIC_DISPATCH(FmaChains)(rounds); }

float ReadArray(const float* data, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(Read)(data, count);
}

void TriadArrays(float* a, const float* b, const float* c, float factor, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Triad)(a, b, c, factor, count);
}

}  // namespace heed::bench
#endif  // HWY_ONCE
