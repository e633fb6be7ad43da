// The derivative side of the score socket: from packed queries and keys back to q, k and what else
// a score reads.
#if defined(HEED_EXACT_SCORE_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_GRADIENT_INL_H_
#undef HEED_EXACT_SCORE_GRADIENT_INL_H_
#else
#define HEED_EXACT_SCORE_GRADIENT_INL_H_
#endif

#include <span>

#include "heed/gradient.h"
#include "hwy/highway.h"
#include "src/exact/tile.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// What the loop sums for a query over its keys, or for a key over its queries, weighted by the
// gradients of their scores, d_s.
struct ScoreSums {
  const float* vectors;          // sum of d_s * the other side, packed
  float total;                   // sum of d_s; only where NeedsTotals()
  const float* terms = nullptr;  // of a query, what AddTerms() gave it; only where HasTerms()
};

// Vectors in panels, [panel of dims][row][PanelCols()].
struct PanelRows {
  const float* data;
  size_t rows;  // of a panel
  size_t cols;  // dims, whole panels
  PanelRows From(size_t row) const { return {data + row * PanelCols(), rows, cols}; }
  // Dims [c, c + PanelCols()) of a row; c is a multiple of PanelCols().
  const float* At(size_t row, size_t c) const { return data + c * rows + row * PanelCols(); }
};

// Where the sums of queries and keys go, rows of as many floats as panels have dims: nullptr where
// nobody wants them. `params` are those of the queries.
struct PairSums {
  float* queries;
  float* keys;
  double* params;
};

// The same for terms beside a dot product, and memory for one vector.
struct TermSums {
  float* queries;
  float* keys;
  double* params;
  float* row;
};

// Writes all numbers of a tensor, if it is wanted.
inline void StoreTensor(const double* from, const TensorView<float>& to) {
  if (!to.has_value()) return;
  const auto& [batch, heads, rows, cols] = to.shape;
  for (int64_t n = 0; n < batch * heads * rows * cols; ++n) {
    const int64_t row = n / cols;
    to(row / rows / heads, row / rows % heads, row % rows, n % cols) = static_cast<float>(from[n]);
  }
}

class ScoreGradient {
 public:
  virtual ~ScoreGradient() = default;

  // For scores that are no dot product of what they pack: adds to the sums what a tile of d_s gives
  // to its packed queries and keys. A d_s of 0 gives nothing, whatever the vectors hold.
  virtual bool HasPairs() const { return false; }
  virtual void AddPairs(const ScoreTile& /*d_scores*/, const PanelRows& /*queries*/,
                        const PanelRows& /*keys*/, const PairSums& /*sums*/) const {}

  // For scores with more terms than the dot product of what they pack: adds what those give.
  // `queries` are row groups, as in ScorePlug::Fill().
  virtual bool HasTerms() const { return false; }
  virtual void AddTerms(const ScoreTile& /*d_scores*/, const float* /*queries*/,
                        const PanelRows& /*keys*/, const TermSums& /*sums*/) const {}

  // d_q of one query, and d_k of one key. They add to the gradients of parameters, `params`:
  // QueryParams() numbers for the queries of a KV head, KeyParams() for its keys; nullptr where
  // nobody wants them.
  virtual void Query(const Row& row, const float* q, const ScoreSums& sums, float* d_q,
                     double* params) const = 0;
  virtual void Key(int64_t kv_head, const float* k, const ScoreSums& sums, float* d_k,
                   double* params) const = 0;

  virtual bool NeedsTotals() const { return false; }
  virtual size_t QueryParams() const { return 0; }
  virtual size_t KeyParams() const { return 0; }

  // Numbers of all parameters, and which of them the n-th one of the queries or keys of a KV head
  // is.
  virtual size_t NumParams() const { return 0; }
  virtual size_t QueryParamOf(int64_t /*kv_head*/, size_t n) const { return n; }
  virtual size_t KeyParamOf(int64_t /*kv_head*/, size_t n) const { return n; }
  // Takes the sums to where the caller wants them.
  virtual void Store(std::span<const double> /*params*/, const AttentionGradients& /*to*/) const {}
};

// What values by distance (relative_values-inl.h) add to gradients.
class ValueTermsGradient {
 public:
  virtual ~ValueTermsGradient() = default;
  // Numbers of a table.
  virtual size_t Size() const = 0;
  // Adds to gradients of weights.
  virtual void AddDots(const ScoreTile& d_weights, const PanelRows& d_out) const = 0;
  // Adds to the sums of a KV head, a table for each of its query heads.
  virtual void AddSums(const ScoreTile& weights, const PanelRows& d_out, double* sums) const = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_GRADIENT_INL_H_
