// The attention-free transformer where rows see more and more keys, without a bias: one pass
// forward, in which each row goes on from the one before it, and one back, in which what arrives at
// rows is summed for the keys that they all see.
#if defined(HEED_COMPOSE_BACKWARD_GROWING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_COMPOSE_BACKWARD_GROWING_INL_H_
#undef HEED_COMPOSE_BACKWARD_GROWING_INL_H_
#else
#define HEED_COMPOSE_BACKWARD_GROWING_INL_H_
#endif

#include <algorithm>

#include "hwy/cache_control.h"
#include "src/compose/backward_attention_free-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A vector of channels of a KV head.
class GrowingChannels {
 public:
  // `rows` has kFreeRowVectors vectors for each query.
  GrowingChannels(const FreeBackward& g, int64_t b, int64_t kv_head, int64_t vector, float* rows)
      : g_(g), b_(b), kv_head_(kv_head), columns_(g.width(), vector), rows_(rows) {}

  void Run() {
    const int64_t group = g_.p.pairs.group, q_len = g_.p.q.shape[2];
    const KeyRange seen =
        group * q_len > 0 ? VisibleKeys(g_.p.pairs, b_, q_len - 1) : KeyRange{0, 0};
    for (int64_t j = 0; j < g_.p.k.shape[2]; ++j) {
      if (j >= seen.begin && j < seen.end) continue;
      if (g_.d_k.has_value()) columns_.Store(hn::Zero(DF()), RowOf(g_.d_k, b_, kv_head_, j));
      if (g_.d_v.has_value()) columns_.Store(hn::Zero(DF()), RowOf(g_.d_v, b_, kv_head_, j));
    }
    for (int64_t h = kv_head_ * group; h < (kv_head_ + 1) * group; ++h) {
      SumRows(h);
      adds_ = h > kv_head_ * group;
      if (g_.d_k.has_value() || g_.d_v.has_value()) AddToKeys(seen);
    }
  }

 private:
  // Lines of a row are far apart: without a hint the machine waits for each of them.
  static constexpr int64_t kRowsAhead = 16;

  void SumRows(int64_t h) {
    FreeMean mean;
    int64_t done = 0;
    for (int64_t i = 0; i < g_.p.q.shape[2]; ++i) {
      const KeyRange keys = VisibleKeys(g_.p.pairs, b_, i);
      for (int64_t j = std::max(done, keys.begin); j < keys.end; ++j) {
        mean.Add(columns_.Load(RowOf(g_.p.k, b_, kv_head_, j)),
                 columns_.Load(RowOf(g_.p.v, b_, kv_head_, j)));
      }
      done = std::max(done, keys.end);
      const int64_t ahead = std::min(i + kRowsAhead, g_.p.q.shape[2] - 1);
      hwy::Prefetch(RowOf(g_.p.q, b_, h, ahead) + columns_.c);
      hwy::Prefetch(RowOf(g_.d_output, b_, h, ahead) + columns_.c);
      FinishFreeRow(g_, columns_, b_, h, i, mean, Row(i));
    }
  }

  // What arrives at rows from the last one on, relative to the largest exponent of the newest: a
  // key gets from all rows that see it e^(key - max) times these sums.
  struct RowSums {
    VF max;
    WideSum shares, means;

    explicit HWY_INLINE RowSums(VF last) : max(last) {}
    HWY_INLINE void Add(VF row_max, VF share, VF mean) {
      if (!hn::AllTrue(DF(), hn::Eq(row_max, max))) {
        const VF fall = ExpBelow(row_max, max);
        shares.Scale(fall);
        means.Scale(fall);
        max = row_max;
      }
      shares.Add(share);
      means.AddProduct(share, mean);
    }
  };

  // From the last row to the first; a key gets its sums when no row that is left sees it.
  void AddToKeys(const KeyRange& seen) {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    int64_t i = g_.p.q.shape[2];
    if (i == 0) return;
    int64_t left = seen.end;  // keys at and beyond it are done
    RowSums sums(hn::Load(d, Row(i - 1)));
    while (i-- > 0) {
      const KeyRange keys = VisibleKeys(g_.p.pairs, b_, i);
      if (keys.begin == keys.end) break;
      while (left > keys.end) AddToKey(--left, sums);
      const float* row = Row(i);
      sums.Add(hn::Load(d, row), hn::Load(d, row + lanes), hn::Load(d, row + 2 * lanes));
    }
    while (left > seen.begin) AddToKey(--left, sums);
  }

  void AddToKey(int64_t j, const RowSums& sums) const {
    const VF key = columns_.Load(RowOf(g_.p.k, b_, kv_head_, j));
    const VF weight = ExpBelow(key, sums.max);
    if (g_.d_v.has_value()) {
      WideSum d_v = sums.shares;
      d_v.Scale(weight);
      AddTo(key, d_v, RowOf(g_.d_v, b_, kv_head_, j));
    }
    if (g_.d_k.has_value()) {
      const VF value = columns_.Load(RowOf(g_.p.v, b_, kv_head_, j));
      WideSum d_k;
      d_k.low = hn::MulSub(WideSum::Low(value), sums.shares.low, sums.means.low);
      d_k.high = hn::MulSub(WideSum::High(value), sums.shares.high, sums.means.high);
      d_k.Scale(weight);
      AddTo(key, d_k, RowOf(g_.d_k, b_, kv_head_, j));
    }
  }

  HWY_INLINE void AddTo(VF key, const WideSum& sum, float* to) const {
    const VF before = adds_ ? columns_.Load(to) : hn::Zero(DF());
    columns_.Store(hn::Add(before, Present(key, sum.Rounded())), to);
  }

  float* Row(int64_t i) const {
    return rows_ + static_cast<size_t>(i) * kFreeRowVectors * hn::Lanes(DF());
  }

  const FreeBackward& g_;
  int64_t b_, kv_head_;
  FreeColumns columns_;
  float* rows_;
  bool adds_ = false;  // to what another head gave
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_COMPOSE_BACKWARD_GROWING_INL_H_
