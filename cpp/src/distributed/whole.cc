#include "src/distributed/whole.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <variant>

#include "src/exact/validate_patterns.h"
#include "src/exact/validate_score.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed::distributed {
namespace {

constexpr const char* kByHeads =
    "SequenceToHeads() brings whole sequences together, for all of heed";

[[noreturn]] void Refuse(const char* what, const char* why) {
  Fail(ErrorCode::kUnsupported, "{} over ranks: {}. {}", {what, why, kByHeads});
}

bool MovesWithPositions(const KeepPattern& pattern) {
  return std::holds_alternative<DilatedWindow>(pattern) || std::holds_alternative<Strided>(pattern);
}

void CheckCanBeSplit(const AttentionOptions& o) {
  if (o.normalize != Normalize::kSoftmax && o.normalize != Normalize::kSoftmax1) {
    Refuse("normalize", "only softmax and softmax1 are computed from parts of a row");
  }
  if (o.log_gates.has_value()) Refuse("log_gates", "gates are summed over the keys in between");
  if (o.prob_mod) Refuse("prob_mod", "it is shown final weights, which no rank has");
  for (const KeepPattern& pattern : o.patterns) {
    if (!MovesWithPositions(pattern)) {
      Refuse("patterns", "only DilatedWindow and Strided know distances alone");
    }
  }
}

// Where query 0 of all stands. Of query_offset "end" each batch entry has its own.
QueryOffset WholeOffset(const AttentionOptions& o, const Sharding& sharding, int64_t batch) {
  if (o.query_offset.kind() == QueryOffset::Kind::kEnd) {
    const size_t entries = static_cast<size_t>(batch);
    if (o.key_lengths.size() > entries) {
      Fail(ErrorCode::kUnsupported,
           "query_offset \"end\" needs one length per batch entry, but key_lengths has one per "
           "query; give positions instead");
    }
    std::vector<int64_t> positions(entries, sharding.kv_len - sharding.q_len);
    for (size_t b = 0; b < o.key_lengths.size(); ++b) {
      positions[b] = o.key_lengths[b] - sharding.q_len;
    }
    return QueryOffset::PerBatch(std::move(positions));
  }
  if (o.query_offset.kind() != QueryOffset::Kind::kUnset) return o.query_offset;
  const char* positional = PositionalOption(o);
  if (positional == nullptr) positional = PatternOfPositions(o);
  if (positional != nullptr && sharding.q_len != sharding.kv_len) {
    Fail(ErrorCode::kOption,
         "query_offset is needed: q_len = {} and kv_len = {} differ and {} depends on positions",
         {sharding.q_len, sharding.kv_len, positional});
  }
  return QueryOffset::At(0);
}

// The tensor as if it had all tokens, for checks that read no element.
StoredTensor AsWhole(StoredTensor tensor, int64_t len) {
  static constexpr float kAnywhere = 0;
  if (tensor.size() == 0) tensor.data = &kAnywhere;
  tensor.shape[2] = len;
  tensor.strides[2] = 0;
  return tensor;
}

void CheckTokens(const char* name, int64_t have, int64_t expected, const char* of, int64_t len) {
  if (have == expected) return;
  Fail(ErrorCode::kShape, "{} has {} tokens; this rank has {} of {} = {} (TokensOf)",
       {name, have, expected, of, len});
}

int64_t Side(const std::optional<int64_t>& side) { return side.value_or(-1); }
int64_t Bits(const std::optional<double>& number) {
  return number ? std::bit_cast<int64_t>(*number) : -1;
}

}  // namespace

std::vector<Rows> RowsOf(int64_t len, int rank, int size, TokenOrder order) {
  std::vector<Rows> spans;
  int64_t begin = 0;
  for (const TokenSpan& tokens : TokensOf(len, rank, size, order)) {
    if (tokens.len > 0) spans.push_back({begin, tokens});
    begin += tokens.len;
  }
  return spans;
}

int64_t CountRows(const std::vector<Rows>& spans) {
  return spans.empty() ? 0 : spans.back().begin + spans.back().tokens.len;
}

std::vector<int64_t> Whole::KeyCounts() const {
  std::vector<int64_t> tokens;
  for (int other = 0; other < size; ++other) tokens.push_back(CountRows(KeysOf(other)));
  return tokens;
}

Whole ValidateWhole(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                    const AttentionOptions& options, bool wants_lse, const Sharding& sharding,
                    const Communicator& communicator) {
  Whole whole;
  whole.k = k;
  whole.v = v;
  whole.options = options;
  whole.sharding = sharding;
  whole.rank = communicator.Rank();
  whole.size = communicator.Size();
  for (const auto& [name, len] : {std::pair{"sharding.q_len", sharding.q_len},
                                  std::pair{"sharding.kv_len", sharding.kv_len}}) {
    if (len < 0) Fail(ErrorCode::kRange, "{} = {}; it counts the tokens of all ranks", {name, len});
  }
  whole.queries = RowsOf(sharding.q_len, whole.rank, whole.size, sharding.order);
  const int64_t keys = CountRows(whole.KeysOf(whole.rank));
  CheckStored("q", q);
  CheckStored("k", k);
  CheckStored("v", v);
  CheckTokens("q", q.shape[2], CountRows(whole.queries), "q_len", sharding.q_len);
  CheckTokens("k", k.shape[2], keys, "kv_len", sharding.kv_len);
  CheckTokens("v", v.shape[2], keys, "kv_len", sharding.kv_len);
  CheckCanBeSplit(options);
  AttentionOptions complete = options;
  complete.query_offset = WholeOffset(options, sharding, q.shape[0]);
  whole.attention = ValidateAttentionInputs(q, AsWhole(k, sharding.kv_len),
                                            AsWhole(v, sharding.kv_len), complete, wants_lse);
  return whole;
}

AttentionOptions OneRankOptions(const Whole& whole) {
  AttentionOptions options = whole.options;
  options.query_offset = QueryOffset::PerBatch(whole.attention.position);
  return options;
}

// Lengths of batch entries are the same on all ranks, those of queries are each rank's own; a rank
// with one query of each entry, or none, cannot tell which it was given.
int64_t LengthsTerm(const Whole& whole) {
  const std::span<const int32_t> lengths = whole.options.key_lengths;
  if (whole.attention.q_len == 0 || (whole.attention.q_len == 1 && !lengths.empty())) {
    return Terms::kAny;
  }
  if (lengths.empty()) return 0;
  if (lengths.size() != static_cast<size_t>(whole.attention.batch)) return 1;
  Digest digest;
  digest.AddAll(lengths);
  return digest.value();
}

// What TermsOf() does not name.
Digest DigestOf(const Whole& whole) {
  const AttentionOptions& o = whole.options;
  Digest digest;
  digest.AddAll(std::span<const int64_t>(whole.attention.position));
  digest.AddAll(o.prefix_lengths);
  digest.AddAll(o.key_documents);
  for (const auto& values : {o.width, o.temperature, o.score_bias, o.alibi_slopes, o.sinks}) {
    digest.AddAll(values);
  }
  digest.AddOptional(o.min_temperature);
  digest.Add(o.relative_rows);
  digest.Add(o.relative_max_distance);
  digest.Add(o.bucket_direction);
  digest.Add(o.bucket_max_distance);
  digest.AddAll(std::span<const int64_t>(o.dropout.origin));
  for (const KeepPattern& pattern : o.patterns) digest.Add(pattern.index());
  for (const auto& view : {o.bias, o.relative_keys, o.relative_queries, o.relative_values,
                           o.content_bias, o.position_bias, o.distance_bias, o.bucket_bias}) {
    digest.Add(IsGiven(view));
  }
  digest.Add(IsGiven(o.keep));
  return digest;
}

Terms TermsOf(const Whole& whole) {
  const AttentionProblem& p = whole.attention;
  const AttentionOptions& o = whole.options;
  const Window window = o.window.value_or(Window{});
  Terms terms;
  terms.Add("batch", p.batch);
  terms.Add("num_heads", p.num_heads);
  terms.Add("num_kv_heads", p.num_kv_heads);
  terms.Add("head_dim", p.head_dim);
  terms.Add("head_dim of k", p.head_dim_k);
  terms.Add("head_dim_v", p.head_dim_v);
  terms.Add("type of k", static_cast<int64_t>(whole.k.dtype));
  terms.Add("type of v", static_cast<int64_t>(whole.v.dtype));
  terms.Add("sharding.q_len", whole.sharding.q_len);
  terms.Add("sharding.kv_len", whole.sharding.kv_len);
  terms.Add("sharding.order", static_cast<int64_t>(whole.sharding.order));
  terms.Add("score", static_cast<int64_t>(o.score));
  terms.Add("normalize", static_cast<int64_t>(o.normalize));
  terms.Add("scale", Bits(o.scale));
  terms.Add("softcap", Bits(o.softcap));
  terms.Add("causal", o.causal ? 1 : 0);
  terms.Add("window", Side(window.left));
  terms.Add("window", Side(window.right));
  terms.Add("query_offset", p.position.empty() ? 0 : p.position[0]);
  terms.Add("dropout.p", std::bit_cast<int64_t>(o.dropout.p));
  terms.Add("dropout.seed", static_cast<int64_t>(o.dropout.seed));
  terms.Add("key_lengths", LengthsTerm(whole));
  terms.Add("value of an option", DigestOf(whole).value());
  return terms;
}

bool Sees(const Whole& whole, const TokenSpan& queries, const TokenSpan& keys) {
  const AttentionProblem& p = whole.attention;
  const AttentionOptions& o = p.options;
  const bool lengths_of_entries = o.key_lengths.size() == static_cast<size_t>(p.batch);
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t first = p.position[static_cast<size_t>(b)] + queries.begin;
    const int64_t last = first + queries.len - 1;
    const Window window = o.window.value_or(Window{});
    const bool hidden = (o.causal && keys.begin > last) ||
                        (window.right && keys.begin > last + *window.right) ||
                        (window.left && keys.begin + keys.len - 1 < first - *window.left) ||
                        (lengths_of_entries && o.key_lengths[static_cast<size_t>(b)] <= keys.begin);
    if (!hidden) return true;
  }
  return false;
}

StoredTensor RowsOf(const StoredTensor& tensor, int64_t begin, int64_t len) {
  StoredTensor rows = tensor;
  if (tensor.has_value()) rows.data = tensor.Row(0, 0, begin);
  rows.shape[2] = len;
  return rows;
}

}  // namespace heed::distributed
