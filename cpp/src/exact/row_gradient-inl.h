// The derivative side of normalisers that need whole rows: they find weights and gradients of all
// tiles of a few rows in two buffers.
#if defined(HEED_EXACT_ROW_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_ROW_GRADIENT_INL_H_
#undef HEED_EXACT_ROW_GRADIENT_INL_H_
#else
#define HEED_EXACT_ROW_GRADIENT_INL_H_
#endif

#include "src/exact/normalize/rows-inl.h"
#include "src/exact/normalize_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Two buffers of the same rows. Cells that do not count may hold anything in `gradients`.
struct RowPair {
  ScoreRows scores;
  ScoreRows gradients;
};

// Where gradients beside those of scores go, nullptr where nobody wants them.
struct RowSums {
  float* queries;  // of each row, head_dim floats
  double* table;   // TableSize() numbers for each query head of the KV head
};

class RowGradient {
 public:
  virtual ~RowGradient() = default;

  // Floats of scratch memory per thread, for rows of so many tiles.
  virtual size_t ScratchFloats(size_t /*num_tiles*/) const { return 0; }

  // Replaces scores by final weights with `normalize`, the forward plug: -inf where a key does not
  // count; and gradients of weights by those of scores: exactly 0 there.
  virtual void Apply(const RowNormalize& normalize, const RowPair& rows,
                     const GradientRows& terms) const = 0;

  // For plugs with a table that queries meet: its numbers, and what the rows of the last Apply()
  // add to its gradient and to theirs.
  virtual size_t TableSize() const { return 0; }
  virtual void AddSums(const RowPair& /*rows*/, const RowSums& /*sums*/) const {}
};

// A plug that needs the weights only, and treats each row by itself.
class WeightRowGradient : public RowGradient {
 public:
  void Apply(const RowNormalize& normalize, const RowPair& rows,
             const GradientRows& terms) const override {
    HWY_ALIGN float lse[kScoreRows];
    normalize.Normalize(rows.scores, lse);
    for (size_t r = 0; r < rows.scores.num_rows; ++r) ApplyToRow(rows, r, terms.From(r));
  }

 protected:
  virtual void ApplyToRow(const RowPair& rows, size_t r, const GradientRows& terms) const = 0;
};

// Sum of body(score, gradient) over row r: a partial sum a tile, as in SumOver().
template <class Body>
HWY_INLINE double SumOverPairs(const RowPair& rows, size_t r, Body&& body) {
  const DF d;
  double total = 0;
  for (size_t t = 0; t < rows.scores.tiles.size(); ++t) {
    const ScoreTile& tile = rows.scores.tiles[t];
    const float* HWY_RESTRICT scores = tile.row_scores(r);
    const float* HWY_RESTRICT gradients = rows.gradients.tiles[t].row_scores(r);
    VF sum = hn::Zero(d);
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
      sum = hn::Add(sum, body(hn::Load(d, scores + c), hn::Load(d, gradients + c)));
    }
    total += static_cast<double>(hn::ReduceSum(d, sum));
  }
  return total;
}

// Replaces each gradient of row r by body(score, gradient).
template <class Body>
HWY_INLINE void ReplaceGradients(const RowPair& rows, size_t r, Body&& body) {
  const DF d;
  for (size_t t = 0; t < rows.scores.tiles.size(); ++t) {
    const ScoreTile& tile = rows.scores.tiles[t];
    const float* HWY_RESTRICT scores = tile.row_scores(r);
    float* HWY_RESTRICT gradients = rows.gradients.tiles[t].row_scores(r);
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
      hn::Store(body(hn::Load(d, scores + c), hn::Load(d, gradients + c)), d, gradients + c);
    }
  }
}

// Which keys a sparse row takes: those of weight 0 count as if they were hidden. Rows that are lost
// take all.
HWY_INLINE hn::Mask<DF> InSupport(DF d, VF weight) { return hn::Not(hn::Le(weight, hn::Zero(d))); }

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_ROW_GRADIENT_INL_H_
