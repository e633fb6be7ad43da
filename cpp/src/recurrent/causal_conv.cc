// heed::CausalConv: validation, blocks of tokens, and the filters.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/recurrent/causal_conv.cc"
#include "heed/causal_conv.h"

#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/message.h"
#include "src/output_spans.h"
#include "src/parallel/dry_run.h"
#include "src/recurrent/causal_conv_problem.h"
#include "src/simd/fma-inl.h"
#include "src/simd/sigmoid-inl.h"
#include "src/view_checks.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Tokens [first, last) of one head, of which none is beyond the length: channel by channel, so that
// the taps of a vector of channels stay at hand.
void ConvolveBlock(const ConvProblem& p, int64_t b, int64_t h, int64_t first, int64_t last) {
  const DF d;
  const size_t lanes = hn::Lanes(d), dim = static_cast<size_t>(p.dim);
  const size_t width = static_cast<size_t>(p.width), count = static_cast<size_t>(last - first);
  const float* rows[kConvBlock + static_cast<size_t>(kMaxConvWidth)];
  size_t absent = 0;  // rows before the first token, without a state
  for (size_t r = 0; r + 1 < count + width; ++r) {
    rows[r] = p.Row(b, h, first + static_cast<int64_t>(r + 1) - p.width);
    if (rows[r] == nullptr) absent = r + 1;
  }
  HWY_ALIGN float taps[static_cast<size_t>(kMaxConvWidth) * hn::MaxLanes(d)] = {};
  HWY_ALIGN float start[hn::MaxLanes(d)] = {};
  for (size_t c = 0; c < dim; c += lanes) {
    const size_t here = std::min(lanes, dim - c);
    for (size_t x = 0; x < here; ++x) {
      const int64_t channel = static_cast<int64_t>(c + x);
      start[x] = p.Bias(h, channel);
      for (size_t j = 0; j < width; ++j) {
        taps[j * lanes + x] = p.weight(0, h, channel, static_cast<int64_t>(j));
      }
    }
    for (size_t t = 0; t < count; ++t) {
      VF sum = hn::Load(d, start);
      for (size_t j = absent > t ? absent - t : 0; j < width; ++j) {
        sum = Fma(hn::Load(d, taps + j * lanes), hn::LoadN(d, rows[t + j] + c, here), sum);
      }
      if (p.activation == ConvActivation::kSilu) sum = hn::Mul(sum, Sigmoid(d, sum));
      hn::StoreN(sum, d, &p.outputs.output(b, h, first + static_cast<int64_t>(t), 0) + c, here);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(ConvolveBlock);

namespace {

void CheckLengths(const ConvProblem& p) {
  if (p.lengths.empty()) return;
  if (p.lengths.size() != static_cast<size_t>(p.batch)) {
    Fail(ErrorCode::kShape, "key_lengths has {} values; expected one per batch entry ({})",
         {p.lengths.size(), p.batch});
  }
  for (const int32_t length : p.lengths) {
    if (length < 0 || length > p.len) {
      Fail(ErrorCode::kRange, "key_lengths holds {}; lengths lie in [0, len = {}]",
           {length, p.len});
    }
  }
}

void CheckConvOutputs(const ConvProblem& p) {
  const TensorView<float>& output = p.outputs.output;
  CheckOutput("output", StoredOutput(output), p.x.shape, "[batch, num_heads, len, dim], as x");
  const TensorView<float>& state = p.outputs.final_state;
  if (state.has_value()) {
    CheckOutput("final_state", StoredOutput(state), StateShape(p), kConvStateMeaning);
  }
  OutputSpans({{"final_state", state}, {"output", output}})
      .MayReplace("initial_state", p.initial_state)
      .ApartFrom("x", p.x)
      .ApartFrom("weight", p.weight)
      .ApartFrom("bias", p.bias)
      .ApartFrom("lengths", p.lengths);
}

void RunBlock(const ConvProblem& p, int64_t task) {
  const int64_t head = task / p.NumBlocks(), b = head / p.num_heads, h = head % p.num_heads;
  const int64_t first = task % p.NumBlocks() * static_cast<int64_t>(kConvBlock);
  const int64_t last = std::min(first + static_cast<int64_t>(kConvBlock), p.len);
  const int64_t end = std::clamp(p.Length(b), first, last);
  HWY_DYNAMIC_DISPATCH(ConvolveBlock)(p, b, h, first, end);
  for (int64_t t = end; t < last; ++t) std::fill_n(&p.outputs.output(b, h, t, 0), p.dim, 0.0f);
}

// The rows before the end. Where the state is replaced in place, what is read lies behind what is
// written.
void StoreState(const ConvProblem& p) {
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.num_heads; ++h) {
      for (int64_t r = 0; r + 1 < p.width; ++r) {
        const float* from = p.Row(b, h, p.Length(b) + r + 1 - p.width);
        float* to = &p.outputs.final_state(b, h, r, 0);
        if (from == nullptr) std::fill_n(to, p.dim, 0.0f);
        if (from != nullptr && from != to) std::copy_n(from, p.dim, to);
      }
    }
  }
}

}  // namespace

Extents StateShape(const ConvProblem& p) { return {p.batch, p.num_heads, p.width - 1, p.dim}; }

ConvProblem ValidateConv(const TensorView<const float>& x, const TensorView<const float>& weight,
                         const CausalConvOptions& options) {
  CheckInput("x", x);
  CheckPresent("weight", weight);
  ConvProblem p;
  p.batch = x.shape[0];
  p.num_heads = x.shape[1];
  p.len = x.shape[2];
  p.dim = x.shape[3];
  p.width = weight.shape[3];
  p.x = x;
  if (p.width < 1 || p.width > kMaxConvWidth) {
    Fail(ErrorCode::kShape, "weight has width {}; filters have 1 to {} taps",
         {p.width, kMaxConvWidth});
  }
  const int64_t filters = weight.shape[1];
  CheckShape("weight", weight.shape, {1, filters == 1 ? 1 : p.num_heads, p.dim, p.width},
             "[1, 1 or num_heads, dim, width]");
  p.weight = weight;
  if (filters == 1) p.weight.strides[1] = 0;
  p.filters = filters;
  p.bias = options.bias;
  if (!p.bias.empty() && p.bias.size() != static_cast<size_t>(filters * p.dim)) {
    Fail(ErrorCode::kShape, "bias has {} values; expected one per filter ({})",
         {p.bias.size(), filters * p.dim});
  }
  CheckEnum("activation", options.activation, ConvActivation::kSilu);
  p.activation = options.activation;
  p.lengths = options.lengths;
  CheckLengths(p);
  p.initial_state = options.initial_state;
  if (p.initial_state.has_value()) {
    CheckInput("initial_state", p.initial_state);
    CheckShape("initial_state", p.initial_state.shape, StateShape(p), kConvStateMeaning);
  }
  return p;
}

void CausalConv(TensorView<const float> x, TensorView<const float> weight,
                const CausalConvOptions& options, const CausalConvOutputs& outputs,
                ThreadPool* pool) {
  ConvProblem p = ValidateConv(x, weight, options);
  p.outputs = outputs;
  CheckConvOutputs(p);
  if (DryRun* const dry = DryRun::Current()) {
    double tokens = 0;
    for (int64_t b = 0; b < p.batch; ++b) tokens += static_cast<double>(p.Length(b));
    dry->AddFlops(2 * tokens * static_cast<double>(p.num_heads * p.dim * p.width));
    return;
  }
  const int64_t tasks = p.dim == 0 ? 0 : p.batch * p.num_heads * p.NumBlocks();
  // A few tokens are done before another thread has woken up.
  if (tasks * p.dim <= 4096 && p.len <= 4) {
    for (int64_t task = 0; task < tasks; ++task) RunBlock(p, task);
  } else {
    ThreadPool& threads = pool != nullptr ? *pool : DefaultThreadPool();
    threads.Run(tasks, [&](int64_t task, int) { RunBlock(p, task); });
  }
  if (outputs.final_state.has_value()) StoreState(p);
}

}  // namespace heed
#endif  // HWY_ONCE
