// A call of RecurrentAttention of every kind, and parts of its tokens.
#ifndef HEED_TESTS_RECURRENT_RECURRENT_CALL_H_
#define HEED_TESTS_RECURRENT_RECURRENT_CALL_H_

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "heed/recurrent.h"
#include "recurrent_case.h"

namespace heed::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Every kind of decay, with and without erasing; and every kind of features that are more than a
// function of one element.
enum class Kind {
  kPlain,
  kPlainDelta,
  kDecay,
  kDecayDelta,
  kChannels,
  kChannelsDelta,
  kRandom,
  kTaylor,
  kUser,
  kCosine,
  kComplement,
  kBonus,
  kErasing,
  kErasingShared,  // one decay for all channels
  kBonusShared,
  kLevels,
  kLearning,
  kLearningInPart,  // with position_rate
};
inline constexpr Kind kKinds[] = {Kind::kPlain,      Kind::kPlainDelta,    Kind::kDecay,
                                  Kind::kDecayDelta, Kind::kChannels,      Kind::kChannelsDelta,
                                  Kind::kRandom,     Kind::kTaylor,        Kind::kUser,
                                  Kind::kCosine,     Kind::kComplement,    Kind::kBonus,
                                  Kind::kErasing,    Kind::kErasingShared, Kind::kBonusShared,
                                  Kind::kLevels,     Kind::kLearning,      Kind::kLearningInPart};

// Tokens [from, to) of a view.
template <class T>
TensorView<T> Tokens(TensorView<T> view, int64_t from, int64_t to) {
  view.data += from * view.strides[2];
  view.shape[2] = to - from;
  return view;
}

// Tensors of a call; [batch, heads, len, dim] without gaps.
struct Call {
  int64_t batch = 2, heads = 4, kv_heads = 2, len = 100, dim = 12, dim_v = 10;
  int64_t features = dim, cols = dim_v;  // of the state
  std::vector<float> q, k, v, gates, betas, skip, bonus, erase_keys, erase_rates, projection,
      level_weights, rates;
  std::vector<float> state, output;
  std::array<int64_t, 1> offset = {0};
  RecurrentOptions options;
  Kind kind;

  explicit Call(Kind kind = Kind::kPlain) : kind(kind) {
    if (kind >= Kind::kLearning) dim_v = dim;
    q = LogDecays(batch * heads * len * dim, 1);
    k = LogDecays(batch * kv_heads * len * dim, 2);
    v = Betas(batch * kv_heads * len * dim_v, 3);
    gates = LogDecays(batch * kv_heads * len * dim, 4);
    betas = Betas(batch * kv_heads * len, 5);
    skip = Betas(heads, 6);
    bonus = Betas(heads * dim, 7);
    erase_keys = LogDecays(batch * kv_heads * len * dim, 8);
    erase_rates = Betas(batch * kv_heads * len * dim, 9);
    output.assign(static_cast<size_t>(batch * heads * len * dim_v), kNan);
    if (kind >= Kind::kRandom) {
      SetFeatures();
    } else {
      SetRule();
    }
    state.assign(static_cast<size_t>(batch * kv_heads * features * cols), 0.0f);
  }

  template <class T>
  static TensorView<T> View(T* data, int64_t b, int64_t h, int64_t len, int64_t dim) {
    return {data, {b, h, len, dim}, {h * len * dim, len * dim, dim, 1}};
  }
  TensorView<const float> Q() const { return View(q.data(), batch, heads, len, dim); }
  TensorView<const float> K() const {
    if (kind == Kind::kComplement) return Gates();
    return View(k.data(), batch, kv_heads, len, dim);
  }
  TensorView<const float> V() const { return View(v.data(), batch, kv_heads, len, dim_v); }
  TensorView<const float> Gates() const { return View(gates.data(), batch, kv_heads, len, dim); }
  TensorView<const float> Beta() const {
    return View(betas.data(), batch, kv_heads, len, int64_t{1});
  }
  TensorView<float> State() { return View(state.data(), batch, kv_heads, features, cols); }
  TensorView<float> Output() { return View(output.data(), batch, heads, len, dim_v); }

  // The options for tokens [from, to) alone.
  RecurrentOptions OptionsOf(int64_t from, int64_t to) {
    RecurrentOptions part = options;
    if (part.beta.has_value()) part.beta = Tokens(part.beta, from, to);
    if (part.log_decay.has_value()) part.log_decay = Tokens(part.log_decay, from, to);
    if (part.erase_key.has_value()) {
      part.erase_key = Tokens(part.erase_key, from, to);
      part.erase_rate = Tokens(part.erase_rate, from, to);
    }
    if (part.level_weights.has_value()) part.level_weights = Tokens(part.level_weights, from, to);
    offset[0] = from;
    part.position_offset = offset;
    return part;
  }

  void Run(ThreadPool* pool = nullptr) {
    RecurrentAttention(Q(), K(), V(), options, {Output(), State()}, pool);
  }

 private:
  void SetRule() {
    options.feature_map = FeatureMap::kUnit;
    options.delta =
        kind == Kind::kPlainDelta || kind == Kind::kDecayDelta || kind == Kind::kChannelsDelta;
    options.beta = Beta();
    if (kind >= Kind::kDecay) options.log_decay = Gates();
    if (kind == Kind::kDecay || kind == Kind::kDecayDelta) options.log_decay.shape[3] = 1;
  }

  void SetFeatures() {
    if (kind >= Kind::kLearning) {
      options.mini_batch = 16;
      if (kind == Kind::kLearningInPart) {
        for (int n = 1; n <= 16; ++n) rates.push_back(1.5f / static_cast<float>(n));
        rates[2] = 0;
        options.position_rate = rates;
      }
      // From a model of zeros the norm makes the first gradients 1000 times as large.
      for (float& beta : betas) beta *= 0.001f;
      options.beta = Beta();
      features = 2 * (dim + 1);
      cols = dim;
      return;
    }
    options.normalize = kind <= Kind::kCosine;
    if (options.normalize) cols = dim_v + 1;
    if (kind == Kind::kRandom) {
      options.feature_map = FeatureMap::kRandom;
      features = 37;
      cols = dim_v + 2;
      projection.resize(static_cast<size_t>(features * dim));
      DrawRandomFeatures(1, View(projection.data(), 1, 1, features, dim));
      options.projection = View<const float>(projection.data(), 1, 1, features, dim);
    } else if (kind == Kind::kTaylor) {
      options.feature_map = FeatureMap::kTaylor;
      features = 1 + dim + dim * (dim + 1) / 2;
    } else if (kind == Kind::kUser) {
      options.feature_map = FeatureMap::kUser;
      options.feature_mod = CompileFeatureMap("feature_mod", "exp(2 * x) * (1 + h + isKey) + d");
    } else if (kind == Kind::kCosine) {
      options.feature_map = FeatureMap::kCosine;
      options.period = 200;
      features = 2 * dim;
      for (float& x : q) x = -x;
      for (float& x : k) x = -x;
    } else {
      options.log_decay = Gates();
      if (kind == Kind::kComplement) options.feature_map = FeatureMap::kComplement;
      if (kind == Kind::kLevels) {
        constexpr int64_t kLevels = 8;
        features = (kLevels - 1) * dim;
        level_weights = Betas(batch * heads * len * kLevels, 10);
        options.level_weights = View<const float>(level_weights.data(), batch, heads, len, kLevels);
      }
      const bool shared = kind == Kind::kErasingShared || kind == Kind::kBonusShared;
      if (shared) options.log_decay.shape[3] = 1;
      if (kind == Kind::kErasing || kind == Kind::kErasingShared) {
        options.erase_key = View<const float>(erase_keys.data(), batch, kv_heads, len, dim);
        options.erase_rate = View<const float>(erase_rates.data(), batch, kv_heads, len, dim);
      }
      if (kind == Kind::kBonus || kind == Kind::kBonusShared)
        options.bonus = View<const float>(bonus.data(), 1, heads, 1, dim);
    }
  }
};

}  // namespace heed::testing

#endif  // HEED_TESTS_RECURRENT_RECURRENT_CALL_H_
