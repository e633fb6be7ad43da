// Packed sequences: one problem whose queries each have a position and a range of keys.
#include "heed/varlen.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/exact/attention_spans.h"
#include "src/exact/problem.h"
#include "src/exact/tile.h"
#include "src/exact/validate_score.h"
#include "src/from_javascript.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr int64_t kMaxPosition = int64_t{1} << 53;

void CheckOffsets(const char* name, std::span<const int32_t> offsets, int64_t total) {
  if (offsets.empty()) {
    Fail(ErrorCode::kShape, "{} is empty; expected one more number than sequences", {name});
  }
  for (size_t s = 0; s < offsets.size(); ++s) {
    const int64_t least = s == 0 ? 0 : offsets[s - 1];
    const int64_t most = s == 0 ? 0 : total;
    if (offsets[s] < least || offsets[s] > most) {
      Fail(ErrorCode::kRange,
           "{}[{}] = {}; expected {} to {}: offsets begin at 0 and never decrease",
           {name, s, offsets[s], least, most});
    }
  }
}

void CheckOptions(const AttentionOptions& o, size_t sequences) {
  if (!o.patterns.empty() || !o.prefix_lengths.empty() || !o.query_documents.empty() ||
      !o.key_documents.empty()) {
    Fail(ErrorCode::kUnsupported,
         "patterns, prefix_lengths and documents do not know where packed sequences begin; give "
         "one call with documents instead");
  }
  if (!o.key_lengths.empty() || o.keep.has_value() || o.bias.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "key_lengths, keep and bias have no place in packed sequences: the offsets say what "
         "exists");
  }
  const auto& positions = o.query_offset.positions();
  if (o.query_offset.kind() == QueryOffset::Kind::kPerBatch && positions.size() != sequences) {
    Fail(ErrorCode::kShape, "query_offset has {} positions; expected one per sequence = {}",
         {positions.size(), sequences});
  }
  for (const int64_t position : positions) {
    if (position > kMaxPosition || position < -kMaxPosition) {
      Fail(ErrorCode::kRange, "query_offset = {}; positions lie within +-2^53", {position});
    }
  }
}

// Where query 0 of sequence s stands among its keys.
int64_t FirstPosition(const AttentionOptions& o, size_t s, int64_t q_len, int64_t kv_len) {
  switch (o.query_offset.kind()) {
    case QueryOffset::Kind::kNumber:
      return o.query_offset.positions()[0];
    case QueryOffset::Kind::kPerBatch:
      return o.query_offset.positions()[s];
    case QueryOffset::Kind::kEnd:
      return kv_len - q_len;
    case QueryOffset::Kind::kUnset:
      break;
  }
  if (q_len != kv_len && PositionalOption(o) != nullptr) {
    Fail(ErrorCode::kOption,
         "query_offset is needed: sequence {} has {} queries and {} keys, and positions matter. "
         "Give 0 if query 0 stands at key 0, or \"end\" if the queries are the last tokens",
         {s, q_len, kv_len});
  }
  return 0;
}

void PlaceQueries(std::span<const int32_t> cu_seqlens_q, std::span<const int32_t> cu_seqlens_k,
                  const AttentionOptions& options, AttentionProblem& p) {
  p.packed_positions.assign(static_cast<size_t>(p.q.shape[2]), 0);
  p.packed_keys.assign(static_cast<size_t>(p.q.shape[2]), KeyRange{0, 0});
  for (size_t s = 0; s + 1 < cu_seqlens_q.size(); ++s) {
    const KeyRange keys = {cu_seqlens_k[s], cu_seqlens_k[s + 1]};
    const int64_t first = cu_seqlens_q[s];
    const int64_t last = cu_seqlens_q[s + 1];
    const int64_t offset = FirstPosition(options, s, last - first, keys.end - keys.begin);
    for (int64_t i = first; i < last; ++i) {
      p.packed_positions[static_cast<size_t>(i)] = keys.begin + offset + i - first;
      p.packed_keys[static_cast<size_t>(i)] = keys;
    }
  }
}

// Which sequence each query belongs to.
struct Sequences {
  std::span<const int32_t> cu_seqlens_q, cu_seqlens_k;
  std::vector<int32_t> of_query;  // as many as belong to one

  bool Has(int64_t query) const { return query < static_cast<int64_t>(of_query.size()); }
  int32_t Of(int64_t query) const { return of_query[static_cast<size_t>(query)]; }
};

Sequences FindSequences(std::span<const int32_t> cu_seqlens_q,
                        std::span<const int32_t> cu_seqlens_k) {
  Sequences sequences = {cu_seqlens_q, cu_seqlens_k, {}};
  sequences.of_query.reserve(static_cast<size_t>(cu_seqlens_q.back()));
  for (size_t s = 0; s + 1 < cu_seqlens_q.size(); ++s) {
    sequences.of_query.resize(static_cast<size_t>(cu_seqlens_q[s + 1]), static_cast<int32_t>(s));
  }
  return sequences;
}

// A user's function that is shown the pairs of one sequence at a time, as if it were alone.
class OneAtATime {
 public:
  OneAtATime(TileFunction function, std::shared_ptr<const Sequences> sequences)
      : function_(std::move(function)), sequences_(std::move(sequences)) {}

  void operator()(const PairTile& tile) const {
    size_t end = 0;
    for (size_t begin = 0; begin < tile.num_rows; begin = end) {
      end = begin + 1;
      if (!sequences_->Has(tile.rows[begin].query)) continue;
      const int32_t sequence = sequences_->Of(tile.rows[begin].query);
      while (end < tile.num_rows && end - begin < kMaxTileRows &&
             sequences_->Has(tile.rows[end].query) &&
             sequences_->Of(tile.rows[end].query) == sequence) {
        ++end;
      }
      Show(tile, begin, end, static_cast<size_t>(sequence));
    }
  }

 private:
  // Rows [begin, end) and the keys of their sequence.
  void Show(const PairTile& tile, size_t begin, size_t end, size_t sequence) const {
    const int64_t first_key = sequences_->cu_seqlens_k[sequence];
    const int64_t from = std::max(tile.key_begin, first_key);
    const int64_t to = std::min<int64_t>(tile.key_begin + static_cast<int64_t>(tile.num_keys),
                                         sequences_->cu_seqlens_k[sequence + 1]);
    if (from >= to) return;
    PairTile::Row rows[kMaxTileRows];
    for (size_t r = begin; r < end; ++r) {
      const PairTile::Row& row = tile.rows[r];
      rows[r - begin] = {row.head, row.query - sequences_->cu_seqlens_q[sequence],
                         row.position - first_key};
    }
    float* const values = tile.values + begin * tile.row_stride + (from - tile.key_begin);
    function_({static_cast<int64_t>(sequence), rows, end - begin, from - first_key,
               static_cast<size_t>(to - from), values, tile.row_stride});
  }

  TileFunction function_;
  std::shared_ptr<const Sequences> sequences_;
};

void ShowSequences(std::span<const int32_t> cu_seqlens_q, std::span<const int32_t> cu_seqlens_k,
                   AttentionOptions& options) {
  std::shared_ptr<const Sequences> sequences;
  for (TileFunction* function : {&options.score_mod, &options.keep_mod, &options.prob_mod}) {
    if (!*function) continue;
    if (sequences == nullptr) {
      sequences = std::make_shared<const Sequences>(FindSequences(cu_seqlens_q, cu_seqlens_k));
    }
    *function = OneAtATime(std::move(*function), sequences);
  }
}

}  // namespace

void AttentionVarlen(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                     std::span<const int32_t> cu_seqlens_q, std::span<const int32_t> cu_seqlens_k,
                     const AttentionOptions& options, const AttentionOutputs& outputs,
                     ThreadPool* pool) {
  WithMemoryErrors("attention of packed sequences", [&] {
    AttentionProblem p;
    p.q = q;
    p.k = k;
    p.v = v;
    CheckStored("q", q);
    CheckStored("k", k);
    if (q.shape[0] != 1) {
      Fail(ErrorCode::kShape, "q has batch {}; packed sequences lie in one batch entry",
           {q.shape[0]});
    }
    CheckOffsets("cu_seqlens_q", cu_seqlens_q, q.shape[2]);
    CheckOffsets("cu_seqlens_k", cu_seqlens_k, k.shape[2]);
    if (cu_seqlens_q.size() != cu_seqlens_k.size()) {
      Fail(ErrorCode::kShape,
           "cu_seqlens_q has {} numbers and cu_seqlens_k {}; both have one more than there are "
           "sequences",
           {cu_seqlens_q.size(), cu_seqlens_k.size()});
    }
    CheckOptions(options, cu_seqlens_q.size() - 1);
    p.options = options;
    p.options.query_offset = QueryOffset::At(0);
    if (!kFromJavaScript) ShowSequences(cu_seqlens_q, cu_seqlens_k, p.options);
    CompleteInputs(p, outputs.lse.has_value());
    PlaceQueries(cu_seqlens_q, cu_seqlens_k, options, p);
    CompleteOutputs(p, outputs);
    SpansOf(outputs)
        .ApartFrom("cu_seqlens_q", cu_seqlens_q)
        .ApartFrom("cu_seqlens_k", cu_seqlens_k);
    RunProblem(p, pool);
  });
}

void AttentionVarlen(TensorView<const float> q, TensorView<const float> k,
                     TensorView<const float> v, std::span<const int32_t> cu_seqlens_q,
                     std::span<const int32_t> cu_seqlens_k, const AttentionOptions& options,
                     const AttentionOutputs& outputs, ThreadPool* pool) {
  AttentionVarlen(StoredTensor(q), StoredTensor(k), StoredTensor(v), cu_seqlens_q, cu_seqlens_k,
                  options, outputs, pool);
}

}  // namespace heed
