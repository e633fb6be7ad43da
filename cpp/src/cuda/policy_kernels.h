// Which tokens a cache would hold, over a whole sequence. Plain kernels.
#ifndef HEED_SRC_CUDA_POLICY_KERNELS_H_
#define HEED_SRC_CUDA_POLICY_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/choice_kernels.h"
#include "src/cuda/kept_row_writer.h"
#include "src/cuda/policy_params.h"
#include "src/cuda/row_block.h"

namespace heed::cuda {

template <class Block>
HEED_DEVICE void RunStep(Block& block, const StreamKeepParams& p, int64_t index) {
  const int64_t position = p.positions[index / p.kept.len] + index % p.kept.len;
  int64_t end = position + 1 < p.kv_len ? position + 1 : p.kv_len;
  if (end < 0) end = 0;
  KeptRowWriter<Block>(block, p.kept).Write(index, end, [&](int64_t j) {
    return j < p.sinks || j > position - p.recent;
  });
}

// One KV head of a cache of heavy hitters. Row t keeps what it holds when token t has come.
template <class Block>
class HeavyKernel {
 public:
  HEED_DEVICE HeavyKernel(Block& block, const HeavyKeepParams& params, int64_t index)
      : row_(block),
        writer_(block, params.kept),
        p_(params),
        index_(index),
        b_(static_cast<int>(index / params.heads)),
        head_(static_cast<int>(index % params.heads)),
        sums_(params.sums + index * params.len),
        scores_(params.scores + index * params.len),
        held_(params.held + index * params.len) {}

  HEED_DEVICE void Run() {
    row_.EachKey({0, p_.len}, [&](int, int j) {
      sums_[j] = 0;
      held_[j] = 0;
    });
    HEED_NO_UNROLL for (int t = 0; t < p_.len; ++t) {
      const bool exists = t < p_.lengths[b_];
      const int forgotten = exists && t > 0 ? Forgotten(t) : -1;
      row_.EachKey({0, 1}, [&](int, int) {
        held_[t] = 1;
        if (forgotten >= 0) held_[forgotten] = 0;
      });
      writer_.Write(index_ * p_.len + t, exists ? t + 1 : 0,
                    [&](int64_t j) { return held_[j] != 0; });
      for (int g = 0; exists && g < p_.group; ++g) AddWeights(t, g);
    }
  }

 private:
  // The token that has to go before t comes, or -1: of equal sums the later one. A token comes at a
  // time, so that there is never more than one.
  HEED_DEVICE int Forgotten(int t) {
    const int64_t recent_begin = t - (p_.recent - 1);
    const RowKeys older = {0, static_cast<int32_t>(recent_begin > 0 ? recent_begin : 0)};
    const double count = row_.SumKeys(older, [&](int, int j) { return held_[j] != 0 ? 1.0 : 0.0; });
    if (count <= static_cast<double>(p_.heavy)) return -1;
    // NaN is the heaviest.
    const auto lightness = [&](int j) {
      const double sum = sums_[j] == sums_[j] ? sums_[j] : HUGE_VAL;
      return held_[j] != 0 ? -sum : -HUGE_VAL;
    };
    const double lightest = row_.MaxOf(older, [&](int, int j) { return lightness(j); });
    const double last = row_.MaxOf(older, [&](int, int j) {
      return held_[j] != 0 && lightness(j) == lightest ? static_cast<double>(j) : -1.0;
    });
    return static_cast<int>(last);
  }

  HEED_DEVICE float Score(int t, int head, int j) const {
    const double dot = ExactDot(p_.q.Row(b_, head, t), p_.k.Row(b_, head_, j), p_.width);
    const float score = static_cast<float>(dot * static_cast<double>(p_.scale));
    return p_.softcap == 0 ? score : p_.softcap * tanhf(score / p_.softcap);
  }

  // What token t gives to those that are held, by query head g of the group.
  HEED_DEVICE void AddWeights(int t, int g) {
    const int head = head_ * p_.group + g;
    const RowKeys keys = {0, t + 1};
    row_.EachKey(keys,
                 [&](int, int j) { scores_[j] = held_[j] != 0 ? Score(t, head, j) : -HUGE_VALF; });
    float max = row_.MaxKeys(keys, [&](int, int j) { return scores_[j]; });
    const float sink = p_.sinks == nullptr ? -HUGE_VALF : p_.sinks[head];
    if (sink > max) max = sink;
    const auto part = [&](float score) { return score == -HUGE_VALF ? 0.0f : expf(score - max); };
    const double sum =
        part(sink) + row_.SumKeys(keys, [&](int, int j) { return part(scores_[j]); });
    row_.EachKey(keys, [&](int, int j) {
      if (held_[j] == 0 || sum == 0) return;
      sums_[j] += static_cast<double>(static_cast<float>(part(scores_[j]) / sum));
    });
  }

  RowBlock<Block> row_;
  KeptRowWriter<Block> writer_;
  const HeavyKeepParams& p_;
  int64_t index_;
  int b_, head_;
  double* sums_;
  float* scores_;
  uint8_t* held_;
};

template <class Block>
HEED_DEVICE void RunStep(Block& block, const HeavyKeepParams& p, int64_t index) {
  HeavyKernel<Block>(block, p, index).Run();
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_POLICY_KERNELS_H_
