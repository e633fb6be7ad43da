// Gradients of graph attention: targets first, for what arrives at the score of each edge, then
// sources, whose sums over edges take an order of their own.
#include <algorithm>

#include "src/compose/backward_request.h"
#include "src/compose/backward_rows.h"
#include "src/compose/graph_problem.h"
#include "src/compose/rows.h"
#include "src/message.h"
#include "src/rows/dot.h"

namespace heed {
namespace {

// Columns that are summed side by side, in float64.
constexpr int64_t kColumns = 64;

// Calls add(first, count, sums) for pieces of a row, and writes the sums.
template <class Add>
void SumColumns(int64_t width, float* to, const Add& add) {
  for (int64_t first = 0; first < width; first += kColumns) {
    const int64_t count = std::min(kColumns, width - first);
    double sums[kColumns] = {};
    add(first, count, sums);
    for (int64_t c = 0; c < count; ++c) to[first + c] = static_cast<float>(sums[c]);
  }
}

class GraphGradient {
 public:
  explicit GraphGradient(const ComposedBackward& call)
      : call_(call),
        r_(ReadGraph(call.reader)),
        p_(ValidateGraphInputs(r_.q, r_.k, r_.v, r_.edges, r_.score_weight, r_.options)),
        batch_(r_.q.shape[0]),
        heads_(r_.q.shape[1]),
        width_(r_.q.shape[3]),
        gat_(p_.score == GraphScore::kGat),
        weights_({batch_, heads_, p_.num_edges, 1}),
        d_scores_({batch_, heads_, p_.num_edges, 1}) {
    SortEdges(p_.edges, EdgeEnd::kSource, r_.k.shape[2], source_begin_, source_order_);
  }

  void Run() {
    ScoreGradients();
    ValueGradient();
    if (gat_) {
      GatGradients();
    } else {
      GatV2Gradients();
    }
  }

 private:
  int64_t SourceOf(int64_t edge) const { return p_.edges[static_cast<size_t>(2 * edge)]; }
  int64_t TargetOf(int64_t edge) const { return p_.edges[static_cast<size_t>(2 * edge + 1)]; }
  float Slope(double x) const { return x < 0 ? p_.negative_slope : 1.0f; }
  // The weights of a head: [gat ? 2 : 1][head_dim].
  const float* ScoreWeight(int64_t h) const {
    return p_.score_weight.data() + h * width_ * (gat_ ? 2 : 1);
  }
  const float* Key(int64_t b, int64_t h, int64_t j) const {
    return &p_.k(b, h / std::max<int64_t>(1, p_.group), j, 0);
  }

  template <class Body>
  void ForEachEdge(const ScratchVector<int64_t>& begin, const ScratchVector<int64_t>& order,
                   int64_t node, const Body& body) const {
    const size_t n = static_cast<size_t>(node);
    for (int64_t e = begin[n]; e < begin[n + 1]; ++e) body(order[static_cast<size_t>(e)]);
  }
  template <class Body>
  void ForEachEdgeTo(int64_t i, const Body& body) const {
    ForEachEdge(p_.begin, p_.order, i, body);
  }
  template <class Body>
  void ForEachEdgeFrom(int64_t j, const Body& body) const {
    ForEachEdge(source_begin_, source_order_, j, body);
  }

  // Forward again, for the weights; then what arrives at the score of every edge. An edge without
  // weight gives and gets nothing, whatever its source holds.
  void ScoreGradients() {
    const Extents rows = {batch_, heads_, r_.q.shape[2], 1};
    const OwnedTensor output({rows[0], rows[1], rows[2], r_.v.shape[3]});
    GraphOutputs outputs;
    outputs.output = output.view();
    outputs.weights = weights_.view();
    GraphAttention(r_.q, r_.k, r_.v, r_.edges, r_.score_weight, r_.options, outputs, &call_.pool);
    const TensorView<const float> d_output = call_.d_output(), d_lse = call_.d_lse();
    const int64_t width = r_.v.shape[3];
    ForEachRow(rows, call_.pool, [&](int64_t b, int64_t h, int64_t i) {
      const float* arriving = &d_output(b, h, i, 0);
      double shift = DotRows(arriving, &output.view()(b, h, i, 0), width);
      if (d_lse.has_value()) shift -= static_cast<double>(d_lse(b, h, i, 0));
      ForEachEdgeTo(i, [&](int64_t e) {
        const double p = static_cast<double>(weights_.view()(b, h, e, 0));
        const float* value = &p_.v(b, h / p_.group, SourceOf(e), 0);
        const double d_score = p == 0 ? 0 : p * (DotRows(arriving, value, width) - shift);
        d_scores_.view()(b, h, e, 0) = static_cast<float>(d_score);
      });
    });
  }

  void ValueGradient() {
    const TensorView<float> d_v = call_.Wanted("v");
    const TensorView<const float> d_output = call_.d_output();
    if (!d_v.has_value()) return;
    ForEachRow(d_v.shape, call_.pool, [&](int64_t b, int64_t kv_head, int64_t j) {
      SumColumns(d_v.shape[3], &d_v(b, kv_head, j, 0),
                 [&](int64_t first, int64_t count, double* sums) {
                   AddSources(weights_, d_output, {b, kv_head, j}, first, count, sums);
                 });
    });
  }

  struct Node {
    int64_t b, kv_head, index;
  };

  // sums += factor of an edge times the row of its target, over edges from j and heads that share
  // the node's features.
  void AddSources(const OwnedTensor& factors, const TensorView<const float>& rows, const Node& node,
                  int64_t first, int64_t count, double* sums) const {
    for (int64_t h = node.kv_head * p_.group; h < (node.kv_head + 1) * p_.group; ++h) {
      ForEachEdgeFrom(node.index, [&](int64_t e) {
        const double factor = static_cast<double>(factors.view()(node.b, h, e, 0));
        if (factor == 0) return;
        const float* row = &rows(node.b, h, TargetOf(e), 0) + first;
        for (int64_t c = 0; c < count; ++c) sums[c] += factor * static_cast<double>(row[c]);
      });
    }
  }

  // leaky_relu(w . [q; k]): its argument is a number of the target and one of the source, and so
  // are the sums of what arrives at it.
  void GatGradients() {
    const OwnedTensor of_targets = Terms(p_.q, 0), of_sources = Terms(p_.k, 1);
    const OwnedTensor target_sums(of_targets.view().shape), source_sums(of_sources.view().shape);
    ForEachRow(of_targets.view().shape, call_.pool, [&](int64_t b, int64_t h, int64_t i) {
      double sum = 0;
      ForEachEdgeTo(i, [&](int64_t e) {
        float& d_score = d_scores_.view()(b, h, e, 0);
        d_score *= Slope(static_cast<double>(of_targets.view()(b, h, i, 0)) +
                         static_cast<double>(of_sources.view()(b, h, SourceOf(e), 0)));
        sum += static_cast<double>(d_score);
      });
      target_sums.view()(b, h, i, 0) = static_cast<float>(sum);
    });
    ForEachRow(of_sources.view().shape, call_.pool, [&](int64_t b, int64_t h, int64_t j) {
      double sum = 0;
      ForEachEdgeFrom(j,
                      [&](int64_t e) { sum += static_cast<double>(d_scores_.view()(b, h, e, 0)); });
      source_sums.view()(b, h, j, 0) = static_cast<float>(sum);
    });
    SpreadSums(target_sums, 1, 0, call_.Wanted("q"));
    SpreadSums(source_sums, p_.group, 1, call_.Wanted("k"));
    WeightGradient(target_sums, p_.q, 0);
    WeightGradient(source_sums, p_.k, 1);
  }

  // w . row for half 0 (targets) or 1 (sources) of w: [batch, num_heads, len, 1].
  OwnedTensor Terms(const TensorView<const float>& rows, int64_t half) {
    OwnedTensor terms({batch_, heads_, rows.shape[2], 1});
    const int64_t group = half == 0 ? 1 : p_.group;
    ForEachRow(terms.view().shape, call_.pool, [&](int64_t b, int64_t h, int64_t n) {
      terms.view()(b, h, n, 0) = static_cast<float>(
          DotRows(ScoreWeight(h) + half * width_, &rows(b, h / group, n, 0), width_));
    });
    return terms;
  }

  // A row of `to` is the sum over its heads of their sum times their weights.
  void SpreadSums(const OwnedTensor& sums, int64_t group, int64_t half,
                  const TensorView<float>& to) {
    if (!to.has_value()) return;
    ForEachRow(to.shape, call_.pool, [&](int64_t b, int64_t head, int64_t n) {
      SumColumns(width_, &to(b, head, n, 0), [&](int64_t first, int64_t count, double* columns) {
        for (int64_t h = head * group; h < (head + 1) * group; ++h) {
          const double sum = static_cast<double>(sums.view()(b, h, n, 0));
          const float* weight = ScoreWeight(h) + half * width_ + first;
          for (int64_t c = 0; c < count; ++c) columns[c] += sum * static_cast<double>(weight[c]);
        }
      });
    });
  }

  // One half of the gradient of w. A node without edges counts nothing, even NaN.
  void WeightGradient(const OwnedTensor& sums, const TensorView<const float>& rows, int64_t half) {
    const TensorView<float> to = call_.Wanted("score_weight");
    if (!to.has_value()) return;
    const int64_t group = half == 0 ? 1 : p_.group;
    ForEachRow({1, 1, heads_, 1}, call_.pool, [&](int64_t, int64_t, int64_t h) {
      SumColumns(width_, &to(0, 0, h, half * width_),
                 [&](int64_t first, int64_t count, double* columns) {
                   for (int64_t b = 0; b < batch_; ++b) {
                     for (int64_t n = 0; n < rows.shape[2]; ++n) {
                       const double sum = static_cast<double>(sums.view()(b, h, n, 0));
                       if (sum == 0) continue;
                       const float* row = &rows(b, h / group, n, 0) + first;
                       for (int64_t c = 0; c < count; ++c) {
                         columns[c] += sum * static_cast<double>(row[c]);
                       }
                     }
                   }
                 });
    });
  }

  // w . leaky_relu(q + k): every edge has a slope in every channel.
  void GatV2Gradients() {
    const TensorView<float> d_q = call_.Wanted("q"), d_k = call_.Wanted("k");
    const TensorView<float> d_weight = call_.Wanted("score_weight");
    if (d_q.has_value()) {
      ForEachRow(d_q.shape, call_.pool, [&](int64_t b, int64_t h, int64_t i) {
        SumColumns(width_, &d_q(b, h, i, 0), [&](int64_t first, int64_t count, double* sums) {
          ForEachEdgeTo(i, [&](int64_t e) { AddSlopes(b, h, e, first, count, sums); });
        });
      });
    }
    if (d_k.has_value()) {
      ForEachRow(d_k.shape, call_.pool, [&](int64_t b, int64_t head, int64_t j) {
        SumColumns(width_, &d_k(b, head, j, 0), [&](int64_t first, int64_t count, double* sums) {
          for (int64_t h = head * p_.group; h < (head + 1) * p_.group; ++h) {
            ForEachEdgeFrom(j, [&](int64_t e) { AddSlopes(b, h, e, first, count, sums); });
          }
        });
      });
    }
    if (!d_weight.has_value()) return;
    ForEachRow({1, 1, heads_, 1}, call_.pool, [&](int64_t, int64_t, int64_t h) {
      SumColumns(width_, &d_weight(0, 0, h, 0), [&](int64_t first, int64_t count, double* sums) {
        for (int64_t b = 0; b < batch_; ++b) {
          for (int64_t e = 0; e < p_.num_edges; ++e) AddActivations(b, h, e, first, count, sums);
        }
      });
    });
  }

  // sums += d_score w leaky_relu'(q + k).
  void AddSlopes(int64_t b, int64_t h, int64_t e, int64_t first, int64_t count,
                 double* sums) const {
    ForEachChannel(b, h, e, first, count, [&](int64_t c, double d_score, float x) {
      sums[c] += d_score * static_cast<double>(ScoreWeight(h)[first + c] * Slope(x));
    });
  }

  // sums += d_score leaky_relu(q + k).
  void AddActivations(int64_t b, int64_t h, int64_t e, int64_t first, int64_t count,
                      double* sums) const {
    ForEachChannel(b, h, e, first, count, [&](int64_t c, double d_score, float x) {
      sums[c] += d_score * static_cast<double>(x * Slope(x));
    });
  }

  template <class Body>
  void ForEachChannel(int64_t b, int64_t h, int64_t e, int64_t first, int64_t count,
                      const Body& body) const {
    const double d_score = static_cast<double>(d_scores_.view()(b, h, e, 0));
    if (d_score == 0) return;
    const float* q = &p_.q(b, h, TargetOf(e), 0) + first;
    const float* k = Key(b, h, SourceOf(e)) + first;
    for (int64_t c = 0; c < count; ++c) body(c, d_score, q[c] + k[c]);
  }

  const ComposedBackward& call_;
  GraphRequest r_;
  GraphProblem p_;
  int64_t batch_, heads_, width_;
  bool gat_;
  OwnedTensor weights_, d_scores_;  // of every edge: [batch, num_heads, num_edges, 1]
  ScratchVector<int64_t> source_begin_, source_order_;
};

}  // namespace

void GraphBackward(const ComposedBackward& call) { GraphGradient(call).Run(); }

}  // namespace heed
