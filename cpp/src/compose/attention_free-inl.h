// The loop of the attention-free transformer: every channel keeps a running maximum, the sum of its
// weights relative to it, and the sum of weighted values.
#if defined(HEED_COMPOSE_ATTENTION_FREE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_COMPOSE_ATTENTION_FREE_INL_H_
#undef HEED_COMPOSE_ATTENTION_FREE_INL_H_
#else
#define HEED_COMPOSE_ATTENTION_FREE_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "hwy/highway.h"
#include "src/compose/attention_free_problem.h"
#include "src/exact/keep/key_bits.h"
#include "src/exact/keep/plugs.h"
#include "src/exact/keep/range.h"
#include "src/exact/tile.h"
#include "src/parallel/worker_scratch.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/register_tile-inl.h"
#include "src/simd/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct FreePlan {
  const AttentionFreeProblem& p;
  KeepPlugs keep;
  bool goes_on;  // does a row begin with what the row before it has summed?

  explicit FreePlan(const AttentionFreeProblem& problem)
      : p(problem),
        keep(MakeKeepPlugs(problem.pairs)),
        goes_on(!problem.pairs.options.bias.has_value() && keep.empty()) {}
};

// Memory of one worker: whole vectors of channels.
struct FreeScratch {
  size_t width;
  AlignedFloats memory;  // max, sum, values
  explicit FreeScratch(const AttentionFreeProblem& p)
      : width(RoundUp(static_cast<size_t>(p.q.shape[3]), hn::Lanes(DF()))), memory(3 * width) {}
  float* max() const { return memory.get(); }
  float* sum() const { return memory.get() + width; }
  float* values() const { return memory.get() + 2 * width; }
};

class FreeLoop {
 public:
  FreeLoop(const FreePlan& plan, int64_t b, int64_t h, FreeScratch& scratch)
      : plan_(plan),
        p_(plan.p),
        b_(b),
        h_(h),
        kv_head_(h / std::max<int64_t>(1, plan.p.pairs.group)),
        width_(static_cast<size_t>(plan.p.q.shape[3])),
        state_(scratch) {
    Reset();
  }

  void Run(int64_t i) {
    const KeyRange keys = VisibleKeys(p_.pairs, b_, i);
    if (!plan_.goes_on || keys.begin != begin_ || keys.end < end_) Reset();
    begin_ = keys.begin;
    for (int64_t j = std::max(keys.begin, end_); j < keys.end; j = TileEnd(j, keys.end)) {
      CollectKeys(i, j, TileEnd(j, keys.end), keys);
      AddKeys();
    }
    end_ = std::max(end_, keys.end);
    WriteRow(i);
  }

 private:
  static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

  void Reset() {
    std::fill_n(state_.max(), state_.width, kMinusInfinity);
    std::fill_n(state_.sum(), 2 * state_.width, 0.0f);
    begin_ = end_ = 0;
    any_ = false;
  }

  static int64_t TileEnd(int64_t j, int64_t end) {
    const int64_t tile = static_cast<int64_t>(kTileKeys);
    return std::min(end, (j / tile + 1) * tile);
  }

  // The keys of [from, to), within one tile, that query i sees, and their biases.
  void CollectKeys(int64_t i, int64_t from, int64_t to, const KeyRange& keys) {
    const AttentionProblem& pairs = p_.pairs;
    const int64_t position = i + pairs.position[static_cast<size_t>(b_)];
    const Row row = {h_, i, position, keys};
    const int64_t tile = from / static_cast<int64_t>(kTileKeys) * static_cast<int64_t>(kTileKeys);
    KeyBits bits;
    bits.SetRange(static_cast<size_t>(from - tile), static_cast<size_t>(to - tile));
    const KeepTile keep_tile = {b_, &row, 1, tile, static_cast<size_t>(to - tile)};
    for (const auto& keep : plan_.keep) keep->Narrow(keep_tile, &bits);
    count_ = 0;
    for (int64_t j = from; j < to; ++j) {
      if (!bits.Test(static_cast<size_t>(j - tile))) continue;
      const float bias = BiasOf(i, position, j);
      if (bias == kMinusInfinity) continue;
      keys_[count_] = j;
      biases_[count_++] = bias;
    }
    any_ = any_ || count_ > 0;
  }

  float BiasOf(int64_t i, int64_t position, int64_t j) const {
    const TensorView<const float>& bias = p_.pairs.options.bias;
    if (!bias.has_value()) return 0;
    if (p_.local && std::abs(position - j) >= *p_.local) return 0;
    return bias(b_, h_, i, j);
  }

  const float* KeyRow(size_t n) const { return p_.k.data + Offset(p_.k, keys_[n]); }
  const float* ValueRow(size_t n) const { return p_.v.data + Offset(p_.v, keys_[n]); }
  int64_t Offset(const TensorView<const float>& view, int64_t j) const {
    return b_ * view.strides[0] + kv_head_ * view.strides[1] + j * view.strides[2];
  }

  // A vector of a row from column c, the last one filled up with zeros.
  HWY_INLINE VF LoadAt(const float* row, size_t c) const {
    const DF d;
    return width_ - c >= hn::Lanes(d) ? hn::LoadU(d, row + c) : hn::LoadN(d, row + c, width_ - c);
  }

  // One tile of keys is summed by itself before it joins the total: shorter chains.
  void AddKeys() {
    const DF d;
    for (size_t c = 0; c < width_; c += hn::Lanes(d)) {
      const VF old_max = hn::Load(d, state_.max() + c);
      VF max = old_max;
      for (size_t n = 0; n < count_; ++n) {
        max = hn::Max(max, hn::Add(LoadAt(KeyRow(n), c), hn::Set(d, biases_[n])));
      }
      // While a channel has seen nothing there is nothing to subtract: -inf - -inf would be NaN.
      const VF base = hn::IfThenZeroElse(hn::Eq(max, hn::Set(d, kMinusInfinity)), max);
      VF sum = hn::Zero(d), values = hn::Zero(d);
      size_t n = 0;
      for (; n + 4 <= count_; n += 4) AddVectors<4>(n, c, base, sum, values);
      for (; n < count_; ++n) AddVectors<1>(n, c, base, sum, values);
      VF fall[1] = {hn::Mul(hn::Sub(old_max, base), hn::Set(d, kLog2E))};
      Exp2NonPositive(d, fall);
      hn::Store(max, d, state_.max() + c);
      hn::Store(Fma(hn::Load(d, state_.sum() + c), fall[0], sum), d, state_.sum() + c);
      hn::Store(Fma(hn::Load(d, state_.values() + c), fall[0], values), d, state_.values() + c);
    }
  }

  // Adds a few keys side by side: one exponential by itself would be all waiting. A key whose
  // exponent is -inf in a channel is not there: its value, even NaN, is left out.
  template <size_t kCount>
  HWY_INLINE void AddVectors(size_t n, size_t c, VF base, VF& sum, VF& values) const {
    const DF d;
    VF s[kCount];
    VF weight[kCount];
    for (size_t m = 0; m < kCount; ++m) {
      s[m] = hn::Add(LoadAt(KeyRow(n + m), c), hn::Set(d, biases_[n + m]));
      weight[m] = hn::Mul(hn::Sub(s[m], base), hn::Set(d, kLog2E));
    }
    Exp2NonPositive(d, weight);
    for (size_t m = 0; m < kCount; ++m) {
      const auto gone = hn::Eq(s[m], hn::Set(d, kMinusInfinity));
      sum = hn::Add(sum, weight[m]);
      values = Fma(weight[m], hn::IfThenZeroElse(gone, LoadAt(ValueRow(n + m), c)), values);
    }
  }

  void WriteRow(int64_t i) const {
    const DF d;
    const float* q = p_.q.data + b_ * p_.q.strides[0] + h_ * p_.q.strides[1] + i * p_.q.strides[2];
    float* to = &p_.output(b_, h_, i, 0);
    if (!any_) {
      std::fill_n(to, width_, 0.0f);
      return;
    }
    for (size_t c = 0; c < width_; c += hn::Lanes(d)) {
      const VF sum = hn::Load(d, state_.sum() + c);
      const VF mean = hn::Div(hn::Load(d, state_.values() + c), sum);
      const VF gated = hn::Mul(mean, Sigmoid(d, LoadAt(q, c)));
      const VF result = hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), gated);
      hn::StoreN(result, d, to + c, std::min(hn::Lanes(d), width_ - c));
    }
  }

  const FreePlan& plan_;
  const AttentionFreeProblem& p_;
  int64_t b_, h_, kv_head_;
  size_t width_;
  FreeScratch& state_;
  int64_t begin_ = 0, end_ = 0;  // keys in the state
  bool any_ = false;
  size_t count_ = 0;
  int64_t keys_[kTileKeys];
  float biases_[kTileKeys];
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_COMPOSE_ATTENTION_FREE_INL_H_
