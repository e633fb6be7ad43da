#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "src/compose/checks.h"
#include "src/from_javascript.h"
#include "src/message.h"
#include "src/output_spans.h"
#include "src/recurrent/problem.h"
#include "src/recurrent/results.h"
#include "src/view_checks.h"

namespace heed {
namespace {

void CheckSizes(const RecurrentProblem& p) {
  CheckShape("k", p.k.shape, {p.batch, p.k.shape[1], p.k.shape[2], p.head_dim},
             "[batch, num_kv_heads, kv_len, head_dim of q]");
  CheckShape("v", p.v.shape, {p.batch, p.num_kv_heads, p.kv_len, p.head_dim_v},
             "[batch, num_kv_heads, kv_len, head_dim_v]");
  const bool divides = p.num_kv_heads == 0 ? p.num_heads == 0 : p.num_heads % p.num_kv_heads == 0;
  if (!divides) {
    Fail(ErrorCode::kShape, "q has {} heads, which is not a multiple of the {} heads of k and v",
         {p.num_heads, p.num_kv_heads});
  }
  if (p.options.causal && p.q_len != p.kv_len) {
    Fail(ErrorCode::kShape, "q_len is {} and kv_len {}; they must be the same when causal",
         {p.q_len, p.kv_len});
  }
}

// Every gate that a token reads.
void CheckGates(const RecurrentProblem& p) {
  const TensorView<const float>& gates = p.options.log_decay;
  if (!gates.has_value()) return;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.num_kv_heads; ++h) {
      for (int64_t t = 0; t < p.KeyLength(b); ++t) {
        for (int64_t c = 0; c < (p.decays_channels ? p.feature_dim : 1); ++c) {
          const float gate = gates(b, h, t, c);
          if (gate > 0) {
            Fail(ErrorCode::kRange,
                 "log_decay holds {}; logarithms of factors that only shrink lie in [-inf, 0]",
                 {gate});
          }
        }
      }
    }
  }
}

void CheckLengths(const RecurrentProblem& p) {
  const std::span<const int32_t> lengths = p.options.key_lengths;
  if (lengths.empty()) return;
  if (lengths.size() != static_cast<size_t>(p.batch)) {
    Fail(ErrorCode::kShape, "key_lengths has {} values; expected one per batch entry ({})",
         {lengths.size(), p.batch});
  }
  for (const int32_t length : lengths) {
    if (length < 0 || length > p.kv_len) {
      Fail(ErrorCode::kRange, "key_lengths holds {}; lengths lie in [0, kv_len = {}]",
           {length, p.kv_len});
    }
  }
}

void CheckSkip(const RecurrentProblem& p) {
  const std::span<const float> skip = p.options.skip;
  if (skip.empty()) return;
  if (!p.options.causal) {
    Fail(ErrorCode::kUnsupported, "skip adds a token's own value, which only causal tokens have");
  }
  if (skip.size() != static_cast<size_t>(p.num_heads)) {
    Fail(ErrorCode::kShape, "skip has {} values; expected one per query head ({})",
         {skip.size(), p.num_heads});
  }
  for (const float value : skip) CheckFinite("skip", value);
}

void CheckBonus(const RecurrentProblem& p) {
  const RecurrentOptions& o = p.options;
  if (!o.bonus.has_value()) return;
  if (!o.causal || o.normalize || o.delta || o.feature_map != FeatureMap::kIdentity) {
    Fail(ErrorCode::kUnsupported,
         "bonus: only causal tokens without features, weight sums or erasing read first");
  }
  CheckInput("bonus", o.bonus);
  CheckShape("bonus", o.bonus.shape, {1, p.num_heads, 1, p.head_dim}, "[num_heads, head_dim]");
}

void CheckErasing(const RecurrentProblem& p) {
  const RecurrentOptions& o = p.options;
  if (o.erase_key.has_value() != o.erase_rate.has_value()) {
    Fail(ErrorCode::kOption, "erase_key and erase_rate go together; one is missing");
  }
  if (!o.erase_key.has_value()) return;
  if (o.delta || o.normalize || o.bonus.has_value() || o.feature_map != FeatureMap::kIdentity) {
    Fail(ErrorCode::kUnsupported,
         "erase_key: not with features, weight sums, a bonus or the delta rule");
  }
  const Extents shape = {p.batch, p.num_kv_heads, p.kv_len, p.head_dim};
  for (const auto& [name, view] :
       {std::pair("erase_key", o.erase_key), std::pair("erase_rate", o.erase_rate)}) {
    CheckInput(name, view);
    CheckShape(name, view.shape, shape, "[batch, num_kv_heads, kv_len, head_dim]");
  }
}

void SetScale(RecurrentProblem& p) {
  const FeatureMap map = p.options.feature_map;
  const bool inside = map == FeatureMap::kTaylor || map == FeatureMap::kRandom;
  if (p.options.scale.has_value()) {
    p.scale = CheckScale(*p.options.scale);
  } else if (inside || !p.options.normalize) {
    if (p.head_dim == 0) {
      Fail(ErrorCode::kShape,
           "q has head_dim 0, for which 1 / sqrt(head_dim) does not exist; give scale");
    }
    p.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim)));
  }
  if (!inside) return;
  p.key_factor = std::sqrt(std::abs(p.scale));
  p.query_factor = std::copysign(p.key_factor, p.scale);
  p.scale = 1;
}

void SetRandomFeatures(RecurrentProblem& p) {
  const TensorView<const float>& projection = p.options.projection;
  if (!p.options.normalize) {
    Fail(ErrorCode::kUnsupported, "random features: only their ratios mean anything; normalize");
  }
  CheckInput("projection", projection);
  const int64_t features = projection.shape[2];
  if (features < 1 || features > kMaxRandomFeatures) {
    Fail(ErrorCode::kRange, "num_features = {}; it must lie in [1, {}]",
         {features, kMaxRandomFeatures});
  }
  CheckShape("projection", projection.shape, {1, 1, features, p.head_dim},
             "[num_features, head_dim]");
  p.feature_dim = features;
}

void CheckOffsets(const RecurrentProblem& p) {
  const std::span<const int64_t> offsets = p.options.position_offset;
  if (!offsets.empty() && offsets.size() != 1 && offsets.size() != static_cast<size_t>(p.batch)) {
    Fail(ErrorCode::kShape, "position_offset has {} values; expected 1 or batch = {}",
         {offsets.size(), p.batch});
  }
}

// Of `len` tokens from `first` on, at most the largest number.
int64_t LastPosition(int64_t first, int64_t len) {
  int64_t last = 0;
  const bool overflows = __builtin_add_overflow(first, std::max<int64_t>(len - 1, 0), &last);
  return overflows ? std::numeric_limits<int64_t>::max() : last;
}

// Positions of queries and keys lie in [0, end).
void CheckPositions(const RecurrentProblem& p, int64_t end, const char* name) {
  const int64_t len = std::max(p.q_len, p.kv_len);
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t first = p.Position(b, 0);
    if (first < 0 || first > end - len) {
      Fail(ErrorCode::kRange, "positions reach from {} to {}; they lie in [0, {}) by {}",
           {first, LastPosition(first, len), end, name});
    }
  }
}

void SetPeriod(const RecurrentProblem& p) {
  CheckOffsets(p);
  if (p.options.period < 1) {
    Fail(ErrorCode::kRange, "period = {}; it must be at least 1", {p.options.period});
  }
  CheckPositions(p, p.options.period, "period");
}

void CheckNorm(const RecurrentProblem& p, const char* name, std::span<const float> values) {
  const int64_t count = p.num_kv_heads * p.head_dim;
  if (!values.empty() && values.size() != static_cast<size_t>(count)) {
    Fail(ErrorCode::kShape, "{} has {} values; expected [num_kv_heads, head_dim], {} of them",
         {name, values.size(), count});
  }
}

void CheckPositionRate(const RecurrentOptions& o) {
  const std::span<const float> rates = o.position_rate;
  if (!rates.empty() && static_cast<int64_t>(rates.size()) != o.mini_batch) {
    Fail(ErrorCode::kShape, "position_rate has {} values; expected mini_batch = {}",
         {rates.size(), o.mini_batch});
  }
  CheckAllFinite("position_rate", rates);
}

void CheckFeatureMap(const RecurrentOptions& o) {
  CheckEnum("feature_map", o.feature_map, FeatureMap::kUser);
  const bool user = o.feature_map == FeatureMap::kUser;
  if (user == static_cast<bool>(o.feature_mod)) return;
  Fail(ErrorCode::kOption,
       user ? "feature_mod is missing; feature_map user is what it says"
            : "feature_mod is given beside another feature_map; expected one of the two");
}

void SetInnerModel(RecurrentProblem& p) {
  RecurrentOptions& o = p.options;
  if (o.mini_batch == 0) {
    if (!o.position_rate.empty()) {
      Fail(ErrorCode::kUnsupported, "position_rate: only for a state that learns; give mini_batch");
    }
    if (o.feature_map != FeatureMap::kAppendOne) return;
    Fail(ErrorCode::kUnsupported, "kAppendOne: only for a state that learns; give mini_batch");
  }
  if (o.mini_batch < 0 || o.mini_batch > kMaxMiniBatch) {
    Fail(ErrorCode::kRange, "mini_batch = {}; it must lie in [1, {}]",
         {o.mini_batch, kMaxMiniBatch});
  }
  if (!o.causal || o.normalize || p.erases() || p.reads_first() || o.log_decay.has_value() ||
      p.has_levels() || !o.skip.empty() || o.scale ||
      (o.feature_map != FeatureMap::kIdentity && o.feature_map != FeatureMap::kAppendOne)) {
    Fail(
        ErrorCode::kUnsupported,
        "mini_batch: a state that learns takes keys, values and beta; no other rule, map or scale");
  }
  if (p.head_dim_v != p.head_dim) {
    Fail(ErrorCode::kShape, "v has {} columns; a state that learns maps head_dim = {} to as many",
         {p.head_dim_v, p.head_dim});
  }
  CheckNorm(p, "norm_weight", o.norm_weight);
  CheckNorm(p, "norm_bias", o.norm_bias);
  CheckPositionRate(o);
  CheckOffsets(p);
  CheckPositions(p, std::numeric_limits<int64_t>::max(), "64 bits");
  o.feature_map = FeatureMap::kAppendOne;
  o.scale = 1;
  p.num_states = 1;  // beside the current one
}

// 1 + ceil(log2(n)) levels are enough for n tokens.
void CheckNumLevels(const RecurrentProblem& p) {
  const int64_t end = int64_t{1} << p.num_states;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t first = p.Position(b, 0);
    if (first < 0 || first <= end - p.q_len) continue;
    const int64_t last = LastPosition(first, p.q_len);
    Fail(ErrorCode::kRange,
         "positions reach from {} to {}; level_weights has {} levels, for {} tokens: expected {} "
         "levels",
         {first, last, p.num_states + 1, end, std::bit_width(static_cast<uint64_t>(last)) + 1});
  }
  CheckPositions(p, end, "the number of levels");
}

void SetLevels(RecurrentProblem& p) {
  const RecurrentOptions& o = p.options;
  if (!o.level_weights.has_value()) return;
  if (!o.causal || o.normalize || p.erases() || p.reads_first()) {
    Fail(ErrorCode::kUnsupported,
         "level_weights: only of causal tokens without weight sums, erasing or a bonus");
  }
  CheckOffsets(p);
  if (o.initial_state.has_value() && o.position_offset.empty()) {
    Fail(ErrorCode::kOption,
         "initial_state needs position_offset: how many tokens its levels have seen");
  }
  CheckInput("level_weights", o.level_weights);
  const int64_t levels = o.level_weights.shape[3];
  CheckShape("level_weights", o.level_weights.shape, {p.batch, p.num_heads, p.q_len, levels},
             "[batch, num_heads, len, levels]");
  if (levels < 1 || levels > kMaxLevels) {
    Fail(ErrorCode::kRange, "level_weights has {} levels; expected 1 to {}", {levels, kMaxLevels});
  }
  p.num_states = levels - 1;
  CheckNumLevels(p);
}

void SetFeatures(RecurrentProblem& p) {
  p.feature_dim = p.head_dim;
  switch (p.options.feature_map) {
    case FeatureMap::kTaylor:
      p.feature_dim = 1 + p.head_dim + p.head_dim * (p.head_dim + 1) / 2;
      break;
    case FeatureMap::kAppendOne:
      p.feature_dim = p.head_dim + 1;
      break;
    case FeatureMap::kCosine:
      SetPeriod(p);
      p.feature_dim = 2 * p.head_dim;
      break;
    case FeatureMap::kRandom:
      SetRandomFeatures(p);
      break;
    default:
      break;
  }
}

RecurrentRows RowsIn(const RecurrentProblem& p) { return {SpanOf(p.q), SpanOf(p.k), SpanOf(p.v)}; }

// A result is written while all but initial_state is still read. Steps take less than a
// microsecond: what is absent costs a look.
void CheckNoInputs(std::string_view name, const ViewSpan& result, const RecurrentRows& rows,
                   const RecurrentOptions& o) {
  if (kFromJavaScript) return;
  CheckNoAlias(name, result, "q", rows.q);
  CheckNoAlias(name, result, "k", rows.k);
  CheckNoAlias(name, result, "v", rows.v);
  const auto check = [&](const char* input, const TensorView<const float>& view) {
    if (view.has_value()) CheckNoAlias(name, result, input, SpanOf(view));
  };
  const auto check_values = [&](const char* input, const auto& values) {
    if (!values.empty()) CheckNoAlias(name, result, input, SpanOf(values));
  };
  check("log_decay", o.log_decay);
  check("beta", o.beta);
  check("bonus", o.bonus);
  check("erase_key", o.erase_key);
  check("erase_rate", o.erase_rate);
  check("level_weights", o.level_weights);
  check("projection", o.projection);
  check_values("skip", o.skip);
  check_values("norm_weight", o.norm_weight);
  check_values("norm_bias", o.norm_bias);
  check_values("position_rate", o.position_rate);
  check_values("key_lengths", o.key_lengths);
  check_values("position_offset", o.position_offset);
}

// The output, and the state where there is one.
void CheckResults(const RecurrentProblem& p, const RecurrentRows& rows, const StoredOutput& output,
                  std::string_view name, const TensorView<float>* state) {
  CheckOutput("output", output, {p.batch, p.num_heads, p.q_len, p.head_dim_v},
              "[batch, num_heads, q_len, head_dim_v]");
  const ViewSpan written = SpanOf(output);
  CheckNoInputs("output", written, rows, p.options);
  if (state == nullptr) return;
  CheckOutput(name, StoredOutput(*state), StateShape(p), StateMeaning(p));
  const ViewSpan kept = SpanOf(*state);
  CheckNoInputs(name, kept, rows, p.options);
  CheckNoAlias(name, kept, "output", written);
}

}  // namespace

// How often a query of one head reads a state, in chunks.
double LevelReads(const RecurrentProblem& p) {
  const int64_t chunk =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(p.options.chunk_len)));
  double reads = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t begin = p.Position(b, 0), end = begin + p.KeyLength(b);
    for (int64_t n = begin; n < end; n = (n / chunk + 1) * chunk) {
      const int64_t count = std::min((n / chunk + 1) * chunk, end) - n;
      reads += static_cast<double>(count * std::popcount(static_cast<uint64_t>(n / chunk)));
    }
  }
  return reads;
}

double RecurrentFlops(const RecurrentProblem& p) {
  double tokens = 0;
  for (int64_t b = 0; b < p.batch; ++b) tokens += static_cast<double>(p.KeyLength(b));
  const double dim = static_cast<double>(p.feature_dim), cols = static_cast<double>(p.state_cols);
  const double group = static_cast<double>(p.group), erases = p.erases() ? 1 : 0;
  const double parts = static_cast<double>(p.parts());
  const double reads = static_cast<double>(p.batch * p.q_len) * group;
  double products = tokens * dim * cols * (parts + erases) + reads * dim * cols;
  const double meets = erases + (p.options.causal ? group : 0);
  products += tokens * static_cast<double>(p.ChunkLen()) / 2 * (dim + cols) * meets * parts;
  if (p.learns()) products += tokens * dim * cols;  // gradients
  if (p.has_levels()) products += LevelReads(p) * group * dim * cols - reads * dim * cols;
  if (p.has_peaks()) products += (tokens + reads) * dim * static_cast<double>(p.head_dim);
  return 2 * products * static_cast<double>(p.num_kv_heads);
}

Extents StateShape(const RecurrentProblem& p) {
  const int64_t states = p.has_levels() ? p.num_states : p.learns() ? 2 : 1;
  return {p.batch, p.num_kv_heads, states * p.feature_dim, p.state_cols + (p.has_peaks() ? 1 : 0)};
}

const char* StateMeaning(const RecurrentProblem& p) {
  if (p.learns()) return "[batch, num_kv_heads, 2 (head_dim + 1), head_dim]";
  if (p.has_levels()) return "[batch, num_kv_heads, (levels - 1) features, head_dim_v]";
  if (p.has_peaks()) return "[batch, num_kv_heads, features, head_dim_v + 2]";
  return p.options.normalize ? "[batch, num_kv_heads, features, head_dim_v + 1]"
                             : "[batch, num_kv_heads, features, head_dim_v]";
}

void SetLogDecay(RecurrentProblem& p) {
  TensorView<const float>& gates = p.options.log_decay;
  if (!gates.has_value()) return;
  p.decays_channels = gates.shape[3] != 1 || p.feature_dim == 1;
  gates = Broadcast("log_decay", gates, {p.batch, p.num_kv_heads, p.kv_len, p.feature_dim},
                    "[batch, num_kv_heads, kv_len, features]");
}

void CheckRecurrentResults(const RecurrentProblem& p, const RecurrentRows& rows,
                           const StoredOutput& output, const TensorView<float>& final_state) {
  const bool has_state = final_state.has_value();
  CheckResults(p, rows, output, "final_state", has_state ? &final_state : nullptr);
  const TensorView<const float>& initial = p.options.initial_state;
  if (!initial.has_value()) return;
  const ViewSpan read = SpanOf(initial);
  // The same memory in the same layout is read before it is written; anything else that overlaps is
  // not.
  if (has_state) CheckSameOrApart("final_state", final_state, "initial_state", initial);
  CheckNoAlias("output", SpanOf(output), "initial_state", read);
}

void CompleteRecurrent(RecurrentProblem& p, const RecurrentOutputs& outputs) {
  CheckRecurrentResults(p, RowsIn(p), StoredOutput(outputs.output), outputs.final_state);
  p.outputs = outputs;
}

void CompleteStep(RecurrentProblem& p, const TensorView<float>& state,
                  const TensorView<float>& output) {
  if (p.q_len != 1 || p.kv_len != 1) {
    Fail(ErrorCode::kShape, "q_len is {} and kv_len {}; a step is one token", {p.q_len, p.kv_len});
  }
  if (p.feature_dim > kMaxStepDim) {
    Fail(ErrorCode::kShape, "q has {} features; a step takes up to {}",
         {p.feature_dim, kMaxStepDim});
  }
  if (p.options.initial_state.has_value() || !p.options.key_lengths.empty()) {
    Fail(ErrorCode::kOption,
         "initial_state and key_lengths are not used by a step: the state is its argument");
  }
  CheckResults(p, RowsIn(p), StoredOutput(output), "state", &state);
  p.outputs.output = output;
}

RecurrentProblem ValidateRecurrent(const TensorView<const float>& q,
                                   const TensorView<const float>& k,
                                   const TensorView<const float>& v,
                                   const RecurrentOptions& options) {
  CheckInput("q", q);
  CheckInput("k", k);
  CheckInput("v", v);
  RecurrentProblem p;
  p.q = q;
  p.k = k;
  p.v = v;
  p.options = options;
  p.batch = q.shape[0];
  p.num_heads = q.shape[1];
  p.q_len = q.shape[2];
  p.head_dim = q.shape[3];
  p.num_kv_heads = k.shape[1];
  p.kv_len = k.shape[2];
  p.head_dim_v = v.shape[3];
  p.state_cols = p.head_dim_v + (options.normalize ? 1 : 0);
  CheckSizes(p);
  p.group = p.num_kv_heads == 0 ? 1 : p.num_heads / p.num_kv_heads;
  if (options.normalize && options.delta) {
    Fail(ErrorCode::kUnsupported,
         "normalize: a delta rule erases, and its weights have no sum to divide by");
  }
  if (options.chunk_len < 1 || options.chunk_len > kMaxChunkLen) {
    Fail(ErrorCode::kRange, "chunk_len = {}; it must lie in [1, {}]",
         {options.chunk_len, kMaxChunkLen});
  }
  CheckFeatureMap(options);
  SetInnerModel(p);
  SetScale(p);
  SetFeatures(p);
  CheckLengths(p);
  CheckSkip(p);
  CheckBonus(p);
  CheckErasing(p);
  SetLevels(p);
  SetLogDecay(p);
  CheckGates(p);
  if (options.beta.has_value()) {
    p.options.beta = Broadcast("beta", options.beta, {p.batch, p.num_kv_heads, p.kv_len, 1},
                               "[batch, num_kv_heads, kv_len, 1]");
  }
  if (options.initial_state.has_value()) {
    CheckInput("initial_state", options.initial_state);
    CheckShape("initial_state", options.initial_state.shape, StateShape(p), StateMeaning(p));
  }
  return p;
}

}  // namespace heed
