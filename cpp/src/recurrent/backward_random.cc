// Backward of random features: calls of linear attention that decays, whose keys are the features
// divided by the largest so far, exp(l_t - peak_t), whose decays are exp(peak_(t-1) - peak_t), and
// whose queries are exp(l_i + peak_i - the largest of those sums); decays of tokens multiply those
// of peaks. Products of the three hold no
// peak, so peaks count as constants but in the states, which are divided by them:
//
//   dl = d_feature * feature,  dx = W^T dl - x sum dl (of queries W^T dl),  dW = sum dl x^T
//   dpeak -= sum over a row of (d_state * state), to the key that it is of, or the first state
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "heed/linear.h"
#include "src/compose/rows.h"
#include "src/linear/backward_linear.h"
#include "src/recurrent/backward_factors.h"
#include "src/recurrent/backward_problem.h"

namespace heed {
namespace {

constexpr float kNoPeak = -std::numeric_limits<float>::infinity();
constexpr int64_t kSegment = 512;  // tokens whose features exist at a time

template <class T>
TensorView<T> RowsFrom(TensorView<T> view, int64_t first, int64_t count) {
  if (!view.has_value()) return view;
  view.data += first * view.strides[2];
  view.shape[2] = count;
  return view;
}

// Rows of a side in a segment, [batch, heads, segment, ...].
struct SideRows {
  OwnedTensor x;  // [.., head_dim], with the root of the scale in it
  OwnedTensor features, d_features;
  OwnedTensor d_x;
  SideRows(int64_t batch, int64_t heads, int64_t segment, int64_t dim, int64_t features_dim)
      : x({batch, heads, segment, dim}),
        features({batch, heads, segment, features_dim}),
        d_features({batch, heads, segment, features_dim}),
        d_x({batch, heads, segment, dim}) {}
};

class RandomBackward {
 public:
  RandomBackward(const RecurrentBackwardProblem& g, ThreadPool& pool)
      : g_(g),
        p_(g.forward),
        to_(g.gradients),
        pool_(pool),
        segment_(std::min(kSegment, std::max(p_.q_len, p_.kv_len))),
        keys_(p_.batch, p_.num_kv_heads, segment_, p_.head_dim, p_.feature_dim),
        queries_(p_.batch, p_.num_heads, segment_, p_.head_dim, p_.feature_dim),
        decays_(keys_.features.view().shape),
        raised_(keys_.features.view().shape),
        peaks_({p_.batch, p_.num_kv_heads, 1, p_.feature_dim}),
        factors_(g, segment_),
        d_state_(BorderShape()),
        d_before_(BorderShape()),
        sources_(static_cast<size_t>(peaks_.view().size())),
        d_peaks_(sources_.size()),
        d_projection_(
            to_.d_projection.has_value() ? static_cast<size_t>(p_.feature_dim * p_.head_dim) : 0),
        part_({1, 1, d_projection_.empty() ? 0 : p_.feature_dim, p_.head_dim}) {
    for (int64_t s = 0; s <= NumSegments(); ++s) {
      borders_.emplace_back(BorderShape());
      border_peaks_.emplace_back(peaks_.view().shape);
    }
  }

  void Run() {
    LoadInitialState();
    const int64_t segments = NumSegments();
    for (int64_t s = 0; s < segments; ++s) Advance(s);
    Arrive(segments);
    if (!p_.options.causal) ReadLast(segments);
    for (int64_t s = segments; s-- > 0;) Retreat(s);
    StoreInitialState();
    factors_.Write();
    for (int64_t f = 0; f < p_.feature_dim && to_.d_projection.has_value(); ++f) {
      for (int64_t c = 0; c < p_.head_dim; ++c) {
        to_.d_projection(0, 0, f, c) =
            static_cast<float>(d_projection_[static_cast<size_t>(f * p_.head_dim + c)]);
      }
    }
  }

 private:
  Extents BorderShape() const { return {p_.batch, p_.num_kv_heads, p_.feature_dim, p_.state_cols}; }
  int64_t NumSegments() const { return segment_ == 0 ? 0 : (p_.kv_len + segment_ - 1) / segment_; }
  size_t Unit(int64_t b, int64_t h, int64_t f) const {
    return static_cast<size_t>((b * p_.num_kv_heads + h) * p_.feature_dim + f);
  }
  TensorView<float> Border(int64_t s) { return borders_[static_cast<size_t>(s)].view(); }
  TensorView<float> BorderPeaks(int64_t s) { return border_peaks_[static_cast<size_t>(s)].view(); }
  int64_t Count(int64_t first, int64_t len) const { return std::min(segment_, len - first); }
  template <class Body>
  void ForEachFeature(const Body& body) const {
    for (int64_t b = 0; b < p_.batch; ++b) {
      for (int64_t h = 0; h < p_.num_kv_heads; ++h) {
        for (int64_t f = 0; f < p_.feature_dim; ++f) body(b, h, f);
      }
    }
  }

  // A row of the state that nobody has written has no peak.
  void LoadInitialState() {
    const TensorView<const float>& from = p_.options.initial_state;
    ForEachFeature([&](int64_t b, int64_t h, int64_t f) {
      for (int64_t e = 0; e < p_.state_cols; ++e) {
        Border(0)(b, h, f, e) = from.has_value() ? from(b, h, f, e) : 0.0f;
      }
      const bool written = from.has_value() && from(b, h, f, p_.head_dim_v) != 0.0f;
      BorderPeaks(0)(b, h, 0, f) = written ? from(b, h, f, p_.state_cols) : kNoPeak;
      sources_[Unit(b, h, f)] = -1;
    });
  }

  // Rows times the root of the scale, and their logarithms of features; nothing of keys beyond
  // their length.
  void LoadRows(Side side, int64_t first, int64_t count) {
    const bool keys = side == Side::kKey;
    const SideRows& rows = keys ? keys_ : queries_;
    const TensorView<const float>& from = keys ? p_.k : p_.q;
    const TensorView<float> x = RowsFrom(rows.x.view(), 0, count);
    ForEachRow(x.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      const bool exists = !keys || first + i < p_.KeyLength(b);
      for (int64_t c = 0; c < p_.head_dim; ++c) {
        x(b, h, i, c) = exists ? p_.Factor(side) * from(b, h, first + i, c) : 0.0f;
      }
    });
    Linear(x, p_.options.projection, {}, RowsFrom(rows.features.view(), 0, count), &pool_);
  }

  // Features of the keys of segment s, from the peaks before it; the peaks after it.
  void LoadKeys(int64_t s) {
    const int64_t first = s * segment_, count = Count(first, p_.kv_len);
    LoadRows(Side::kKey, first, count);
    ForEachRow({p_.batch, p_.num_kv_heads, 1, 1}, pool_, [&](int64_t b, int64_t h, int64_t) {
      float* peaks = &peaks_.view()(b, h, 0, 0);
      std::copy_n(&BorderPeaks(s)(b, h, 0, 0), p_.feature_dim, peaks);
      for (int64_t i = 0; i < count; ++i) RaisePeaks(b, h, first, i, peaks);
    });
  }

  void RaisePeaks(int64_t b, int64_t h, int64_t first, int64_t i, float* peaks) {
    const bool exists = first + i < p_.KeyLength(b);
    float half = 0;
    for (int64_t c = 0; c < p_.head_dim; ++c) {
      const float x = keys_.x.view()(b, h, i, c);
      half += x * x / 2;
    }
    for (int64_t f = 0; f < p_.feature_dim; ++f) {
      float& key = keys_.features.view()(b, h, i, f);
      const float logarithm = key - half;
      const float raised = exists && logarithm > peaks[f] ? logarithm : peaks[f];
      decays_.view()(b, h, i, f) = raised == peaks[f] ? 0.0f : peaks[f] - raised;
      raised_.view()(b, h, i, f) = raised;
      key = !exists || logarithm == kNoPeak ? 0.0f : std::exp(logarithm - raised);
      peaks[f] = raised;
    }
  }

  // Features of queries, of `peaks` [batch, num_kv_heads, 1 or count, features].
  void LoadQueries(int64_t first, int64_t count, const TensorView<const float>& peaks) {
    LoadRows(Side::kQuery, first, count);
    ForEachRow({p_.batch, p_.num_heads, count, 1}, pool_, [&](int64_t b, int64_t h, int64_t i) {
      float* row = &queries_.features.view()(b, h, i, 0);
      const float* own = &peaks(b, h / p_.group, peaks.shape[2] == 1 ? 0 : i, 0);
      float largest = kNoPeak;
      for (int64_t f = 0; f < p_.feature_dim; ++f) {
        row[f] += own[f];
        if (row[f] > largest) largest = row[f];
      }
      for (int64_t f = 0; f < p_.feature_dim; ++f) {
        row[f] = row[f] == kNoPeak ? 0.0f : std::exp(row[f] - largest);
      }
    });
  }

  // Linear attention of the features of a segment.
  RecurrentOptions Options(int64_t first, int64_t count, bool causal) {
    RecurrentOptions o;
    o.normalize = p_.options.normalize;
    o.scale = 1.0;
    o.causal = causal;
    if (count > 0) factors_.Give(first, RowsFrom(decays_.view(), 0, count), o);
    lengths_.clear();
    for (int64_t b = 0; b < p_.batch; ++b) {
      lengths_.push_back(
          static_cast<int32_t>(std::clamp<int64_t>(p_.KeyLength(b) - first, 0, count)));
    }
    o.key_lengths = lengths_;
    return o;
  }

  // The state and the peaks after a segment.
  void Advance(int64_t s) {
    const int64_t first = s * segment_, count = Count(first, p_.kv_len);
    LoadKeys(s);
    std::copy_n(peaks_.view().data, peaks_.view().size(), BorderPeaks(s + 1).data);
    FindSources(first, count);
    RecurrentOptions o = Options(first, count, false);
    o.initial_state = Border(s);
    RecurrentAttention(RowsFrom(queries_.features.view(), 0, 0),
                       RowsFrom(keys_.features.view(), 0, count), RowsFrom(p_.v, first, count), o,
                       {NoOutput(), Border(s + 1)}, &pool_);
  }

  // The tokens that raised the peaks last.
  void FindSources(int64_t first, int64_t count) {
    ForEachFeature([&](int64_t b, int64_t h, int64_t f) {
      for (int64_t i = 0; i < count; ++i) {
        if (decays_.view()(b, h, i, f) != 0.0f) sources_[Unit(b, h, f)] = first + i;
      }
    });
  }

  TensorView<float> NoOutput() const {
    return Contiguous(queries_.features.view().data, p_.batch, p_.num_heads, 0, p_.head_dim_v);
  }

  // What arrives at the last state; its peak is a number of one key, by which its row is divided.
  void Arrive(int64_t segments) {
    const TensorView<const float>& from = to_.d_final_state;
    ForEachFeature([&](int64_t b, int64_t h, int64_t f) {
      double peak = from.has_value() ? double{from(b, h, f, p_.state_cols)} : 0;
      for (int64_t e = 0; e < p_.state_cols; ++e) {
        const float arriving = from.has_value() ? from(b, h, f, e) : 0.0f;
        d_state_.view()(b, h, f, e) = arriving;
        if (from.has_value()) peak -= double{arriving} * double{Border(segments)(b, h, f, e)};
      }
      d_peaks_[Unit(b, h, f)] = BorderPeaks(segments)(b, h, 0, f) == kNoPeak ? 0 : peak;
    });
  }

  // Queries of all keys.
  void ReadLast(int64_t segments) {
    for (int64_t first = 0; first < p_.q_len; first += segment_) {
      const int64_t count = Count(first, p_.q_len);
      LoadQueries(first, count, BorderPeaks(segments));
      RecurrentOptions o = Options(0, 0, false);
      o.initial_state = Border(segments);
      RecurrentGradients to;
      to.d_q = RowsFrom(queries_.d_features.view(), 0, count);
      to.d_initial_state = d_before_.view();
      RecurrentBackward(RowsFrom(queries_.features.view(), 0, count),
                        RowsFrom(keys_.features.view(), 0, 0), RowsFrom(p_.v, 0, 0),
                        RowsFrom(g_.d_out, first, count), o, to, &pool_);
      for (int64_t n = 0; n < d_state_.view().size(); ++n) {
        d_state_.view().data[n] += d_before_.view().data[n];
      }
      StoreRows(Side::kQuery, first, count);
    }
  }

  void Retreat(int64_t s) {
    const int64_t first = s * segment_, count = Count(first, p_.kv_len);
    const int64_t readers = p_.options.causal ? count : 0;
    LoadKeys(s);
    LoadQueries(first, readers, raised_.view());
    RecurrentOptions o = Options(first, count, p_.options.causal);
    o.initial_state = Border(s);
    RecurrentGradients to;
    to.d_final_state = d_state_.view();
    to.d_q = RowsFrom(queries_.d_features.view(), 0, readers);
    to.d_k = RowsFrom(keys_.d_features.view(), 0, count);
    to.d_v = RowsFrom(to_.d_v, first, count);
    to.d_initial_state = d_before_.view();
    factors_.Want(count, to);
    RecurrentBackward(RowsFrom(queries_.features.view(), 0, readers),
                      RowsFrom(keys_.features.view(), 0, count), RowsFrom(p_.v, first, count),
                      RowsFrom(g_.d_out, readers == 0 ? 0 : first, readers), o, to, &pool_);
    factors_.Add(first, count);
    std::swap(d_state_, d_before_);
    StoreRows(Side::kQuery, first, readers);
    StoreRows(Side::kKey, first, count);
  }

  // From gradients of features, in their place those of logarithms, to those of rows.
  void StoreRows(Side side, int64_t first, int64_t count) {
    const bool keys = side == Side::kKey;
    const SideRows& rows = keys ? keys_ : queries_;
    const TensorView<float>& to = keys ? to_.d_k : to_.d_q;
    const TensorView<float> slopes = RowsFrom(rows.d_features.view(), 0, count);
    ForEachRow(slopes.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      for (int64_t f = 0; f < p_.feature_dim; ++f) {
        const float feature = rows.features.view()(b, h, i, f);
        // A feature of 0 stays 0.
        slopes(b, h, i, f) = feature == 0.0f ? 0.0f : slopes(b, h, i, f) * feature;
        if (keys && sources_[Unit(b, h, f)] == first + i) {
          slopes(b, h, i, f) += static_cast<float>(d_peaks_[Unit(b, h, f)]);
        }
      }
    });
    if (!d_projection_.empty()) AddToProjection(rows, count);
    if (!to.has_value()) return;
    const TensorView<float> d_x = RowsFrom(rows.d_x.view(), 0, count);
    Bmm(slopes, p_.options.projection, d_x, &pool_);
    ForEachRow(d_x.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      float sum = 0;
      for (int64_t f = 0; f < p_.feature_dim && keys; ++f) sum += slopes(b, h, i, f);
      for (int64_t c = 0; c < p_.head_dim; ++c) {
        const float of_half = keys ? sum * rows.x.view()(b, h, i, c) : 0.0f;
        to(b, h, first + i, c) = p_.Factor(side) * (d_x(b, h, i, c) - of_half);
      }
    });
  }

  // Products of a segment in float32, their sum in float64.
  void AddToProjection(const SideRows& rows, int64_t count) {
    LinearGradients to;
    to.d_weight = part_.view();
    LinearBackward(RowsFrom(rows.x.view(), 0, count), p_.options.projection,
                   RowsFrom(rows.d_features.view(), 0, count), to, pool_);
    for (size_t n = 0; n < d_projection_.size(); ++n) {
      d_projection_[n] += double{part_.view().data[n]};
    }
  }

  // The peak of the first state says how large its row is.
  void StoreInitialState() {
    const TensorView<float>& to = to_.d_initial_state;
    if (!to.has_value()) return;
    ForEachFeature([&](int64_t b, int64_t h, int64_t f) {
      const bool is_source = sources_[Unit(b, h, f)] < 0;
      double peak = is_source ? d_peaks_[Unit(b, h, f)] : 0;
      for (int64_t e = 0; e < p_.state_cols; ++e) {
        const float gradient = d_state_.view()(b, h, f, e);
        to(b, h, f, e) = gradient;
        peak += double{gradient} * double{Border(0)(b, h, f, e)};
      }
      to(b, h, f, p_.state_cols) =
          BorderPeaks(0)(b, h, 0, f) == kNoPeak ? 0.0f : static_cast<float>(peak);
    });
  }

  const RecurrentBackwardProblem& g_;
  const RecurrentProblem& p_;
  const RecurrentGradients& to_;
  ThreadPool& pool_;
  int64_t segment_;
  SideRows keys_, queries_;
  OwnedTensor decays_, raised_;  // [batch, num_kv_heads, segment, features]
  OwnedTensor peaks_;            // [batch, num_kv_heads, 1, features]
  TokenFactors factors_;
  OwnedTensor d_state_, d_before_;
  std::vector<OwnedTensor> borders_, border_peaks_;  // before each segment, and after the last
  ScratchVector<int64_t> sources_;                   // the key that a last peak is of, -1: none
  ScratchVector<double> d_peaks_;                    // what it gets beside its features
  ScratchVector<double> d_projection_;
  OwnedTensor part_;  // of it, from one segment
  std::vector<int32_t> lengths_;
};

}  // namespace

void RunRandomBackward(const RecurrentBackwardProblem& g, ThreadPool& pool) {
  RandomBackward backward(g, pool);
  if (DryRun::Current() == nullptr) backward.Run();
}

}  // namespace heed
