// The attention-free transformer pair by pair, where rows see what they like: the means of a row,
// then what a block of keys gets from all rows, then what a row of the bias gets.
#if defined(HEED_COMPOSE_BACKWARD_FREE_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_COMPOSE_BACKWARD_FREE_PAIRS_INL_H_
#undef HEED_COMPOSE_BACKWARD_FREE_PAIRS_INL_H_
#else
#define HEED_COMPOSE_BACKWARD_FREE_PAIRS_INL_H_
#endif

#include <algorithm>

#include "src/compose/backward_attention_free-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keys of a task, and queries whose sums are taken in float32 before they join the total.
inline constexpr int64_t kFreeKeys = 16;
inline constexpr int64_t kFreeQueries = 32;

// Memory of one worker.
struct FreePairsScratch {
  ScratchVector<int64_t> keys;  // that a row sees
  ScratchVector<float> biases;
  ScratchVector<double> d_k, d_v;  // [kFreeKeys][vectors of channels]
  ScratchVector<double> d_bias;    // [columns]

  explicit FreePairsScratch(const FreeBackward& g) {
    const size_t len = static_cast<size_t>(g.p.k.shape[2]);
    const size_t channels = static_cast<size_t>(FreeVectors(g.width())) * hn::Lanes(DF());
    keys.resize(len);
    biases.resize(len);
    d_k.resize(static_cast<size_t>(kFreeKeys) * channels);
    d_v.resize(static_cast<size_t>(kFreeKeys) * channels);
    if (g.d_bias.has_value()) d_bias.resize(static_cast<size_t>(g.d_bias.shape[3]));
  }
};

class FreePairs {
 public:
  // `rows` is [batch, num_heads, vectors of channels, q_len] of kFreeRowVectors vectors each.
  FreePairs(const FreeBackward& g, const SeenKeys& seen, float* rows, FreePairsScratch& scratch)
      : g_(g), seen_(seen), rows_(rows), scratch_(scratch), vectors_(FreeVectors(g.width())) {}

  void SumRow(int64_t b, int64_t h, int64_t i) {
    CollectKeys(b, h, i);
    const int64_t kv_head = g_.KvHead(h);
    for (int64_t vector = 0; vector < vectors_; ++vector) {
      const FreeColumns columns(g_.width(), vector);
      FreeMean mean;
      for (size_t n = 0; n < count_; n += kRun) {
        AddKeys(columns, b, kv_head, n, std::min(count_, n + kRun), mean);
      }
      FinishFreeRow(g_, columns, b, h, i, mean, Row(b, h, vector, i));
    }
  }

  // Sums over the heads that share the keys [first, first + kFreeKeys), and their queries.
  void KeyBlock(int64_t b, int64_t kv_head, int64_t first) {
    std::fill(scratch_.d_k.begin(), scratch_.d_k.end(), 0.0);
    std::fill(scratch_.d_v.begin(), scratch_.d_v.end(), 0.0);
    const int64_t group = g_.p.pairs.group;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (int64_t i = 0; i < g_.p.q.shape[2]; i += kFreeQueries) AddQueries(b, h, i, first);
    }
    const int64_t end = std::min(g_.p.k.shape[2], first + kFreeKeys);
    for (int64_t j = first; j < end; ++j) {
      if (g_.d_k.has_value()) StoreKey(scratch_.d_k, j - first, RowOf(g_.d_k, b, kv_head, j));
      if (g_.d_v.has_value()) StoreKey(scratch_.d_v, j - first, RowOf(g_.d_v, b, kv_head, j));
    }
  }

  // A row of the bias is the sum over the batch entries, heads and queries that it broadcasts to.
  void BiasRow(int64_t b, int64_t h, int64_t i) {
    const TensorView<float>& to = g_.d_bias;
    ScratchVector<double>& sums = scratch_.d_bias;
    std::fill(sums.begin(), sums.end(), 0.0);
    const Extents& q = g_.p.q.shape;
    const auto last = [&](size_t axis, int64_t n) {
      return to.shape[axis] == q[axis] ? n + 1 : q[axis];
    };
    for (int64_t from_b = b; from_b < last(0, b); ++from_b) {
      for (int64_t from_h = h; from_h < last(1, h); ++from_h) {
        for (int64_t from_i = i; from_i < last(2, i); ++from_i) AddBias(from_b, from_h, from_i);
      }
    }
    for (size_t j = 0; j < sums.size(); ++j) {
      to(b, h, i, static_cast<int64_t>(j)) = static_cast<float>(sums[j]);
    }
  }

 private:
  static constexpr size_t kRun = 64;  // keys whose sums are taken in float32

  void CollectKeys(int64_t b, int64_t h, int64_t i) {
    count_ = 0;
    g_.ForEachKey(seen_, b, h, i, 0, g_.p.k.shape[2], [&](int64_t j, float bias) {
      scratch_.keys[count_] = j;
      scratch_.biases[count_++] = bias;
    });
  }

  float* Row(int64_t b, int64_t h, int64_t vector, int64_t i) const {
    const Extents& q = g_.p.q.shape;
    const int64_t row = ((b * q[1] + h) * vectors_ + vector) * q[2] + i;
    return rows_ + static_cast<size_t>(row) * kFreeRowVectors * hn::Lanes(DF());
  }

  HWY_INLINE VF Exponent(const FreeColumns& columns, int64_t b, int64_t kv_head, size_t n) const {
    const VF key = columns.Load(RowOf(g_.p.k, b, kv_head, scratch_.keys[n]));
    return hn::Add(key, hn::Set(DF(), scratch_.biases[n]));
  }

  // The keys [from, to) of the list.
  void AddKeys(const FreeColumns& columns, int64_t b, int64_t kv_head, size_t from, size_t to,
               FreeMean& mean) const {
    const DF d;
    VF max = mean.max;
    for (size_t n = from; n < to; ++n) max = hn::Max(max, Exponent(columns, b, kv_head, n));
    mean.RaiseTo(max);
    VF sum = hn::Zero(d), values = hn::Zero(d);
    for (size_t n = from; n < to; ++n) {
      const VF x = Exponent(columns, b, kv_head, n);
      const VF v = columns.Load(RowOf(g_.p.v, b, kv_head, scratch_.keys[n]));
      const VF weight = ExpBelow(x, max);
      sum = hn::Add(sum, weight);
      values = Fma(weight, Present(x, v), values);
    }
    mean.sum.Add(sum);
    mean.values.Add(values);
  }

  // What a pair gives to its value; times v - m, to its key and its bias.
  static HWY_INLINE VF Share(VF x, const float* row) {
    const DF d;
    const VF weight = ExpBelow(x, hn::Load(d, row));
    return Present(x, hn::Mul(weight, hn::Load(d, row + hn::Lanes(d))));
  }
  static HWY_INLINE VF ScoreGradient(VF x, VF share, VF v, const float* row) {
    const DF d;
    const VF away = hn::Sub(v, hn::Load(d, row + 2 * hn::Lanes(d)));
    return Present(x, hn::Mul(share, away));
  }

  // The queries [i, i + kFreeQueries) of a head, or as many as there are.
  void AddQueries(int64_t b, int64_t h, int64_t i, int64_t first) {
    const int64_t queries = std::min(kFreeQueries, g_.p.q.shape[2] - i);
    const int64_t end = std::min(g_.p.k.shape[2], first + kFreeKeys);
    float biases[kFreeKeys][kFreeQueries];  // -inf: hidden
    std::fill_n(&biases[0][0], kFreeKeys * kFreeQueries, -std::numeric_limits<float>::infinity());
    for (int64_t r = 0; r < queries; ++r) {
      g_.ForEachKey(seen_, b, h, i + r, first, end,
                    [&](int64_t j, float bias) { biases[j - first][r] = bias; });
    }
    for (int64_t vector = 0; vector < vectors_; ++vector) {
      const float* rows = Row(b, h, vector, i);
      for (int64_t j = first; j < end; ++j) {
        AddKeySums(b, g_.KvHead(h), j, vector, biases[j - first], queries, rows,
                   ((j - first) * vectors_ + vector) * static_cast<int64_t>(hn::Lanes(DF())));
      }
    }
  }

  // Of key j, whose sums lie at `place`.
  void AddKeySums(int64_t b, int64_t kv_head, int64_t j, int64_t vector, const float* biases,
                  int64_t queries, const float* rows, int64_t place) {
    const DF d;
    const FreeColumns columns(g_.width(), vector);
    const VF key = columns.Load(RowOf(g_.p.k, b, kv_head, j));
    const VF value = columns.Load(RowOf(g_.p.v, b, kv_head, j));
    VF d_k = hn::Zero(d), d_v = hn::Zero(d);
    for (int64_t r = 0; r < queries; ++r, rows += kFreeRowVectors * hn::Lanes(d)) {
      if (biases[r] == -std::numeric_limits<float>::infinity()) continue;
      const VF x = hn::Add(key, hn::Set(d, biases[r]));
      const VF share = Share(x, rows);
      d_v = hn::Add(d_v, share);
      d_k = hn::Add(d_k, ScoreGradient(x, share, value, rows));
    }
    AddWide(d_k, scratch_.d_k.data() + place);
    AddWide(d_v, scratch_.d_v.data() + place);
  }

  static HWY_INLINE void AddWide(VF x, double* to) {
    const DD dd;
    hn::StoreU(hn::Add(hn::LoadU(dd, to), WideSum::Low(x)), dd, to);
    to += hn::Lanes(dd);
    hn::StoreU(hn::Add(hn::LoadU(dd, to), WideSum::High(x)), dd, to);
  }

  void StoreKey(const ScratchVector<double>& sums, int64_t key, float* to) const {
    const double* from = sums.data() + key * vectors_ * static_cast<int64_t>(hn::Lanes(DF()));
    for (int64_t c = 0; c < g_.width(); ++c) to[c] = static_cast<float>(from[c]);
  }

  void AddBias(int64_t b, int64_t h, int64_t i) {
    const DF d;
    CollectKeys(b, h, i);
    const bool one = scratch_.d_bias.size() == 1;
    const int64_t kv_head = g_.KvHead(h);
    for (size_t n = 0; n < count_; ++n) {
      const int64_t j = scratch_.keys[n];
      if (!g_.HasBias(b, i, j)) continue;
      VF sum = hn::Zero(d);
      for (int64_t vector = 0; vector < vectors_; ++vector) {
        const FreeColumns columns(g_.width(), vector);
        const float* row = Row(b, h, vector, i);
        const VF x = Exponent(columns, b, kv_head, n);
        const VF v = columns.Load(RowOf(g_.p.v, b, kv_head, j));
        sum = hn::Add(sum, ScoreGradient(x, Share(x, row), v, row));
      }
      scratch_.d_bias[one ? 0 : static_cast<size_t>(j)] +=
          static_cast<double>(hn::ReduceSum(d, sum));
    }
  }

  const FreeBackward& g_;
  const SeenKeys& seen_;
  float* rows_;
  FreePairsScratch& scratch_;
  int64_t vectors_;
  size_t count_ = 0;  // keys in the list
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_COMPOSE_BACKWARD_FREE_PAIRS_INL_H_
