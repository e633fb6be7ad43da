#include "src/layers/backward_extra_keys.h"

#include <cmath>

#include "src/message.h"
#include "src/parallel/dry_run.h"

namespace heed {
namespace {

class ExtraKeyWay {
 public:
  ExtraKeyWay(const MultiHeadShape& s, const MultiHeadWeights& w, const MultiHeadOptions& o,
              const ExtraKeyRows& rows, const TensorView<float>& d_q)
      : s_(s), w_(w), o_(o), rows_(rows), d_q_(d_q), group_(s.num_heads / s.num_kv_heads) {
    sums_.resize(static_cast<size_t>(s.num_kv_heads * (s.head_dim + s.head_dim_v)));
  }

  double* KeySums(int64_t kv_head) { return sums_.data() + kv_head * s_.head_dim; }
  double* ValueSums(int64_t kv_head) {
    return sums_.data() + s_.num_kv_heads * s_.head_dim + kv_head * s_.head_dim_v;
  }

  // All rows of the heads that share a key, in ascending order.
  void AddHeads(int64_t kv_head) {
    for (int64_t b = 0; b < s_.batch; ++b) {
      for (int64_t h = kv_head * group_; h < (kv_head + 1) * group_; ++h) {
        if (rows_.left_out[static_cast<size_t>(h)] != 0) continue;
        for (int64_t i = 0; i < s_.q_len; ++i) AddRow(kv_head, b, h, i);
      }
    }
  }

 private:
  void AddRow(int64_t kv_head, int64_t b, int64_t h, int64_t i) {
    const float* q = &rows_.q(b, h, i, 0);
    const float* d_head = &rows_.d_heads(b, h, i, 0);
    const float* head = &rows_.heads(b, h, i, 0);
    const float* k = w_.bias_k.data() + kv_head * s_.head_dim;
    const float* v = w_.bias_v.data() + kv_head * s_.head_dim_v;
    double along = rows_.d_lse.has_value() ? rows_.d_lse(b, h, i, 0) : 0;
    for (int64_t d = 0; d < s_.head_dim_v; ++d) {
      along += static_cast<double>(d_head[d]) * (static_cast<double>(v[d]) - head[d]);
    }
    const double score = ExtraKeyScore(s_, w_, o_.attention, q, kv_head);
    const double weight = std::exp(score - rows_.lse(b, h, i, 0));
    const double slope = HeadScale(s_, o_.attention) * weight * along * CapSlope(score);
    double* d_value = ValueSums(kv_head);
    double* d_key = KeySums(kv_head);
    for (int64_t d = 0; d < s_.head_dim_v; ++d) d_value[d] += weight * d_head[d];
    for (int64_t d = 0; d < s_.head_dim; ++d) {
      d_key[d] += slope * q[d];
      d_q_(b, h, i, d) += static_cast<float>(slope * k[d]);
    }
  }

  double CapSlope(double score) const {
    if (!o_.attention.softcap) return 1;
    const double share = score / *o_.attention.softcap;
    return 1 - share * share;
  }

  const MultiHeadShape& s_;
  const MultiHeadWeights& w_;
  const MultiHeadOptions& o_;
  const ExtraKeyRows& rows_;
  const TensorView<float>& d_q_;
  const int64_t group_;
  ScratchVector<double> sums_;
};

}  // namespace

void ExtraKeysBackward(const MultiHeadShape& s, const MultiHeadWeights& weights,
                       const MultiHeadOptions& options, const ExtraKeyRows& rows,
                       const TensorView<float>& d_q, std::span<float> d_bias_k,
                       std::span<float> d_bias_v, ThreadPool& pool) {
  ExtraKeyWay way(s, weights, options, rows, d_q);
  pool.Run(s.num_kv_heads, [&](int64_t kv_head, int) {
    way.AddHeads(kv_head);
    const auto write = [kv_head](const double* sums, int64_t dim, std::span<float> to) {
      for (int64_t d = 0; d < dim && !to.empty(); ++d) {
        to[static_cast<size_t>(kv_head * dim + d)] = static_cast<float>(sums[d]);
      }
    };
    write(way.KeySums(kv_head), s.head_dim, d_bias_k);
    write(way.ValueSums(kv_head), s.head_dim_v, d_bias_v);
  });
}

}  // namespace heed
