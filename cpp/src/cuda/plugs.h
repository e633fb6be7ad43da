// The sockets on the device, one number at a time: what docs/semantics.md says of softcap, ALiBi,
// normalisers, sinks and dropout. Scores are natural (not in base 2); a hidden key has -inf.
#ifndef HEED_SRC_CUDA_PLUGS_H_
#define HEED_SRC_CUDA_PLUGS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"

namespace heed::cuda {

inline constexpr float kMinusInfinity = -HUGE_VALF;
inline constexpr float kLog2E = 1.44269504f;

// 2^x. "ex2" errs by 2 units of the last place at most on the device, and results below 2^-126 are
// 0.
HEED_DEVICE float PowerOfTwo(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
HEED_DEVICE float Exp(float x) { return PowerOfTwo(x * kLog2E); }

// What softmax subtracts: the largest score, or nothing before the first visible key.
HEED_DEVICE float Subtrahend(float row_max) { return row_max == kMinusInfinity ? 0.0f : row_max; }

HEED_DEVICE bool HasDenominator(Normalize normalize) {
  return normalize == Normalize::kSoftmax || normalize == Normalize::kSoftmax1;
}

HEED_DEVICE float Capped(const AttentionParams& p, float score) {
  return p.softcap == 0 ? score : p.softcap * tanhf(score / p.softcap);
}

// A visible score before the biases: scaled, capped.
HEED_DEVICE float ScaledScore(const AttentionParams& p, float dot) {
  if (p.normalize == Normalize::kAverage) dot = 0;  // not even NaN matters
  return Capped(p, dot * p.scale);
}

// Calls body(weight), where weight(score) is the weight of a visible score and keys do not compete.
template <class Body>
HEED_DEVICE void WithPointwiseWeight(const AttentionParams& p, const Body& body) {
  const auto positive = [](float score) { return score <= 0 ? 0.0f : score; };  // NaN stays
  switch (p.normalize) {
    case Normalize::kSigmoid:
      return body([&](float score) {
        // Of the two forms the one whose exponential does not overflow.
        const float x = score + p.sigmoid_bias;
        const float e = Exp(-fabsf(x));
        return x != x ? x : (x >= 0 ? 1.0f : e) / (1 + e);
      });
    case Normalize::kRelu:
      return body(positive);
    case Normalize::kReluSquared:
      return body([&](float score) { return positive(score) * positive(score); });
    default:  // kAverage
      return body([](float) { return 1.0f; });
  }
}
HEED_DEVICE float PointwiseWeight(const AttentionParams& p, float score) {
  float result = 0;
  WithPointwiseWeight(p, [&](const auto& weight) { result = weight(score); });
  return result;
}

// How a row ends: what its sums of values are multiplied by, and its lse.
struct RowEnd {
  float factor;
  float lse;
  bool empty;
};

HEED_DEVICE RowEnd FinishPointwise(const AttentionParams& p, const RowState& row) {
  if (row.sum == 0) return {0, kMinusInfinity, true};
  if (p.normalize == Normalize::kSigmoid || p.length_power == 0) return {1, 0, false};
  return {p.length_power == 1 ? 1 / row.sum : powf(row.sum, -p.length_power), 0, false};
}

// Softmax, with the sink of the head or that of softmax1, 0.
HEED_DEVICE RowEnd FinishSoftmax(const AttentionParams& p, int head, const RowState& row) {
  if (row.max == kMinusInfinity && row.sum == 0) return {0, kMinusInfinity, true};
  float sink = kMinusInfinity;
  if (p.normalize == Normalize::kSoftmax1) sink = 0;
  if (p.sinks != nullptr) sink = p.sinks[head];
  const float highest = Subtrahend(fmaxf(row.max, sink));
  const float shrink = Exp(row.max - highest);
  const float sum = row.sum * shrink + Exp(sink - highest);
  return {shrink / sum, highest + logf(sum), false};
}

HEED_DEVICE RowEnd FinishRow(const AttentionParams& p, int head, const RowState& row) {
  return HasDenominator(p.normalize) ? FinishSoftmax(p, head, row) : FinishPointwise(p, row);
}

// One round of Philox-4x32 (Salmon et al. 2011, section 4.3); see heed/attention.h, Dropout.
HEED_DEVICE void PhiloxRound(uint32_t (&counter)[4], const uint32_t (&key)[2]) {
  const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
  const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
  counter[0] = static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0];
  counter[1] = static_cast<uint32_t>(b);
  counter[2] = static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1];
  counter[3] = static_cast<uint32_t>(a);
}

// The random words of keys [4 n, 4 n + 4), n = key / 4.
HEED_DEVICE void DropoutWords(const DropoutRule& rule, int b, int head, int query, int key,
                              uint32_t (&words)[4]) {
  uint32_t round_key[2] = {rule.key[0], rule.key[1]};
  words[0] = static_cast<uint32_t>(b);
  words[1] = static_cast<uint32_t>(head);
  words[2] = static_cast<uint32_t>(query);
  words[3] = static_cast<uint32_t>(key) / 4;
  HEED_UNROLL for (int round = 0; round < 10; ++round) {
    PhiloxRound(words, round_key);
    round_key[0] += 0x9E3779B9u;
    round_key[1] += 0xBB67AE85u;
  }
}

// A float in a storage type.
HEED_DEVICE void StoreAs(DType dtype, char* row, int d, float x) {
  if (dtype == DType::kFloat32) reinterpret_cast<float*>(row)[d] = x;
  if (dtype == DType::kFloat16) reinterpret_cast<Float16*>(row)[d] = ToFloat16(x);
  if (dtype == DType::kBFloat16) reinterpret_cast<BFloat16*>(row)[d] = ToBFloat16(x);
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_PLUGS_H_
