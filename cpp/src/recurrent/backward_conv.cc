// Gradients of the causal convolution, channel by channel: with ds what arrives before the
// activation,
//
//   dx_t = sum_j w_j ds_(t + width - 1 - j),  dw_j = sum_t ds_t x_(t - (width - 1) + j),
//   dbias = sum_t ds_t,  and ds_t = dy_t (g + y (1 - g)), g = 1 / (1 + e^-s), of silu
#include <algorithm>
#include <cmath>

#include "heed/registry.h"
#include "src/gradient/backward_views.h"
#include "src/gradient/request.h"
#include "src/parallel/dry_run.h"
#include "src/recurrent/causal_conv_problem.h"

namespace heed {
namespace {

constexpr int64_t kChannels = 16;  // of a task: a cache line of a token

struct ConvBackward {
  ConvProblem p;
  TensorView<const float> d_out, d_final_state;  // the second absent = 0
  TensorView<float> d_x, d_weight, d_initial_state;
  std::span<float> d_bias;
};

// A few channels of all tokens, whose gradients are theirs alone.
class ChannelBlock {
 public:
  ChannelBlock(const ConvBackward& g, int64_t first)
      : g_(g), p_(g.p), first_(first), count_(std::min(kChannels, p_.dim - first)) {
    for (int64_t j = 0; j < p_.width; ++j) {
      for (int64_t c = 0; c < count_; ++c) taps_[j].at[c] = p_.weight(0, 0, first_ + c, j);
    }
  }

  void Run() {
    for (int64_t b = 0; b < p_.batch; ++b) {
      Start(b);
      for (int64_t t = 0; t < p_.Length(b); ++t) AddToken(b, t);
    }
    for (int64_t c = 0; c < count_; ++c) {
      if (!g_.d_bias.empty()) {
        g_.d_bias[static_cast<size_t>(first_ + c)] = static_cast<float>(bias_[c]);
      }
      for (int64_t j = 0; j < p_.width && g_.d_weight.has_value(); ++j) {
        g_.d_weight(0, 0, first_ + c, j) = static_cast<float>(weight_[j][c]);
      }
    }
  }

 private:
  // The gradient of token t >= -(width - 1), nullptr where it is not wanted.
  float* Row(int64_t b, int64_t t) const {
    const TensorView<float>& to = t >= 0 ? g_.d_x : g_.d_initial_state;
    return to.has_value() ? &to(b, 0, t >= 0 ? t : t + p_.width - 1, first_) : nullptr;
  }

  // What arrives at the final state, which holds the last tokens.
  void Start(int64_t b) const {
    for (int64_t t = 1 - p_.width; t < p_.len; ++t) {
      float* to = Row(b, t);
      if (to == nullptr) continue;
      const int64_t at = t - (p_.Length(b) + 1 - p_.width);
      if (g_.d_final_state.has_value() && at >= 0 && at + 1 < p_.width) {
        std::copy_n(&g_.d_final_state(b, 0, at, first_), count_, to);
      } else {
        std::fill_n(to, count_, 0.0f);
      }
    }
  }

  // Channels of a token, zeros beyond the last: loops over all kChannels have no remainder.
  struct Channels {
    float at[kChannels] = {};
  };
  Channels Load(const float* row) const {
    Channels channels;
    // A constant count is no call.
    if (count_ == kChannels) {
      std::copy_n(row, kChannels, channels.at);
    } else {
      std::copy_n(row, count_, channels.at);
    }
    return channels;
  }

  // What arrives at the channels of token t before their activation.
  Channels Arriving(int64_t b, int64_t t) const {
    Channels arriving = Load(&g_.d_out(b, 0, t, first_));
    if (p_.activation == ConvActivation::kNone) return arriving;
    double sums[kChannels] = {};
    for (int64_t c = 0; c < count_; ++c) sums[c] = double{p_.Bias(0, first_ + c)};
    for (int64_t j = 0; j < p_.width; ++j) {
      const float* row = p_.Row(b, 0, t + 1 - p_.width + j);
      if (row == nullptr) continue;
      const Channels from = Load(row + first_);
      for (int64_t c = 0; c < kChannels; ++c)
        sums[c] += double{taps_[j].at[c]} * double{from.at[c]};
    }
    double gates[kChannels];
    // The rounding of a large sum meets a small slope: 3e-8 at most is lost in float32.
    for (int64_t c = 0; c < kChannels; ++c)
      gates[c] = double{std::exp(-static_cast<float>(sums[c]))};
    for (int64_t c = 0; c < kChannels; ++c) {
      const double gate = 1 / (1 + gates[c]);
      arriving.at[c] =
          static_cast<float>(double{arriving.at[c]} * gate * (1 + sums[c] * (1 - gate)));
    }
    return arriving;
  }

  void AddToken(int64_t b, int64_t t) {
    const Channels arriving = Arriving(b, t);
    for (int64_t c = 0; c < kChannels; ++c) bias_[c] += double{arriving.at[c]};
    for (int64_t j = 0; j < p_.width; ++j) {
      const int64_t from_token = t + 1 - p_.width + j;
      const float* row = p_.Row(b, 0, from_token);
      if (row == nullptr) continue;
      const Channels from = Load(row + first_);
      for (int64_t c = 0; c < kChannels; ++c) {
        weight_[j][c] += double{arriving.at[c]} * double{from.at[c]};
      }
      float* to = Row(b, from_token);
      for (int64_t c = 0; c < count_ && to != nullptr; ++c)
        to[c] += arriving.at[c] * taps_[j].at[c];
    }
  }

  const ConvBackward& g_;
  const ConvProblem& p_;
  int64_t first_, count_;
  Channels taps_[kMaxConvWidth];
  double bias_[kChannels] = {};
  double weight_[kMaxConvWidth][kChannels] = {};
};

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
  CheckLieApart(request, d_results, gradients);
  const ConvRequest r = ReadOf(request);
  ConvBackward g;
  g.p = ValidateConv(r.x, r.weight, r.options);
  g.d_out = OneHead(d_results, "output");
  g.d_final_state = OneHead(d_results, "state");
  g.d_x = OneHead(gradients, "signal");
  g.d_weight = LeadingViewOf(FindTensor(gradients, "conv_weight"));
  g.d_bias = VectorOf(FindTensor(gradients, "conv_bias"));
  g.d_initial_state = OneHead(gradients, "conv_state");
  ThreadPool& threads = pool != nullptr ? *pool : DefaultThreadPool();
  threads.Run((g.p.dim + kChannels - 1) / kChannels,
              [&](int64_t task, int) { ChannelBlock(g, task * kChannels).Run(); });
}

}  // namespace

const GradientVerbs kConvGradient = {PlanConvBackward, RunConvForward, RunConvBackward};

}  // namespace heed
