#include "src/recurrent/backward_tokens.h"

#include <algorithm>
#include <cmath>

namespace heed {
namespace {

constexpr int64_t kStrides[] = {2048, 32, 1};

}  // namespace

HeadBackward::HeadBackward(const RecurrentBackwardProblem& g, int64_t unit,
                           const HeadGradients& sums)
    : g_(g),
      p_(g.forward),
      to_(g.gradients),
      sums_(sums),
      b_(unit / p_.num_kv_heads),
      h_(unit % p_.num_kv_heads) {}

double HeadBackward::Beta(int64_t t) const {
  return p_.options.beta.has_value() ? double{p_.options.beta(b_, h_, t, 0)} : 1;
}

double HeadBackward::Decay(int64_t t, int64_t c) const {
  const TensorView<const float>& gates = p_.options.log_decay;
  // In float32, as in forward: where that is 0, nothing passes.
  return gates.has_value() ? double{std::exp(gates(b_, h_, t, c))} : 1;
}

void HeadBackward::Load(const TensorView<const float>& from, float* to) const {
  const Extents shape = StateShape(p_);
  for (int64_t c = 0; c < shape[2]; ++c) {
    for (int64_t e = 0; e < shape[3]; ++e) *to++ = from.has_value() ? from(b_, h_, c, e) : 0.0f;
  }
}

void HeadBackward::LoadInitialState(float* state) const { Load(p_.options.initial_state, state); }
void HeadBackward::LoadArriving(float* d_state) const { Load(to_.d_final_state, d_state); }

void HeadBackward::StoreInitial(const float* d_state) const {
  const TensorView<float>& to = to_.d_initial_state;
  for (int64_t c = 0; c < to.shape[2] && to.has_value(); ++c) {
    for (int64_t e = 0; e < to.shape[3]; ++e) to(b_, h_, c, e) = *d_state++;
  }
}

void HeadBackward::ClearBeyondLength() const {
  for (int64_t t = Length(); t < p_.kv_len; ++t) {
    for (const TensorView<float>& view : {to_.d_k, to_.d_v, to_.d_erase_key, to_.d_erase_rate}) {
      if (!view.has_value()) continue;
      for (int64_t c = 0; c < view.shape[3]; ++c) view(b_, h_, t, c) = 0;
    }
    for (int64_t c = 0; c < g_.d_log_decay.channels; ++c) {
      g_.d_log_decay.Add(sums_.log_decay, {b_, h_, t}, c, 0);
    }
    g_.d_beta.Add(sums_.beta, {b_, h_, t}, 0, 0);
  }
}

void TokenRule::RunTokens(TokenStates& states, float* d_state) {
  LoadArriving(d_state);
  states.Reverse(*this);
  StoreInitial(d_state);
  ClearBeyondLength();
}

TokenStates::TokenStates(size_t state_size, int64_t len) : size_(state_size), state_(state_size) {
  int64_t span = len;
  for (size_t level = 0; level < kept_.size(); ++level) {
    const int64_t states = (span + kStrides[level] - 1) / kStrides[level];
    kept_[level].resize(static_cast<size_t>(states) * size_);
    span = std::min(span, kStrides[level]);
  }
}

void TokenStates::Reverse(TokenRule& rule) {
  rule.LoadInitialState(state_.data());
  if (rule.Length() == 0) rule.ReadLast(state_.data());
  Reverse(rule, 0, 0, rule.Length());
}

void TokenStates::Reverse(TokenRule& rule, size_t level, int64_t first, int64_t end) {
  const int64_t stride = kStrides[level], count = (end - first + stride - 1) / stride;
  const auto kept = [&](int64_t n) { return kept_[level].data() + static_cast<size_t>(n) * size_; };
  for (int64_t n = 0; n < count; ++n) {
    const int64_t begin = first + n * stride;
    if (stride == 1) {
      if (n == 0) std::copy_n(state_.data(), size_, kept(0));
      rule.Advance(begin, kept(n), n + 1 == count ? state_.data() : kept(n + 1));
      continue;
    }
    std::copy_n(state_.data(), size_, kept(n));
    // Behind the last one, only tokens themselves need the state.
    for (int64_t t = begin; t < begin + stride && n + 1 < count; ++t) {
      rule.Advance(t, state_.data(), state_.data());
    }
  }
  for (int64_t n = count; n-- > 0;) {
    const int64_t begin = first + n * stride;
    if (stride == 1) {
      const float* const after = n + 1 == count ? state_.data() : kept(n + 1);
      if (begin + 1 == rule.Length()) rule.ReadLast(after);
      rule.Retreat(begin, kept(n), after);
      continue;
    }
    std::copy_n(kept(n), size_, state_.data());
    Reverse(rule, level + 1, begin, std::min(end, begin + stride));
  }
}

}  // namespace heed
