// Gradients of the causal convolution: a few channels of all tokens a task, from the last block of
// tokens to the first. With ds what arrives before the activation,
//
//   dx_t = sum_j w_j ds_(t + width - 1 - j),  dw_j = sum_t ds_t x_(t - (width - 1) + j),
//   dbias = sum_t ds_t,  and ds_t = dy_t (g + y (1 - g)), g = 1 / (1 + e^-s), of silu
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/recurrent/backward_conv.cc"
#include "src/recurrent/backward_conv.h"

#include <algorithm>
#include <vector>

#include "heed/registry.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/gradient/backward_views.h"
#include "src/gradient/request.h"
#include "src/parallel/worker_scratch.h"
#include "src/rows/norm-inl.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/register_tile-inl.h"
#include "src/simd/wide_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Channels of a task: whole vectors, and a few cache lines of a token, as they lie together. One
// line took 1.5 times as long (512 channels, Zen 4).
inline constexpr size_t kConvChannels = 64;
inline constexpr size_t kLeastConvChannels = 16;
inline constexpr int64_t kConvTokens = 32;  // of a block

// A vector of channels in float64, from float32 and from two vectors in memory.
HWY_INLINE WideSum Widen(const float* x) {
  return {LoadDoubles(x), LoadDoubles(x + hn::Lanes(DD()))};
}
HWY_INLINE WideSum LoadWide(const float* wide) {
  const DF d;
  const DD dd;
  return {hn::BitCast(dd, hn::Load(d, wide)), hn::BitCast(dd, hn::Load(d, wide + hn::Lanes(d)))};
}
HWY_INLINE void StoreWide(const WideSum& x, float* wide) {
  const DF d;
  hn::Store(hn::BitCast(d, x.low), d, wide);
  hn::Store(hn::BitCast(d, x.high), d, wide + hn::Lanes(d));
}
HWY_INLINE WideSum AddProduct(const WideSum& x, const WideSum& y, const WideSum& sum) {
  return {hn::MulAdd(x.low, y.low, sum.low), hn::MulAdd(x.high, y.high, sum.high)};
}

// A few channels of all tokens, whose gradients are theirs alone. The rows of a block of tokens are
// copied first: where they lie, they fall into the same few cache sets.
class ConvTask {
 public:
  // Floats of memory for `channels` channels.
  static size_t Floats(const ConvBackward& g, size_t channels) {
    const size_t width = static_cast<size_t>(g.p.width);
    return channels * (2 * Rows(width) + 5 * width + 4);
  }

  // The channels [first, first + channels), or as many as there are.
  ConvTask(const ConvBackward& g, int64_t first, size_t channels, float* memory)
      : g_(g),
        p_(g.p),
        first_(first),
        row_(channels),
        count_(std::min(channels, static_cast<size_t>(p_.dim - first))),
        width_(static_cast<size_t>(p_.width)),
        x_(memory),
        ds_(x_ + Rows(width_) * row_),
        taps_(ds_ + Rows(width_) * row_),
        wide_taps_(taps_ + width_ * row_),
        d_taps_(wide_taps_ + 2 * (width_ + 1) * row_) {
    for (size_t j = 0; j < width_; ++j) {
      for (size_t c = 0; c < row_; ++c) {
        taps_[j * row_ + c] =
            c < count_ ? p_.weight(0, 0, Channel(c), static_cast<int64_t>(j)) : 0.0f;
      }
      WidenRow(taps_ + j * row_, wide_taps_ + 2 * j * row_);
    }
    for (size_t c = 0; c < row_; ++c) x_[c] = c < count_ ? p_.Bias(0, Channel(c)) : 0.0f;
    WidenRow(x_, wide_taps_ + 2 * width_ * row_);
    std::fill_n(d_taps_, 2 * (width_ + 1) * row_, 0.0f);
  }

  void Run() {
    for (int64_t b = 0; b < p_.batch; ++b) RunEntry(b);
    for (size_t j = 0; j <= width_; ++j) {
      for (size_t c = 0; c < row_; c += hn::Lanes(DF())) {
        hn::Store(LoadWide(d_taps_ + 2 * (j * row_ + c)).Rounded(), DF(), x_ + c);
      }
      for (size_t c = 0; c < count_; ++c) {
        if (j < width_ && g_.d_weight.has_value()) {
          g_.d_weight(0, 0, Channel(c), static_cast<int64_t>(j)) = x_[c];
        }
        if (j == width_ && !g_.d_bias.empty()) g_.d_bias[static_cast<size_t>(Channel(c))] = x_[c];
      }
    }
  }

 private:
  // Of a block, and of the tokens before or after it that filters reach.
  static size_t Rows(size_t width) { return static_cast<size_t>(kConvTokens) + width - 1; }

  int64_t Channel(size_t c) const { return first_ + static_cast<int64_t>(c); }

  void WidenRow(const float* from, float* to) const {
    for (size_t c = 0; c < row_; c += hn::Lanes(DF())) StoreWide(Widen(from + c), to + 2 * c);
  }

  void RunEntry(int64_t b) {
    b_ = b;
    begin_ = length_ = p_.Length(b);
    for (int64_t t = length_; t < p_.len; ++t) WriteToken(t);
    while (begin_ > 0) {
      const int64_t end = begin_;
      begin_ = (end - 1) / kConvTokens * kConvTokens;
      if (end < length_) {
        float* const rows_end = ds_ + Rows(width_) * row_;
        std::copy_backward(ds_, ds_ + (width_ - 1) * row_, rows_end);
      }
      LoadBlock(static_cast<size_t>(end - begin_));
      if (p_.activation != ConvActivation::kNone) {
        for (size_t t = 0; t < tokens_; ++t) FindArriving(t);
      }
      AddToSums();
      for (int64_t t = begin_; t < end; ++t) WriteToken(t);
    }
    for (int64_t t = 1 - p_.width; t < 0; ++t) WriteToken(t);
  }

  // A row of channels, filled up with zeros.
  void CopyRow(const float* from, float* to) const {
    std::fill(std::copy_n(from, count_, to), to + row_, 0.0f);
  }

  // The tokens from begin_ on, with those before them that their filters reach.
  void LoadBlock(size_t tokens) {
    tokens_ = tokens;
    absent_ = 0;
    for (size_t r = 0; r + 1 < tokens_ + width_; ++r) {
      const float* row = p_.Row(b_, 0, begin_ + static_cast<int64_t>(r + 1) - p_.width);
      if (row == nullptr) {
        absent_ = r + 1;
      } else {
        CopyRow(row + first_, x_ + r * row_);
      }
    }
    for (size_t t = 0; t < tokens_; ++t) {
      CopyRow(&g_.d_out(b_, 0, begin_ + static_cast<int64_t>(t), first_), ds_ + t * row_);
    }
  }

  // The first tap that meets a token, of token t of the block; and the first token that tap t
  // meets.
  size_t FirstTap(size_t t) const { return absent_ > t ? absent_ - t : 0; }

  // What arrives at the sums of a token, from what arrives at its outputs.
  void FindArriving(size_t t) {
    const DF d;
    const DHalf dh;
    for (size_t c = 0; c < row_; c += hn::Lanes(d)) {
      WideSum sum = LoadWide(wide_taps_ + 2 * (width_ * row_ + c));
      for (size_t j = FirstTap(t); j < width_; ++j) {
        sum = AddProduct(LoadWide(wide_taps_ + 2 * (j * row_ + c)), Widen(x_ + (t + j) * row_ + c),
                         sum);
      }
      const WideSum power = {Power(sum.low), Power(sum.high)};
      const VF rounded = power.Rounded();
      VF e[1] = {rounded};
      Exp2NonPositive(d, e);
      float* const to = ds_ + t * row_ + c;
      const WideSum arriving = Widen(to);
      const WideSum ds = {
          hn::Mul(arriving.low,
                  Slope(sum.low, power.low, hn::LowerHalf(dh, rounded), hn::LowerHalf(dh, e[0]))),
          hn::Mul(arriving.high, Slope(sum.high, power.high, hn::UpperHalf(dh, rounded),
                                       hn::UpperHalf(dh, e[0])))};
      hn::Store(ds.Rounded(), d, to);
    }
  }

  // e^-|s| as a power of two, kept from overflow in float32.
  static HWY_INLINE VD Power(VD s) {
    const DD dd;
    const VD power = hn::Mul(hn::Abs(s), hn::Set(dd, -1.44269504088896340736));
    return RaiseToBound(power, hn::Set(dd, -200.0));
  }

  // g (1 + s (1 - g)), from e = e^-|s| but for what its exponent lost when it was rounded: at sums
  // of -16 that would be more than all else.
  static HWY_INLINE VD Slope(VD s, VD power, hn::Vec<DHalf> rounded, hn::Vec<DHalf> e) {
    const DD dd;
    const VD one = hn::Set(dd, 1.0);
    const VD lost = hn::Sub(power, hn::PromoteTo(dd, rounded));
    VD small = hn::PromoteTo(dd, e);
    small = hn::MulAdd(small, hn::Mul(lost, hn::Set(dd, 0.693147180559945309417)), small);
    const VD large = hn::Div(one, hn::Add(one, small));
    small = hn::Mul(small, large);
    const auto negative = hn::Lt(s, hn::Zero(dd));
    const VD gate = hn::IfThenElse(negative, small, large);
    const VD closed = hn::IfThenElse(negative, large, small);
    return hn::Mul(gate, hn::MulAdd(s, closed, one));
  }

  void AddToSums() {
    const DF d;
    for (size_t c = 0; c < row_; c += hn::Lanes(d)) {
      for (size_t j = 0; j < width_; ++j) {
        float* to = d_taps_ + 2 * (j * row_ + c);
        WideSum sum = LoadWide(to);
        for (size_t t = FirstTap(j); t < tokens_; ++t) {
          sum = AddProduct(Widen(ds_ + t * row_ + c), Widen(x_ + (t + j) * row_ + c), sum);
        }
        StoreWide(sum, to);
      }
      float* to = d_taps_ + 2 * (width_ * row_ + c);
      WideSum sum = LoadWide(to);
      for (size_t t = 0; t < tokens_; ++t) {
        const WideSum ds = Widen(ds_ + t * row_ + c);
        sum = {hn::Add(sum.low, ds.low), hn::Add(sum.high, ds.high)};
      }
      StoreWide(sum, to);
    }
  }

  // The gradient of token t >= -(width - 1), of whose filters those within the length count. ds_
  // begins with token begin_.
  void WriteToken(int64_t t) const {
    const TensorView<float>& gradient = t >= 0 ? g_.d_x : g_.d_initial_state;
    if (!gradient.has_value()) return;
    const DF d;
    float* to = &gradient(b_, 0, t >= 0 ? t : t + p_.width - 1, first_);
    const int64_t at = t - (length_ + 1 - p_.width);  // in the final state
    const bool in_state = g_.d_final_state.has_value() && at >= 0 && at + 1 < p_.width;
    const float* start = in_state ? &g_.d_final_state(b_, 0, at, first_) : nullptr;
    const int64_t begin = std::max<int64_t>(t, 0), end = std::min(t + p_.width, length_);
    for (size_t c = 0; c < count_; c += hn::Lanes(d)) {
      const size_t here = std::min(hn::Lanes(d), count_ - c);
      VF sum = in_state ? hn::LoadN(d, start + c, here) : hn::Zero(d);
      for (int64_t from = begin; from < end; ++from) {
        const size_t tap = static_cast<size_t>(t + p_.width - 1 - from) * row_;
        const size_t place = static_cast<size_t>(from - begin_) * row_;
        sum = Fma(hn::Load(d, taps_ + tap + c), hn::Load(d, ds_ + place + c), sum);
      }
      hn::StoreN(sum, d, to + c, here);
    }
  }

  const ConvBackward& g_;
  const ConvProblem& p_;
  int64_t first_;
  size_t row_, count_, width_;              // row_: of channels, count_ of which are there
  float* x_;                                // [rows][row_]
  float* ds_;                               // the same: of the block, then of the tokens after it
  float* taps_;                             // [width][row_]
  float* wide_taps_;                        // [width + 1][row_] in float64; the last is the bias
  float* d_taps_;                           // the same
  int64_t b_ = 0, begin_ = 0, length_ = 0;  // of the batch entry; begin_: of the block
  size_t tokens_ = 0;                       // of the block
  size_t absent_ = 0;                       // rows before the first token, without a state
};

void RunConvBackwardTasks(const ConvBackward& g, ThreadPool& pool) {
  const size_t dim = static_cast<size_t>(g.p.dim), threads = static_cast<size_t>(pool.NumThreads());
  const size_t channels = dim < threads * kConvChannels ? kLeastConvChannels : kConvChannels;
  std::vector<AlignedFloats> memory(threads);
  for (AlignedFloats& own : memory) own = AlignedFloats(ConvTask::Floats(g, channels));
  pool.Run(static_cast<int64_t>((dim + channels - 1) / channels), [&](int64_t task, int worker) {
    float* own = memory[static_cast<size_t>(worker)].get();
    ConvTask(g, task * static_cast<int64_t>(channels), channels, own).Run();
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {
namespace {

HWY_EXPORT(RunConvBackwardTasks);

ConvRequest ReadOf(const Request& request) {
  return ReadConv(RequestReader(*FindMechanism(request.id), request));
}

// [batch, len, channels] with one head.
TensorView<float> OneHead(std::span<const NamedTensor> tensors, std::string_view name) {
  return ViewOf(FindTensor(tensors, name), {0, -1, 1, 2});
}

BackwardPlan PlanConvBackward(const Request& request) {
  const ConvRequest r = ReadOf(request);
  const ConvProblem p = ValidateConv(r.x, r.weight, r.options);
  BackwardPlan plan;
  plan.results.push_back({"output", 3, {p.batch, p.len, p.dim}});
  if (r.return_state) plan.results.push_back({"state", 3, {p.batch, p.width - 1, p.dim}});
  plan.gradients = GradientsOf(request, {"signal", "conv_weight", "conv_bias", "conv_state"});
  return plan;
}

void RunConvForward(const Request& request, std::span<const NamedTensor> results,
                    ThreadPool* pool) {
  const ConvRequest r = ReadOf(request);
  CausalConv(r.x, r.weight, r.options, {OneHead(results, "output"), OneHead(results, "state")},
             pool);
}

void RunConvBackward(const Request& request, std::span<const NamedTensor>,
                     std::span<const NamedTensor> d_results, std::span<const NamedTensor> gradients,
                     ThreadPool* pool) {
  CheckAreFloats(d_results, gradients);
  CheckAreRows(gradients);
  const ConvRequest r = ReadOf(request);
  ConvBackward g;
  g.p = ValidateConv(r.x, r.weight, r.options);
  g.d_out = OneHead(d_results, "output");
  g.d_final_state = OneHead(d_results, "state");
  g.d_x = OneHead(gradients, "signal");
  g.d_weight = LeadingViewOf(FindTensor(gradients, "conv_weight"));
  g.d_bias = VectorOf(FindTensor(gradients, "conv_bias"));
  g.d_initial_state = OneHead(gradients, "conv_state");
  HWY_DYNAMIC_DISPATCH(RunConvBackwardTasks)
  (g, pool != nullptr ? *pool : DefaultThreadPool());
}

}  // namespace

const GradientVerbs kConvGradient = {PlanConvBackward, RunConvForward, RunConvBackward};

}  // namespace heed
#endif  // HWY_ONCE
