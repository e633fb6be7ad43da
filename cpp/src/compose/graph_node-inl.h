// One target node of graph attention: scores of its edges, softmax, weighted sum of its sources.
#if defined(HEED_COMPOSE_GRAPH_NODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_COMPOSE_GRAPH_NODE_INL_H_
#undef HEED_COMPOSE_GRAPH_NODE_INL_H_
#else
#define HEED_COMPOSE_GRAPH_NODE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hwy/highway.h"
#include "src/compose/graph_problem.h"
#include "src/parallel/worker_scratch.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body(column, load) for every vector of a row; `load` reads as many floats as there are.
template <class Body>
HWY_INLINE void ForEachVector(size_t width, Body&& body) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= width; c += lanes) {
    body([c](const float* row) HWY_ATTR { return hn::LoadU(DF(), row + c); });
  }
  if (c == width) return;
  const size_t rest = width - c;
  body([c, rest](const float* row) HWY_ATTR { return hn::LoadN(DF(), row + c, rest); });
}

// a . b.
inline float Dot(const float* a, const float* b, size_t width) {
  const DF d;
  VF sum = hn::Zero(d);
  ForEachVector(width, [&](auto load) HWY_ATTR { sum = Fma(load(a), load(b), sum); });
  return hn::ReduceSum(d, sum);
}

// w . leaky_relu(q + k).
inline float DotLeaky(const float* w, const float* q, const float* k, size_t width, float slope) {
  const DF d;
  const VF factor = hn::Set(d, slope);
  VF sum = hn::Zero(d);
  ForEachVector(width, [&](auto load) HWY_ATTR {
    const VF x = hn::Add(load(q), load(k));
    const VF leaky = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(x, factor), x);
    sum = Fma(load(w), leaky, sum);
  });
  return hn::ReduceSum(d, sum);
}

// Memory of one worker: the edges of one node.
struct GraphScratch {
  ScratchVector<int64_t> edges;  // those whose score is not -inf
  AlignedFloats scores;          // whole vectors

  explicit GraphScratch(int64_t max_degree)
      : edges(static_cast<size_t>(max_degree)),
        scores(RoundUp(static_cast<size_t>(max_degree), hn::Lanes(DF()))) {}
};

class NodeLoop {
 public:
  NodeLoop(const GraphProblem& p, const TensorView<float>& source_terms, int64_t b, int64_t h,
           int64_t i, GraphScratch& scratch)
      : p_(p), terms_(source_terms), b_(b), h_(h), i_(i), scratch_(scratch) {}

  void Run() {
    ScoreEdges();
    const float max = *MaxScore();
    const float sum = ExpScores(max);
    const float factor = count_ == 0 ? 0.0f : 1.0f / sum;
    if (p_.outputs.lse.has_value()) {
      p_.outputs.lse(b_, h_, i_, 0) =
          count_ == 0 ? -std::numeric_limits<float>::infinity() : max + std::log(sum);
    }
    if (p_.outputs.weights.has_value()) WriteWeights(factor);
    if (p_.v.shape[3] > 0) WriteOutput(factor);
  }

 private:
  size_t Begin() const { return static_cast<size_t>(p_.begin[static_cast<size_t>(i_)]); }
  size_t End() const { return static_cast<size_t>(p_.begin[static_cast<size_t>(i_) + 1]); }
  int64_t SourceOf(int64_t edge) const { return p_.edges[static_cast<size_t>(2 * edge)]; }

  // An edge whose score is -inf counts as not there.
  void ScoreEdges() {
    const size_t width = static_cast<size_t>(p_.q.shape[3]);
    const float* q = width > 0 && Begin() < End() ? &p_.q(b_, h_, i_, 0) : nullptr;
    const bool gat = p_.score == GraphScore::kGat;
    const float* weight = p_.score_weight.data() + static_cast<size_t>(h_) * width * (gat ? 2 : 1);
    const float target = gat && q != nullptr ? Dot(weight, q, width) : 0.0f;
    for (size_t n = Begin(); n < End(); ++n) {
      const int64_t edge = p_.order[n];
      const int64_t source = SourceOf(edge);
      float score = 0;
      if (gat) {
        score = target + terms_(b_, h_, source, 0);
        if (score < 0) score *= p_.negative_slope;
      } else if (q != nullptr) {
        score = DotLeaky(weight, q, &p_.k(b_, h_ / p_.group, source, 0), width, p_.negative_slope);
      }
      if (score == -std::numeric_limits<float>::infinity()) continue;
      scratch_.edges[count_] = edge;
      scratch_.scores.get()[count_++] = score;
    }
  }

  // NaN never wins: it spoils the sum by itself.
  const float* MaxScore() const {
    const float* best = &kMinusInfinity;
    for (size_t n = 0; n < count_; ++n) {
      if (scratch_.scores.get()[n] > *best) best = scratch_.scores.get() + n;
    }
    return best;
  }

  // scores = e^(scores - max); returns their sum.
  float ExpScores(float max) {
    const DF d;
    float* scores = scratch_.scores.get();
    std::fill(scores + count_, scores + RoundUp(count_, hn::Lanes(d)), kMinusInfinity);
    VF sum = hn::Zero(d);
    for (size_t n = 0; n < count_; n += hn::Lanes(d)) {
      VF x[1] = {hn::Mul(hn::Sub(hn::Load(d, scores + n), hn::Set(d, max)), hn::Set(d, kLog2E))};
      Exp2NonPositive(d, x);
      hn::Store(x[0], d, scores + n);
      sum = hn::Add(sum, x[0]);
    }
    return hn::ReduceSum(d, sum);
  }

  void WriteWeights(float factor) const {
    for (size_t n = Begin(); n < End(); ++n) p_.outputs.weights(b_, h_, p_.order[n], 0) = 0.0f;
    for (size_t n = 0; n < count_; ++n) {
      p_.outputs.weights(b_, h_, scratch_.edges[n], 0) = scratch_.scores.get()[n] * factor;
    }
  }

  // Four vectors of the row at a time stay in registers while the sources pass.
  void WriteOutput(float factor) const {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    const size_t width = static_cast<size_t>(p_.v.shape[3]);
    size_t c = 0;
    for (; c + 4 * lanes <= width; c += 4 * lanes) SumSources<4>(c, 4 * lanes, factor);
    for (; c < width; c += lanes) SumSources<1>(c, std::min(lanes, width - c), factor);
  }

  template <size_t kVectors>
  void SumSources(size_t column, size_t count, float factor) const {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    VF sum[kVectors];
    for (VF& s : sum) s = hn::Zero(d);
    for (size_t n = 0; n < count_; ++n) {
      const float* row = &p_.v(b_, h_ / p_.group, SourceOf(scratch_.edges[n]), 0) + column;
      const VF weight = hn::Set(d, scratch_.scores.get()[n]);
      if (kVectors == 1 && count < lanes) {
        sum[0] = Fma(weight, hn::LoadN(d, row, count), sum[0]);
      } else {
        for (size_t m = 0; m < kVectors; ++m) {
          sum[m] = Fma(weight, hn::LoadU(d, row + m * lanes), sum[m]);
        }
      }
    }
    float* to = &p_.outputs.output(b_, h_, i_, 0) + column;
    for (size_t m = 0; m < kVectors; ++m) {
      const VF scaled = hn::Mul(sum[m], hn::Set(d, factor));
      hn::StoreN(scaled, d, to + m * lanes, std::min(lanes, count - m * lanes));
    }
  }

  static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

  const GraphProblem& p_;
  const TensorView<float>& terms_;
  int64_t b_, h_, i_;
  GraphScratch& scratch_;
  size_t count_ = 0;  // edges that are there
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_COMPOSE_GRAPH_NODE_INL_H_
