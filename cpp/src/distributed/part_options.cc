// The options of a call over a part of the keys, from those of the whole.
#include <algorithm>
#include <utility>

#include "src/distributed/whole.h"
#include "src/exact/tile.h"

namespace heed::distributed {
namespace {

// The part of a tensor that broadcasts to [batch, num_heads, queries, keys].
template <typename T>
TensorView<T> Part(TensorView<T> view, const Rows& queries, const TokenSpan& keys) {
  if (!view.has_value()) return view;
  if (view.shape[2] != 1) {
    view.data += queries.begin * view.strides[2];
    view.shape[2] = queries.tokens.len;
  }
  if (view.shape[3] != 1) {
    view.data += keys.begin * view.strides[3];
    view.shape[3] = keys.len;
  }
  return view;
}

// Values [begin, begin + len) of `of` values, of each batch entry or of all.
std::vector<int32_t> Part(std::span<const int32_t> values, int64_t of, int64_t begin, int64_t len) {
  std::vector<int32_t> part;
  if (of == 0) return part;
  for (size_t entry = 0; entry < values.size(); entry += static_cast<size_t>(of)) {
    const auto from = values.begin() + static_cast<int64_t>(entry) + begin;
    part.insert(part.end(), from, from + len);
  }
  return part;
}

// Lengths of the whole as those of some of its keys.
void Clamp(std::vector<int32_t>& lengths, const TokenSpan& keys) {
  for (int32_t& length : lengths) {
    length = static_cast<int32_t>(std::clamp<int64_t>(length - keys.begin, 0, keys.len));
  }
}

}  // namespace

PartOptions::PartOptions(const Whole& whole, const Rows& queries, const TokenSpan& keys)
    : options_(whole.options) {
  options_.normalize = Normalize::kSoftmax;
  options_.sinks = {};
  std::vector<int64_t> positions = whole.attention.position;
  for (int64_t& position : positions) position += queries.tokens.begin - keys.begin;
  options_.query_offset = QueryOffset::PerBatch(std::move(positions));
  options_.bias = Part(options_.bias, queries, keys);
  options_.keep = Part(options_.keep, queries, keys);
  if (options_.dropout.p > 0) {
    options_.dropout.origin[2] += queries.tokens.begin;
    options_.dropout.origin[3] += keys.begin;
  }
  options_.score_mod = Shifted(options_.score_mod, queries.tokens.begin, keys.begin);
  options_.keep_mod = Shifted(options_.keep_mod, queries.tokens.begin, keys.begin);
  SetLengths(whole, queries, keys);
  SetDocuments(whole, queries, keys);
}

void PartOptions::SetLengths(const Whole& whole, const Rows& queries, const TokenSpan& keys) {
  const AttentionProblem& p = whole.attention;
  const bool of_queries = options_.key_lengths.size() != static_cast<size_t>(p.batch);
  key_lengths_ = of_queries ? Part(options_.key_lengths, p.q_len, queries.begin, queries.tokens.len)
                            : std::vector(options_.key_lengths.begin(), options_.key_lengths.end());
  Clamp(key_lengths_, keys);
  options_.key_lengths = key_lengths_;
  prefix_lengths_.assign(options_.prefix_lengths.begin(), options_.prefix_lengths.end());
  Clamp(prefix_lengths_, keys);
  options_.prefix_lengths = prefix_lengths_;
}

void PartOptions::SetDocuments(const Whole& whole, const Rows& queries, const TokenSpan& keys) {
  const AttentionProblem& p = whole.attention;
  query_documents_ = Part(options_.query_documents, p.q_len, queries.begin, queries.tokens.len);
  options_.query_documents = query_documents_;
  key_documents_ = Part(options_.key_documents, p.kv_len, keys.begin, keys.len);
  options_.key_documents = key_documents_;
}

TileFunction Shifted(const TileFunction& function, int64_t first_query, int64_t first_key) {
  if (!function) return function;
  return [function, first_query, first_key](const PairTile& tile) {
    PairTile::Row rows[kMaxTileRows];
    for (size_t r = 0; r < tile.num_rows; ++r) {
      rows[r] = tile.rows[r];
      rows[r].query += first_query;
      rows[r].position += first_key;
    }
    PairTile whole = tile;
    whole.rows = rows;
    whole.key_begin += first_key;
    function(whole);
  };
}

}  // namespace heed::distributed
