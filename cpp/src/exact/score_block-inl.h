// The rows of one task and their scores, a tile of keys at a time: what forward and backward share.
#if defined(HEED_EXACT_SCORE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_BLOCK_INL_H_
#undef HEED_EXACT_SCORE_BLOCK_INL_H_
#else
#define HEED_EXACT_SCORE_BLOCK_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <span>

#include "src/exact/plan-inl.h"
#include "src/exact/seen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Writes the rows of a block, in order, each to where `place()` says: a row that is copied right
// after its numbers were written one by one waits for them. Returns what keys any of them sees.
template <class Place>
KeyRange FillRows(const Plan& plan, int64_t unit, int64_t block, const Place& place) {
  const AttentionProblem& p = *plan.problem;
  const int64_t batch = unit / p.num_kv_heads;
  const int64_t head = unit % p.num_kv_heads * p.group;
  const int64_t first = plan.first_row + block * plan.block_rows;
  const int64_t last = std::min(first + plan.block_rows, plan.rows);
  int64_t query = first / p.group;
  int64_t lane = first % p.group;
  KeyRange seen = {p.kv_len, 0};
  KeyRange keys{};
  for (int64_t r = first; r < last; ++r) {
    if (r == first || (lane == 0 && !plan.same_keys)) keys = VisibleKeys(p, batch, query);
    Row& row = place();
    row = {head + lane, query, p.Position(batch, query), keys};
    if (++lane == p.group) {
      lane = 0;
      ++query;
    }
    NarrowToHulls(plan.plugs.keep, batch, row);
    if (row.keys.begin == row.keys.end) continue;
    seen.begin = std::min(seen.begin, row.keys.begin);
    seen.end = std::max(seen.end, row.keys.end);
  }
  return seen.begin < seen.end ? seen : KeyRange{0, 0};
}

// Rows [plan.first_row + block * plan.block_rows, ...) of a unit (batch entry and KV head): their
// queries packed, and their scores through the sockets score, modify and keep.
class ScoreBlock {
 protected:
  ScoreBlock(const Plan& plan, int64_t unit, int64_t block, Scratch& scratch)
      : plan_(plan),
        p_(*plan.problem),
        unit_(unit),
        batch_(unit / p_.num_kv_heads),
        scratch_(scratch),
        seen_(plan, batch_, scratch),
        score_memory_(scratch.scores.get()) {
    keys_ = FillRows(plan, unit, block, [&]() -> Row& { return scratch.rows[num_rows_++]; });
    seen_.FindRuns(num_rows_);
    PackQueries();
  }

  size_t BeginTile() const { return static_cast<size_t>(keys_.begin) / kTileKeys; }
  size_t EndTile() const { return (static_cast<size_t>(keys_.end) + kTileKeys - 1) / kTileKeys; }

  ScoreTile MakeScoreTile(size_t t, size_t r) const {
    ScoreTile tile;
    tile.problem = &p_;
    tile.batch = batch_;
    tile.rows = scratch_.rows.data() + r;
    tile.num_rows = std::min(kScoreRows, num_rows_ - r);
    tile.key_begin = static_cast<int64_t>(t * kTileKeys);
    tile.num_keys = plan_.NumKeys(batch_, t);
    tile.first = 0;
    tile.last = Plan::KeyCols(tile.num_keys);
    std::fill_n(tile.groups, kMaxRowGroups, ColumnRange{tile.first, tile.last});
    tile.scores = score_memory_;
    return tile;
  }

  // Runs score, modify and keep on the rows from r and tile t, and calls `visit(tile)` for each run
  // of panels that some row sees: one tile, or several where cells are kept one by one.
  template <class Visit>
  void VisitScores(const PackedTile& packed, size_t t, size_t r, const Visit& visit) {
    ScoreTile tile = MakeScoreTile(t, r);
    if (plan_.plugs.keep.empty()) {
      const TileClass ranges = NarrowToRanges(tile, seen_.DistinctRows(r, tile.num_rows));
      if (ranges == TileClass::kEmpty) return;
      Score(packed, r, tile);
      if (ranges == TileClass::kPartial) ApplyRanges(tile);
      visit(tile);
      return;
    }
    const VisiblePanels& visible = seen_.Panels(t, r, tile.num_rows);
    uint64_t panels = visible.any;
    for (ColumnRange run; TakeRun(panels, run);) {
      tile.first = run.begin;
      tile.last = run.end;
      for (size_t g = 0; g < kMaxRowGroups; ++g) {
        tile.groups[g] = visible.groups[g].Hull(run);
      }
      Score(packed, r, tile);
      if (!visible.all.Covers(run.begin, run.end)) ApplyBits(scratch_.key_bits.data(), tile);
      visit(tile);
    }
  }

  // Scores all tiles that some of the rows [r, r + kScoreRows) see into the row buffer, with the
  // keys that key_tile(t) gives. Runs of panels of one tile share its place in the buffer; each is
  // scored apart and copied there, because modifiers may touch columns of other runs.
  template <class KeyTile>
  std::span<const ScoreTile> FillRowBuffer(size_t r, const KeyTile& key_tile) {
    scratch_.tiles.clear();
    const bool runs = !plan_.plugs.keep.empty();
    float* place = scratch_.row_buffer.get();
    for (size_t t = BeginTile(); t < EndTile(); ++t) {
      if (!seen_.MayMeet(t, 0, num_rows_)) continue;
      score_memory_ = runs ? scratch_.scores.get() : place;
      VisitScores(key_tile(t), t, r, [&](const ScoreTile& tile) {
        ScoreTile& kept = scratch_.tiles.emplace_back(tile);
        kept.scores = place;
        for (size_t i = 0; runs && i < tile.num_rows; ++i) {
          const float* scores = tile.row_scores(i);
          std::copy(scores + tile.first, scores + tile.last, kept.row_scores(i) + tile.first);
        }
      });
      place += plan_.BufferedTileFloats();
      if (capped_memory_ != nullptr) capped_memory_ += plan_.BufferedTileFloats();
      if (biased_memory_ != nullptr) biased_memory_ += plan_.BufferedTileFloats();
    }
    return scratch_.tiles;
  }

  void Score(const PackedTile& packed, size_t r, ScoreTile& tile) const {
    FillScores(packed, r, tile);
    if (plan_.plugs.softcap != nullptr) plan_.plugs.softcap->Apply(tile);
    if (capped_memory_ != nullptr) KeepScores(tile, capped_memory_);
    for (const auto& modify : plan_.plugs.additive) {
      if (biased_memory_ != nullptr && modify == plan_.plugs.additive.back()) {
        KeepScores(tile, biased_memory_);
      }
      modify->Apply(tile);
    }
  }

  void FillScores(const PackedTile& packed, size_t r, ScoreTile& tile) const {
    const float* queries = scratch_.queries.get() + r * plan_.query_depth;
    if (packed.k_packed) return plan_.plugs.score->Fill(queries, packed.k, tile);
    ScoreTile panel = tile;
    const bool in_place = plan_.ReadsKeysInPlace();
    const HeadRows keys = KeysOf(p_, unit_);
    if (plan_.scores_rows) return FillFromRows(keys, queries, tile);
    const size_t t = static_cast<size_t>(tile.key_begin) / kTileKeys;
    for (size_t c = tile.first; c < tile.last; c += PanelCols()) {
      panel.first = c;
      panel.last = c + PanelCols();
      if (plan_.streams_rows) TouchRows(keys, panel);
      if (in_place) {
        FindRows(keys, panel, scratch_.zeros.get(), *scratch_.stored_rows);
        plan_.plugs.score->FillStored(queries, keys.dtype(), *scratch_.stored_rows, panel);
      } else {
        PackKeyPanel(plan_, unit_, t, c, scratch_.buffers(), packed.k);
        plan_.plugs.score->Fill(queries, packed.k, panel);
      }
    }
  }

  // From keys row by row, and converted before where their type asks for it: the same bits.
  void FillFromRows(const HeadRows& keys, const float* queries, ScoreTile& tile) const {
    StoredRows& stored = *scratch_.stored_rows;
    if (DotsStoredRows(keys.dtype())) {
      FindRows(keys, tile, scratch_.zeros.get(), stored);
      return plan_.plugs.score->FillFromRows(queries, keys.dtype(), stored, tile);
    }
    ScoreTile panel = tile;
    for (size_t c = tile.first; c < tile.last; c += PanelCols()) {
      panel.first = c;
      panel.last = c + PanelCols();
      const float* rows[PanelCols()];
      const size_t count = std::min(PanelCols(), tile.num_keys - c);
      GatherRows(keys, tile.key_begin + static_cast<int64_t>(c), count, scratch_.buffers(), rows);
      for (size_t i = 0; i < PanelCols(); ++i) stored.rows[c + i] = rows[std::min(i, count - 1)];
      plan_.plugs.score->FillFromRows(queries, DType::kFloat32, stored, panel);
    }
  }

  // Remembers which cells are kept, from their scores before they become weights.
  void NoteVisible(const ScoreTile& tile, const float* scores) {
    for (size_t i = 0; i < tile.num_rows; ++i) {
      for (size_t c = tile.first; c < tile.last; ++c) {
        scratch_.visible[i * kTileKeys + c] =
            scores[i * kTileKeys + c] != -std::numeric_limits<float>::infinity();
      }
    }
  }

  const Plan& plan_;
  const AttentionProblem& p_;
  int64_t unit_;
  int64_t batch_;
  Scratch& scratch_;
  SeenKeys seen_;
  float* score_memory_;             // where the next score tile goes
  float* capped_memory_ = nullptr;  // where scores are kept as they are before biases; or nowhere
  float* biased_memory_ = nullptr;  // the same before score_mod, the last modifier
  size_t num_rows_ = 0;
  KeyRange keys_{};  // what any row of the block sees

 private:
  // Groups of kTileRows rows, each [query_depth][rows]; the last group may be shorter.
  void PackQueries() {
    const size_t width = static_cast<size_t>(p_.head_dim);
    float* const packed = scratch_.queries.get();
    for (size_t group = 0; group < num_rows_; group += kTileRows) {
      const size_t count = std::min(kTileRows, num_rows_ - group);
      const Row* queries = scratch_.rows.data() + group;
      const float* rows[kTileRows];
      for (size_t i = 0; i < count; ++i) {
        const RowBuffers buffers = {scratch_.converted.get() + i * width, nullptr};
        GatherRows({&p_.q, nullptr, batch_, queries[i].head}, queries[i].query, 1, buffers,
                   rows + i);
      }
      if (plan_.scores_rows) {
        plan_.plugs.score->PackQueryRows(rows, count, packed + group * plan_.query_depth);
        continue;
      }
      plan_.plugs.score->PackQueries(rows, queries, count, packed + group * plan_.query_depth,
                                     packed + num_rows_ * plan_.query_depth);
    }
  }

  static void KeepScores(const ScoreTile& tile, float* to) {
    for (size_t i = 0; i < tile.num_rows; ++i) {
      const float* row = tile.row_scores(i);
      std::copy(row + tile.first, row + tile.last, to + i * kTileKeys + tile.first);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_BLOCK_INL_H_
