// Weighted means that are no call of attention. Plain kernels: a block has a row.
#ifndef HEED_SRC_CUDA_WEIGHTED_KERNELS_H_
#define HEED_SRC_CUDA_WEIGHTED_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/head_place.h"
#include "src/cuda/row_block.h"
#include "src/cuda/weighted_params.h"

namespace heed::cuda {

HEED_DEVICE float LeakyRelu(float x, float slope) { return x < 0 ? x * slope : x; }

// One node of a graph.
template <class Block>
class NodeKernel {
 public:
  HEED_DEVICE NodeKernel(Block& block, const GraphParams& params, int64_t index)
      : block_(block), row_(block), p_(params), place_(index, params.len, params.heads) {
    edges_ = {p_.begin[place_.within], p_.begin[place_.within + 1]};
    const int64_t head = int64_t{place_.b} * p_.heads + place_.h;
    scores_ = p_.scores + head * p_.num_edges;
    weight_ = p_.score_weight + int64_t{place_.h} * p_.head_dim * (p_.is_gat ? 2 : 1);
    query_ = p_.q.Row(place_.b, place_.h, place_.within);
  }

  // An edge whose score is -infinity counts as not there.
  HEED_DEVICE void Run() {
    FillScores();
    const float max = row_.MaxKeys(edges_, [&](int, int n) { return scores_[n]; });
    const double count = row_.SumKeys(edges_, [&](int, int n) { return IsThere(n) ? 1.0 : 0.0; });
    row_.EachKey(edges_, [&](int, int n) {
      if (IsThere(n)) scores_[n] = expf(scores_[n] - max);
    });
    const double sum =
        row_.SumKeys(edges_, [&](int, int n) { return IsThere(n) ? scores_[n] : 0.0f; });
    const float factor = count == 0 ? 0.0f : static_cast<float>(1 / sum);
    block_.Each([&](int t) {
      if (t == 0 && p_.lse.data != nullptr) {
        *p_.lse.Row(place_.b, place_.h, place_.within) =
            count == 0 ? -HUGE_VALF : max + static_cast<float>(log(sum));
      }
    });
    StoreResults(factor);
  }

 private:
  HEED_DEVICE bool IsThere(int n) const { return scores_[n] != -HUGE_VALF; }
  HEED_DEVICE const float* RowOf(const FloatRows<const float>& rows, int n) const {
    return rows.Row(place_.b, place_.h / p_.group, p_.sources[n]);
  }

  HEED_DEVICE void FillScores() {
    float target = 0;
    if (p_.is_gat) {
      target = static_cast<float>(row_.SumKeys({0, p_.head_dim}, [&](int, int d) {
        return static_cast<double>(weight_[d]) * static_cast<double>(query_[d]);
      }));
    }
    row_.EachKey(edges_, [&](int, int n) {
      const float* key = RowOf(p_.k, n);
      float sum = 0;
      HEED_NO_UNROLL for (int d = 0; d < p_.head_dim; ++d) {
        sum += p_.is_gat ? weight_[p_.head_dim + d] * key[d]
                         : weight_[d] * LeakyRelu(query_[d] + key[d], p_.negative_slope);
      }
      scores_[n] = p_.is_gat ? LeakyRelu(target + sum, p_.negative_slope) : sum;
    });
  }

  HEED_DEVICE void StoreResults(float factor) {
    if (p_.weights.data != nullptr) {
      row_.EachKey(edges_, [&](int, int n) {
        *p_.weights.Row(place_.b, place_.h, p_.edges[n]) = IsThere(n) ? factor * scores_[n] : 0.0f;
      });
    }
    block_.Each([&](int t) {
      for (int d = t; d < p_.width; d += kBlockThreads) {
        double sum = 0;
        HEED_NO_UNROLL for (int n = edges_.begin; n < edges_.end; ++n) {
          if (!IsThere(n)) continue;
          sum += static_cast<double>(scores_[n]) * static_cast<double>(RowOf(p_.v, n)[d]);
        }
        p_.output.Row(place_.b, place_.h, place_.within)[d] = factor * static_cast<float>(sum);
      }
    });
  }

  Block& block_;
  RowBlock<Block> row_;
  const GraphParams& p_;
  HeadPlace place_;
  RowKeys edges_;
  float* scores_;
  const float *weight_, *query_;
};

template <class Block>
HEED_DEVICE void RunStep(Block& block, const GraphParams& p, int64_t index) {
  NodeKernel<Block>(block, p, index).Run();
}

// The bias of a key; -infinity hides it.
HEED_DEVICE float ChannelBias(const ChannelParams& p, const HeadPlace& place, int j) {
  const int i = place.within;
  if (p.seen.Row(place.b, place.h, i)[j] == -HUGE_VALF) return -HUGE_VALF;
  if (p.bias.data == nullptr) return 0;
  const int64_t distance = p.positions[place.b] + i - j;
  const bool far = p.local > 0 && (distance >= p.local || -distance >= p.local);
  return far ? 0.0f : p.bias.At(place.b, place.h, i, j);
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const ChannelParams& p, int64_t index) {
  const HeadPlace place(index, p.len, p.heads);
  const int kv_head = place.h / p.group;
  const auto exponent = [&](int j, int c) {
    const float bias = ChannelBias(p, place, j);
    return bias == -HUGE_VALF ? bias : p.k.Row(place.b, kv_head, j)[c] + bias;
  };
  block.Each([&](int t) {
    for (int c = t; c < p.width; c += kBlockThreads) {
      float max = -HUGE_VALF;
      HEED_NO_UNROLL for (int j = 0; j < p.kv_len; ++j) {
        const float x = exponent(j, c);
        if (x > max) max = x;
      }
      double sum = 0, values = 0;
      HEED_NO_UNROLL for (int j = 0; j < p.kv_len; ++j) {
        const float x = exponent(j, c);
        if (x == -HUGE_VALF) continue;
        const double weight = static_cast<double>(expf(x - max));
        sum += weight;
        values += weight * static_cast<double>(p.v.Row(place.b, kv_head, j)[c]);
      }
      const float q = p.q.Row(place.b, place.h, place.within)[c];
      const double gate = 1 / (1 + exp(-static_cast<double>(q)));
      p.output.Row(place.b, place.h, place.within)[c] =
          sum == 0 ? 0.0f : static_cast<float>(values / sum * gate);
    }
  });
}

// What a row's own keys and the extra ones have of its softmax.
struct ExtraShares {
  double lse, own, bias, zero;
};

HEED_DEVICE ExtraShares SharesOf(double own, double bias, double zero) {
  constexpr double kNone = -HUGE_VAL;
  double top = own;
  if (bias > top || bias != bias) top = bias;  // a NaN stays
  if (zero > top) top = zero;
  const auto part = [top](double score) { return score == kNone ? 0.0 : exp(score - top); };
  const double sum = part(own) + part(bias) + part(zero);
  return {top + log(sum), part(own) / sum, part(bias) / sum, part(zero) / sum};
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const ExtraKeyParams& p, int64_t index) {
  const HeadPlace place(index, p.len, p.heads);
  const int b = place.b, h = place.h, i = place.within, kv_head = h / p.group;
  RowBlock<Block> row(block);
  double bias_score = -HUGE_VAL;
  if (p.bias_k != nullptr) {
    bias_score = p.scale * row.SumKeys({0, p.head_dim}, [&](int, int d) {
      return static_cast<double>(p.q.Row(b, h, i)[d]) *
             static_cast<double>(p.bias_k[int64_t{kv_head} * p.head_dim + d]);
    });
    if (p.softcap != 0) bias_score = p.softcap * tanh(bias_score / p.softcap);
  }
  double own = static_cast<double>(*p.lse.Row(b, h, i));
  // With the extra keys the row is not empty, so its sink counts.
  if (own == -HUGE_VAL && p.sinks != nullptr) own = static_cast<double>(p.sinks[h]);
  const ExtraShares shares = SharesOf(own, bias_score, p.adds_zero ? 0.0 : -HUGE_VAL);
  row.EachKey({0, p.width}, [&](int, int d) {
    float* x = p.output.Row(b, h, i) + d;
    double y = own == -HUGE_VAL ? 0.0 : shares.own * static_cast<double>(*x);
    if (p.bias_v != nullptr) {
      y += shares.bias * static_cast<double>(p.bias_v[int64_t{kv_head} * p.width + d]);
    }
    *x = static_cast<float>(y);
  });
  if (p.weights.data != nullptr) {
    float* weights = p.weights.Row(b, h, i);
    row.EachKey({0, p.kv_len}, [&](int, int j) {
      if (weights[j] != 0) weights[j] = static_cast<float>(shares.own * weights[j]);
    });
  }
  block.Each([&](int t) {
    if (t != 0) return;
    *p.lse.Row(b, h, i) = static_cast<float>(shares.lse);
    if (p.weights.data == nullptr) return;
    float* next = p.weights.Row(b, h, i) + p.kv_len;
    if (p.bias_k != nullptr) *next++ = static_cast<float>(shares.bias);
    if (p.adds_zero) *next = static_cast<float>(shares.zero);
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_WEIGHTED_KERNELS_H_
