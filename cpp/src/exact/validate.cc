// The boundary: everything that can be wrong with a call of Attention() is found here.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "heed/error.h"
#include "src/exact/attention_spans.h"
#include "src/exact/problem.h"
#include "src/exact/validate_patterns.h"
#include "src/exact/validate_score.h"
#include "src/from_javascript.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// Positions and window sides stay below this, so that their sums cannot overflow.
constexpr int64_t kMaxPosition = int64_t{1} << 53;

void ReadShapes(AttentionProblem& p) {
  CheckStored("q", p.q);
  if (p.cached_k == nullptr) CheckStored("k", p.k);
  if (p.cached_v == nullptr) CheckStored("v", p.v);
  p.batch = p.q.shape[0];
  p.num_heads = p.q.shape[1];
  p.q_len = p.q.shape[2];
  p.head_dim = p.q.shape[3];
  p.num_kv_heads = p.k.shape[1];
  p.kv_len = p.k.shape[2];
  p.head_dim_v = p.v.shape[3];
  p.head_dim_k = JoinsWidths(p.options.score) ? p.k.shape[3] : p.head_dim;
  CheckShape("k", p.k.shape, {p.batch, p.num_kv_heads, p.kv_len, p.head_dim_k},
             "[batch, num_kv_heads, kv_len, head_dim], batch and head_dim as in q");
  CheckShape("v", p.v.shape, {p.batch, p.num_kv_heads, p.kv_len, p.head_dim_v},
             "[batch, num_kv_heads, kv_len, head_dim_v], the first three as in k");
  if (p.num_heads > 0 && (p.num_kv_heads == 0 || p.num_heads % p.num_kv_heads != 0)) {
    Fail(ErrorCode::kShape,
         "q has {} heads and k has {}; the first must be a multiple of the second",
         {p.num_heads, p.num_kv_heads});
  }
  p.group = p.num_kv_heads > 0 ? p.num_heads / p.num_kv_heads : 0;
}

void CheckModify(AttentionProblem& p) {
  AttentionOptions& o = p.options;
  // The reciprocal must be a finite float too: the tile is multiplied by it.
  if (o.softcap && (!(*o.softcap > 0) || !std::isfinite(static_cast<float>(*o.softcap)) ||
                    !std::isfinite(1.0f / static_cast<float>(*o.softcap)))) {
    Fail(ErrorCode::kRange,
         "softcap = {}; it must be positive, finite and not vanishingly small (leave it out to "
         "switch it off)",
         {*o.softcap});
  }
  const Extents full = {p.batch, p.num_heads, p.q_len, p.kv_len};
  if (o.bias.has_value()) o.bias = Broadcast("bias", o.bias, full);
  if (o.keep.has_value()) o.keep = Broadcast("keep", o.keep, full);
  CheckDistanceBiases(p);
  CheckHeadVector(p, "alibi_slopes", o.alibi_slopes, false);
  CheckHeadVector(p, "sinks", o.sinks, true);
}

void CheckLengths(const AttentionProblem& p) {
  const auto& lengths = p.options.key_lengths;
  if (lengths.empty()) return;
  const size_t batch = static_cast<size_t>(p.batch);
  if (lengths.size() != batch && lengths.size() != batch * static_cast<size_t>(p.q_len)) {
    Fail(ErrorCode::kShape, "key_lengths has {} values; expected batch = {} or batch * q_len = {}",
         {lengths.size(), p.batch, p.batch * p.q_len});
  }
  for (const int32_t length : lengths) {
    if (length < 0 || length > p.kv_len) {
      Fail(ErrorCode::kRange, "key_lengths holds {}; lengths lie in [0, kv_len = {}]",
           {length, p.kv_len});
    }
  }
}

void CheckWindow(AttentionProblem& p) {
  if (!p.options.window) return;
  for (auto* side : {&p.options.window->left, &p.options.window->right}) {
    if (!side->has_value()) continue;
    if (**side < 0) {
      Fail(ErrorCode::kRange,
           "window side = {}; it counts visible keys, >= 0 (leave it out for no limit)", {**side});
    }
    *side = std::min(**side, kMaxPosition);
  }
}

void CheckPositions(AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  const char* positional = PositionalOption(o);
  if (positional == nullptr) positional = PatternOfPositions(o);
  const auto& given = o.query_offset.positions();
  p.position.assign(static_cast<size_t>(p.batch), 0);
  switch (o.query_offset.kind()) {
    case QueryOffset::Kind::kUnset:
      if (positional != nullptr && p.q_len != p.kv_len) {
        Fail(ErrorCode::kOption,
             "query_offset is needed: q_len = {} and kv_len = {} differ and {} depends on "
             "positions. Give 0 if query 0 stands at key 0, or \"end\" if the queries are the last "
             "tokens",
             {p.q_len, p.kv_len, positional});
      }
      return;
    case QueryOffset::Kind::kNumber:
      p.position.assign(static_cast<size_t>(p.batch), given[0]);
      break;
    case QueryOffset::Kind::kPerBatch:
      if (given.size() != static_cast<size_t>(p.batch)) {
        Fail(ErrorCode::kShape, "query_offset has {} positions; expected batch = {}",
             {given.size(), p.batch});
      }
      p.position = given;
      break;
    case QueryOffset::Kind::kEnd:
      if (o.key_lengths.size() > static_cast<size_t>(p.batch)) {
        Fail(ErrorCode::kUnsupported,
             "query_offset \"end\" needs one length per batch entry, but key_lengths has one per "
             "query; give positions instead");
      }
      for (int64_t b = 0; b < p.batch; ++b) {
        p.position[static_cast<size_t>(b)] = p.KeyLength(b, 0) - p.q_len;
      }
      return;
  }
  for (const int64_t position : p.position) {
    if (position > kMaxPosition || position < -kMaxPosition) {
      Fail(ErrorCode::kRange, "query_offset = {}; positions lie within +-2^53", {position});
    }
  }
}

// Which of the two forms of the output is given.
StoredOutput ChooseOutput(const AttentionOutputs& out) {
  if (out.output.has_value() && out.stored_output.has_value()) {
    Fail(ErrorCode::kOption, "output and stored_output are both given; give one");
  }
  return out.stored_output.has_value() ? out.stored_output : StoredOutput(out.output);
}

// All three of the loop's statistics, or none.
void CheckTiles(const AttentionProblem& p) {
  const AttentionOutputs& out = p.outputs;
  const TensorView<float> tiles[] = {out.running_max, out.running_sum, out.rescale};
  const char* names[] = {"running_max", "running_sum", "rescale"};
  if (out.tiles_of_query && (*out.tiles_of_query < 0 || *out.tiles_of_query >= p.q_len)) {
    Fail(ErrorCode::kRange, "tiles_of_query = {}; queries lie in [0, q_len = {})",
         {*out.tiles_of_query, p.q_len});
  }
  const int64_t queries = out.tiles_of_query ? 1 : p.q_len;
  const int64_t num_tiles = (p.kv_len + kAttentionTileKeys - 1) / kAttentionTileKeys;
  int given = 0;
  for (int i = 0; i < 3; ++i) given += tiles[i].has_value() ? 1 : 0;
  if (given == 0) return;
  if (p.options.normalize != Normalize::kSoftmax && p.options.normalize != Normalize::kSoftmax1) {
    Fail(ErrorCode::kUnsupported,
         "running_max, running_sum and rescale are what softmax carries from tile to tile; this "
         "normaliser carries something else");
  }
  if (p.options.prob_mod) {
    Fail(ErrorCode::kUnsupported,
         "running_max, running_sum and rescale with prob_mod, which needs whole rows: nothing is "
         "carried from tile to tile");
  }
  for (int i = 0; i < 3; ++i) {
    if (!tiles[i].has_value()) {
      Fail(ErrorCode::kOption, "{} is missing: running_max, running_sum and rescale go together",
           {names[i]});
    }
    CheckOutput(names[i], tiles[i], {p.batch, p.num_heads, queries, num_tiles},
                "[batch, num_heads, q_len or 1, num_tiles]");
  }
}

// Most of what is compared is absent: a call of a single token would take longer to compare all
// pairs than to compute.
void CheckAliases(const AttentionProblem& p) {
  SpansOf(p.outputs).ApartFrom("q", p.q).ApartFrom("k", p.k).ApartFrom("v", p.v).ApartFrom(
      p.options);
}

void CheckOutputs(const AttentionProblem& p) {
  const AttentionOutputs& out = p.outputs;
  const Extents pairs = {p.batch, p.num_heads, p.q_len, p.kv_len};
  const std::string_view pairs_text = "[batch, num_heads, q_len, kv_len]";
  CheckOutput("output", p.output, {p.batch, p.num_heads, p.q_len, p.head_dim_v},
              "[batch, num_heads, q_len, head_dim_v]");
  if (out.lse.has_value()) {
    CheckOutput("lse", out.lse, {p.batch, p.num_heads, p.q_len, 1}, "[batch, num_heads, q_len, 1]");
  }
  if (out.weights.has_value()) CheckOutput("weights", out.weights, pairs, pairs_text);
  if (out.scores.has_value()) CheckOutput("scores", out.scores, pairs, pairs_text);
  CheckEnum("score_stage", out.score_stage, ScoreStage::kBiased);
  CheckTiles(p);
  CheckAliases(p);
}

}  // namespace

AttentionProblem ValidateKeepRules(const Extents& pairs, const AttentionOptions& options) {
  AttentionProblem p;
  p.options = options;
  p.batch = pairs[0];
  p.num_heads = p.num_kv_heads = pairs[1];
  p.q_len = pairs[2];
  p.kv_len = pairs[3];
  CheckModify(p);
  CheckLengths(p);
  CheckWindow(p);
  CheckPositions(p);
  CheckPatterns(p);
  return p;
}

AttentionProblem ValidateAttentionInputs(const StoredTensor& q, const StoredTensor& k,
                                         const StoredTensor& v, const AttentionOptions& options,
                                         bool wants_lse) {
  AttentionProblem p;
  p.q = q;
  p.k = k;
  p.v = v;
  p.options = options;
  CompleteInputs(p, wants_lse);
  return p;
}

void CompleteInputs(AttentionProblem& p, bool wants_lse) {
  ReadShapes(p);
  CheckScore(p);
  CheckNormalize(p, wants_lse);
  CheckModify(p);
  CheckLengths(p);
  CheckGates(p);
  CheckWindow(p);
  CheckPositions(p);
  CheckPatterns(p);
}

void CompleteOutputs(AttentionProblem& p, const AttentionOutputs& outputs) {
  p.outputs = outputs;
  p.output = ChooseOutput(outputs);
  CheckOutputs(p);
}

AttentionProblem ValidateAttention(const StoredTensor& q, const StoredTensor& k,
                                   const StoredTensor& v, const AttentionOptions& options,
                                   const AttentionOutputs& outputs) {
  AttentionProblem p = ValidateAttentionInputs(q, k, v, options, outputs.lse.has_value());
  CompleteOutputs(p, outputs);
  return p;
}

}  // namespace heed
