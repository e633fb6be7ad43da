// Modify plug: a dense bias, broadcast to [batch, num_heads, q_len, kv_len] and added to the score.
// A bias of exactly -inf hides the cell, whatever the score is.
#if defined(HEED_EXACT_MODIFY_BIAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_MODIFY_BIAS_INL_H_
#undef HEED_EXACT_MODIFY_BIAS_INL_H_
#else
#define HEED_EXACT_MODIFY_BIAS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "src/exact/keep/keep-inl.h"
#include "src/exact/modify/modify-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Bias final : public Modify {
 public:
  explicit Bias(const TensorView<const float>& bias) : bias_(bias) {}

  void Apply(ScoreTile& tile) const override {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const ColumnRange columns = VisibleColumns(tile, r);
      if (columns.begin == columns.end) continue;
      const Row& row = tile.rows[r];
      const float* cells =
          bias_.data + tile.batch * bias_.strides[0] + row.head * bias_.strides[1] +
          row.query * bias_.strides[2] +
          (tile.key_begin + static_cast<int64_t>(columns.begin)) * bias_.strides[3];
      float* scores = tile.row_scores(r) + columns.begin;
      const size_t count = columns.end - columns.begin;
      if (bias_.strides[3] == 0) {
        AddOne(*cells, count, scores);
      } else {
        AddRow(cells, count, scores);
      }
    }
  }

 private:
  // s + bias, or -inf where the bias is -inf.
  static VF Sum(DF d, VF s, VF bias) {
    const VF minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
    return hn::IfThenElse(hn::Eq(bias, minus_inf), minus_inf, hn::Add(s, bias));
  }

  static void AddRow(const float* HWY_RESTRICT bias, size_t count, float* HWY_RESTRICT scores) {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    size_t c = 0;
    for (; c + lanes <= count; c += lanes) {
      hn::StoreU(Sum(d, hn::LoadU(d, scores + c), hn::LoadU(d, bias + c)), d, scores + c);
    }
    if (c == count) return;
    const size_t rest = count - c;
    const VF sum = Sum(d, hn::LoadN(d, scores + c, rest), hn::LoadN(d, bias + c, rest));
    hn::StoreN(sum, d, scores + c, rest);
  }

  static void AddOne(float bias, size_t count, float* HWY_RESTRICT scores) {
    if (bias == -std::numeric_limits<float>::infinity()) {
      HideColumns(scores, 0, count);
    } else {
      for (size_t c = 0; c < count; ++c) scores[c] += bias;
    }
  }

  TensorView<const float> bias_;
};

// The gradient of the bias: adds the gradients of the tile's scores, which lie as those do, to the
// cells of d_bias, which broadcasts by strides of 0. Those of hidden cells are 0.
inline void AddBiasGradient(const ScoreTile& tile, const float* gradients,
                            const TensorView<float>& d_bias) {
  const DF d;
  for (size_t r = 0; r < tile.num_rows; ++r) {
    const Row& row = tile.rows[r];
    const size_t end = std::min(tile.last, tile.num_keys);
    const float* HWY_RESTRICT from = gradients + r * kTileKeys;
    float* HWY_RESTRICT to = &d_bias(tile.batch, row.head, row.query, 0);
    if (d_bias.strides[3] == 0) {
      double sum = 0;
      for (size_t c = tile.first; c < end; ++c) sum += static_cast<double>(from[c]);
      *to += static_cast<float>(sum);
      continue;
    }
    to += tile.key_begin;
    size_t c = tile.first;
    for (; c + hn::Lanes(d) <= end; c += hn::Lanes(d)) {
      hn::StoreU(hn::Add(hn::LoadU(d, to + c), hn::Load(d, from + c)), d, to + c);
    }
    for (; c < end; ++c) to[c] += from[c];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_MODIFY_BIAS_INL_H_
