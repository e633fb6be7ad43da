#include "src/layers/backward_latent.h"

#include <string_view>

#include "heed/linear.h"
#include "src/layers/backward_rows.h"
#include "src/layers/latent.h"
#include "src/layers/multi_head.h"
#include "src/layers/transformer_block.h"
#include "src/linear/backward_linear.h"
#include "src/message.h"
#include "src/parallel/pieces.h"
#include "src/position/backward_position.h"
#include "src/rows/backward_norm.h"

namespace heed {
namespace {

void CheckFlat(std::string_view name, const TensorView<const float>& w) {
  const bool flat = w.shape[1] <= 1 || w.shape[2] <= 1 || w.strides[1] == w.shape[2] * w.strides[2];
  if (!flat) Fail(ErrorCode::kShape, "{}: its heads and rows must lie in one row", {name});
}

TensorView<float> FlatGradient(const TensorView<float>& d_w) {
  return d_w.has_value() ? FlatRows(d_w) : d_w;
}

// Columns [first, first + to.dim) of every head, or of one that all heads of `to` share.
void CopyColumns(const TensorView<const float>& from, int64_t first, const TensorView<float>& to,
                 ThreadPool& pool) {
  TensorView<const float> columns = from;
  columns.data += first;
  columns.shape[3] = to.shape[3];
  if (columns.shape[1] == 1) columns.strides[1] = 0;
  columns.shape[1] = to.shape[1];
  CopyInto(columns, to, pool);
}

// Normalised rows and what they were made of; without factors there is no norm, without a matrix
// the rows are x itself.
class LatentNorm {
 public:
  LatentNorm(const TensorView<const float>& x, const TensorView<const float>& w,
             std::span<const float> factors, double epsilon, ThreadPool& pool)
      : x_(x), factors_(factors), epsilon_(epsilon), pool_(pool) {
    if (!w.has_value()) return;
    raw_ = NewRows(x, w.shape[2]);
    Linear(x, w, {}, raw_.view, &pool);
    if (factors.empty()) return;
    normed_ = NewRows(x, w.shape[2]);
    RowNorm{Norm::kRms, epsilon, factors, {}}(raw_.view, normed_.view, pool);
  }

  TensorView<const float> rows() const {
    if (!raw_.view.has_value()) return x_;
    return factors_.empty() ? raw_.view : normed_.view;
  }

  // From what arrives at rows() to what arrives at the rows before the norm.
  OwnedHeads Backward(OwnedHeads d_rows, std::span<float> d_factors) const {
    if (factors_.empty()) return d_rows;
    OwnedHeads d_raw = NewRows(raw_.view, raw_.view.shape[3]);
    Clear(d_factors, &pool_);
    NormBackward(Norm::kRms, {factors_, {}, epsilon_}, raw_.view, d_rows.view,
                 {d_raw.view, d_factors, {}}, &pool_);
    return d_raw;
  }

 private:
  const TensorView<const float> x_;
  const std::span<const float> factors_;
  const double epsilon_;
  ThreadPool& pool_;
  OwnedHeads raw_, normed_;
};

class LatentPass {
 public:
  LatentPass(const LatentShape& s, const TensorView<const float>& x, const LatentWeights& w,
             const MultiHeadLatentOptions& o, ThreadPool& pool)
      : s_(s),
        x_(x),
        w_(w),
        o_(o),
        pool_(pool),
        latent_(x, w.w_dkv, w.norm_kv_weight, o.epsilon, pool),
        compressed_(x, w.w_dq, w.norm_q_weight, o.epsilon, pool),
        q_(s.batch, s.num_heads, s.len, s.nope_dim + s.rope_dim),
        k_(s.batch, s.num_heads, s.len, s.nope_dim + s.rope_dim),
        v_(s.batch, s.num_heads, s.len, s.head_dim_v),
        heads_(s.batch, s.num_heads, s.len, s.head_dim_v),
        lse_(s.batch, 1, s.num_heads, s.len) {
    lse_.view = Contiguous(lse_.data(), s.batch, s.num_heads, s.len, 1);
    Project();
    Attention(TensorView<const float>(q_.view), k_.view, v_.view, o_.latent.attention,
              {.output = heads_.view, .lse = lse_.view}, &pool_);
  }

  void Backward(const TensorView<const float>& d_output, const LatentGradients& to) {
    const OwnedHeads d_heads(s_.batch, s_.num_heads, s_.len, s_.head_dim_v);
    LinearGradients linear = {RowsOf(d_heads)};
    if (to.d_w_o.has_value()) linear.d_weight = FlatCols(to.d_w_o);
    LinearBackward(RowsOf(heads_), FlatCols(w_.w_o), d_output, linear, pool_);
    const OwnedHeads d_q(s_.batch, s_.num_heads, s_.len, q_.view.shape[3]);
    const OwnedHeads d_k(s_.batch, s_.num_heads, s_.len, q_.view.shape[3]);
    const OwnedHeads d_v(s_.batch, s_.num_heads, s_.len, s_.head_dim_v);
    AttentionGradients attention = to.attention;
    attention.d_q = d_q.view;
    attention.d_k = d_k.view;
    attention.d_v = d_v.view;
    AttentionBackward(TensorView<const float>(q_.view), k_.view, v_.view, heads_.view, lse_.view,
                      d_heads.view, o_.latent.attention, attention, &pool_);
    const OwnedHeads d_x = NewRows(x_, s_.embed_dim);
    LatentBackward(d_k, d_v, d_x, to);
    QueriesBackward(d_q, d_x, to);
    RotatedKeyBackward(d_k, d_x, to);
    if (to.d_x.has_value()) CopyInto(d_x.view, to.d_x, pool_);
  }

 private:
  // Rows of `heads` heads side by side.
  OwnedHeads Heads(int64_t heads, int64_t dim) const { return {s_.batch, heads, s_.len, dim}; }

  // Queries [a w_uq^T, rope(a w_qr^T)], keys [c w_uk^T, rope(x w_kr^T)], values c w_uv^T.
  void Project() {
    const OwnedHeads q_nope = Heads(s_.num_heads, s_.nope_dim);
    Linear(compressed_.rows(), FlatRows(w_.w_uq), {}, RowsOf(q_nope), &pool_);
    Join(q_nope, Turned(compressed_.rows(), FlatRows(w_.w_qr), s_.num_heads), q_);
    const OwnedHeads k_nope = Heads(s_.num_heads, s_.nope_dim);
    Linear(latent_.rows(), FlatRows(w_.w_uk), {}, RowsOf(k_nope), &pool_);
    Join(k_nope, Turned(x_, w_.w_kr, 1), k_);
    Linear(latent_.rows(), FlatRows(w_.w_uv), {}, RowsOf(v_), &pool_);
  }

  // Heads of rope_dim, turned by their places.
  OwnedHeads Turned(const TensorView<const float>& x, const TensorView<const float>& w,
                    int64_t heads) const {
    OwnedHeads rows = Heads(heads, s_.rope_dim);
    Linear(x, w, {}, RowsOf(rows), &pool_);
    Turn(rows, false);
    return rows;
  }

  void Turn(const OwnedHeads& rows, bool back) const {
    if (!o_.rope) return;
    const RotationProblem turn = ValidateRope(rows.view, *o_.rope, RotationOf(o_));
    Rotate(back ? TurnedBack(turn, rows.view) : turn, rows.view, &pool_);
  }

  void Join(const OwnedHeads& nope, const OwnedHeads& turned, const OwnedHeads& to) const {
    TensorView<float> part = to.view;
    part.shape[3] = s_.nope_dim;
    CopyColumns(nope.view, 0, part, pool_);
    part.data += s_.nope_dim;
    part.shape[3] = s_.rope_dim;
    CopyColumns(turned.view, 0, part, pool_);
  }

  // The first to write d_x.
  void LatentBackward(const OwnedHeads& d_k, const OwnedHeads& d_v, const OwnedHeads& d_x,
                      const LatentGradients& to) const {
    const OwnedHeads d_nope = Heads(s_.num_heads, s_.nope_dim);
    CopyColumns(d_k.view, 0, d_nope.view, pool_);
    OwnedHeads d_latent = Heads(1, s_.kv_rank);
    LinearBackward(latent_.rows(), FlatRows(w_.w_uk), RowsOf(d_nope),
                   {d_latent.view, FlatGradient(to.d_w_uk)}, pool_);
    AddBackward(latent_.rows(), FlatRows(w_.w_uv), RowsOf(d_v), d_latent, FlatGradient(to.d_w_uv));
    d_latent = latent_.Backward(std::move(d_latent), to.d_norm_kv);
    LinearBackward(x_, w_.w_dkv, d_latent.view, {d_x.view, to.d_w_dkv}, pool_);
  }

  void QueriesBackward(const OwnedHeads& d_q, const OwnedHeads& d_x,
                       const LatentGradients& to) const {
    const OwnedHeads d_nope = Heads(s_.num_heads, s_.nope_dim);
    const OwnedHeads d_turned = Heads(s_.num_heads, s_.rope_dim);
    CopyColumns(d_q.view, 0, d_nope.view, pool_);
    CopyColumns(d_q.view, s_.nope_dim, d_turned.view, pool_);
    Turn(d_turned, true);
    OwnedHeads d_rows = Heads(1, s_.q_rank);
    LinearBackward(compressed_.rows(), FlatRows(w_.w_uq), RowsOf(d_nope),
                   {d_rows.view, FlatGradient(to.d_w_uq)}, pool_);
    AddBackward(compressed_.rows(), FlatRows(w_.w_qr), RowsOf(d_turned), d_rows,
                FlatGradient(to.d_w_qr));
    if (!w_.w_dq.has_value()) return AddRows(d_rows, d_x, pool_);
    d_rows = compressed_.Backward(std::move(d_rows), to.d_norm_q);
    AddBackward(x_, w_.w_dq, d_rows.view, d_x, to.d_w_dq);
  }

  // The heads share one rotated key: it gets their sum.
  void RotatedKeyBackward(const OwnedHeads& d_k, const OwnedHeads& d_x,
                          const LatentGradients& to) const {
    const OwnedHeads d_turned = Heads(1, s_.rope_dim);
    const TensorView<float> from = d_k.view, sum = d_turned.view;
    pool_.Run(s_.batch * s_.len, [&](int64_t row, int) {
      const int64_t b = row / s_.len, i = row % s_.len;
      for (int64_t c = 0; c < s_.rope_dim; ++c) {
        double total = 0;
        for (int64_t h = 0; h < s_.num_heads; ++h) total += from(b, h, i, s_.nope_dim + c);
        sum(b, 0, i, c) = static_cast<float>(total);
      }
    });
    Turn(d_turned, true);
    AddBackward(x_, w_.w_kr, d_turned.view, d_x, to.d_w_kr);
  }

  // LinearBackward() whose d_x is added to.
  void AddBackward(const TensorView<const float>& x, const TensorView<const float>& w,
                   const TensorView<const float>& d_y, const OwnedHeads& d_x,
                   const TensorView<float>& d_w) const {
    const OwnedHeads more = NewRows(d_x.view, d_x.view.shape[3]);
    LinearBackward(x, w, d_y, {more.view, d_w}, pool_);
    AddRows(more, d_x, pool_);
  }

  const LatentShape s_;
  const TensorView<const float>& x_;
  const LatentWeights& w_;
  const MultiHeadLatentOptions& o_;
  ThreadPool& pool_;
  const LatentNorm latent_, compressed_;
  const OwnedHeads q_, k_, v_, heads_;
  OwnedHeads lse_;
};

}  // namespace

void MultiHeadLatentBackward(const TensorView<const float>& x, const LatentWeights& weights,
                             const MultiHeadLatentOptions& options,
                             const TensorView<const float>& d_output, const LatentGradients& to,
                             ThreadPool& pool) {
  const LatentShape shape = ValidateMultiHeadLatent(x, weights, options, true);
  CheckFlat("w_uq", weights.w_uq);
  CheckFlat("w_qr", weights.w_qr);
  CheckFlat("w_uk", weights.w_uk);
  CheckFlat("w_uv", weights.w_uv);
  LatentPass(shape, x, weights, options, pool).Backward(d_output, to);
}

}  // namespace heed
