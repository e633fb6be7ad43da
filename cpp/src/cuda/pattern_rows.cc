#include "src/cuda/pattern_rows.h"

#include <algorithm>

#include "src/exact/keep/plugs.h"

namespace heed::cuda {
namespace {

// The plugs of the patterns alone: the other keep rules are the kernels' own.
KeepPlugs PlugsOfPatterns(const AttentionProblem& p) {
  AttentionProblem patterns = p;
  patterns.chosen = nullptr;
  patterns.sink_keys = 0;
  patterns.options.keep = {};
  patterns.options.keep_mod = {};
  patterns.options.query_documents = {};
  patterns.options.key_documents = {};
  return MakeKeepPlugs(patterns);
}

class RowWriter {
 public:
  explicit RowWriter(const AttentionProblem& p) : p_(p), plugs_(PlugsOfPatterns(p)) {}

  PatternRows Write() {
    const auto& at = p_.position;
    const bool alike = std::adjacent_find(at.begin(), at.end(), std::not_equal_to<>()) == at.end();
    const int64_t batches = alike ? std::min<int64_t>(p_.batch, 1) : p_.batch;
    for (int64_t b = 0; b < batches; ++b) {
      for (int64_t h = 0; h < p_.num_heads; ++h) {
        for (int64_t i = 0; i < p_.q_len; ++i) rows_.ids.push_back(IdOf(b, h, i));
      }
    }
    rows_.head_stride = p_.q_len;
    rows_.batch_stride = alike ? 0 : p_.num_heads * p_.q_len;
    return std::move(rows_);
  }

 private:
  Row RowOf(int64_t b, int64_t h, int64_t i) const {
    return {h, i, p_.Position(b, i), {0, p_.kv_len}};
  }
  bool SameKeys(int64_t b, const Row& one, const Row& other) const {
    return std::all_of(plugs_.begin(), plugs_.end(),
                       [&](const auto& plug) { return plug->SameKeys(b, one, other); });
  }

  // The id of the head before, or of the query before, where they see the same keys.
  int32_t IdOf(int64_t b, int64_t h, int64_t i) {
    const Row row = RowOf(b, h, i);
    if (h > 0 && SameKeys(b, RowOf(b, h - 1, i), row)) {
      return rows_.ids[rows_.ids.size() - static_cast<size_t>(p_.q_len)];
    }
    if (i > 0 && SameKeys(b, RowOf(b, h, i - 1), row)) return rows_.ids.back();
    AddWords(b, row);
    rows_.starts.push_back(static_cast<int64_t>(rows_.tiles.size()));
    return static_cast<int32_t>(rows_.starts.size() - 2);
  }

  void AddWords(int64_t b, Row row) {
    NarrowToHulls(plugs_, b, row);
    const int64_t step = static_cast<int64_t>(kTileKeys);
    for (int64_t begin = row.keys.begin / step * step; begin < row.keys.end; begin += step) {
      const int64_t count = std::min(step, p_.kv_len - begin);
      const KeepTile tile = {b, &row, 1, begin, static_cast<size_t>(count)};
      const ColumnRange columns = VisibleColumns(row, begin, static_cast<size_t>(count));
      KeyBits bits;
      bits.SetRange(columns.begin, columns.end);
      for (const auto& plug : plugs_) {
        if (!plug->MayMeet(tile)) bits = {};
        if (!bits.None()) plug->Narrow(tile, &bits);
      }
      for (size_t w = 0; w < KeyBits::kWords; ++w) {
        if (bits.words[w] == 0) continue;
        rows_.tiles.push_back(static_cast<int32_t>(begin / 64 + static_cast<int64_t>(w)));
        rows_.words.push_back(bits.words[w]);
      }
    }
  }

  const AttentionProblem& p_;
  KeepPlugs plugs_;
  PatternRows rows_;
};

}  // namespace

PatternRows RowsOfPatterns(const AttentionProblem& p) {
  if (p.options.patterns.empty()) return {};
  return RowWriter(p).Write();
}

}  // namespace heed::cuda
