// The tiled loop: a block of query rows passes over the keys, tile by tile, through the sockets.
#if defined(HEED_EXACT_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_LOOP_INL_H_
#undef HEED_EXACT_LOOP_INL_H_
#else
#define HEED_EXACT_LOOP_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "src/exact/plan-inl.h"
#include "src/exact/seen-inl.h"
#include "src/exact/trace-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Where the loop finds the tiles of a KV head: packed for all blocks, or packed again by each task
// into its own scratch when there is only one block.
struct TileSource {
  const PackedTile* shared = nullptr;
};

// One task: rows [first_row, first_row + num_rows) of a unit (batch entry and KV head).
class BlockLoop {
 public:
  BlockLoop(const Plan& plan, int64_t unit, int64_t block, TileSource source, Scratch& scratch)
      : plan_(plan),
        p_(*plan.problem),
        unit_(unit),
        batch_(unit / p_.num_kv_heads),
        source_(source),
        scratch_(scratch),
        states_{scratch.row_max.get(), scratch.row_sum.get()},
        seen_(plan, batch_, scratch),
        score_memory_(scratch.scores.get()) {
    const int64_t first = plan.first_row + block * plan.block_rows;
    num_rows_ = static_cast<size_t>(std::min(plan.block_rows, plan.rows - first));
    FillRows(first);
    PackQueries();
  }

  // Computes and writes output and lse, then weights or scores if asked for; then shows the weights
  // to the visitor, if there is one.
  void Run(int64_t part) {
    if (plan_.plugs.rows != nullptr) return RunBuffered(part);
    if (plan_.visit != nullptr && plan_.visit->lse.has_value()) {
      RestoreRows();
    } else {
      RunRows();
    }
    if (plan_.visit != nullptr) ShowWeights(*plan_.visit, part);
  }

  // Lets the rows see tiles [first, last) only, from a fresh start, and leaves their states and
  // outputs in the scratch.
  void RunTiles(size_t first, size_t last) {
    const NormalizePlug& normalize = *plan_.plugs.normalize;
    std::fill_n(scratch_.output.get(), num_rows_ * plan_.v_cols, 0.0f);
    std::fill_n(states_.row_max, RoundUp(num_rows_, kScoreRows), normalize.StartMax());
    std::fill_n(states_.row_sum, RoundUp(num_rows_, kScoreRows), 0.0f);
    const bool tracing = p_.outputs.running_max.has_value();
    const size_t end = std::min(last, EndTile());
    if (tracing) TraceUnseen(0, BeginTile());
    for (size_t t = std::max(first, BeginTile()); t < end; ++t) {
      if (!seen_.MayMeet(t, 0, num_rows_)) {
        if (tracing) TraceUnseen(t, t + 1);
        continue;
      }
      const PackedTile packed = LazyTile(t);
      for (size_t r = 0; r < num_rows_; r += kScoreRows) {
        if (tracing) std::fill_n(rescaled_, kScoreRows, kNoRescale);
        VisitScores(packed, t, r, [&](const ScoreTile& tile) {
          if (packed.v_packed) {
            Attend(packed, tile, r);
          } else {
            AttendInPlace(packed, tile, t);
          }
        });
        if (tracing) Trace(t, r);
      }
    }
    if (tracing) TraceUnseen(end, plan_.num_tiles);
  }

  // Adds the rows as other tiles left them.
  void MergeRows(RowStates states, const float* output) {
    HWY_ALIGN float scale[2][kBlockRows];
    plan_.plugs.normalize->Merge(states_, states, RoundUp(num_rows_, kScoreRows), scale[0],
                                 scale[1]);
    const DF d;
    for (size_t r = 0; r < num_rows_; ++r) {
      float* HWY_RESTRICT to = scratch_.output.get() + r * plan_.v_cols;
      const float* HWY_RESTRICT from = output + r * plan_.v_cols;
      for (size_t c = 0; c < plan_.v_cols; c += hn::Lanes(d)) {
        const VF sum = hn::Mul(hn::Load(d, to + c), hn::Set(d, scale[0][r]));
        hn::Store(hn::MulAdd(hn::Load(d, from + c), hn::Set(d, scale[1][r]), sum), d, to + c);
      }
    }
  }

  void WriteRows() {
    for (size_t r = 0; r < num_rows_; ++r) WriteRow(r);
  }

 private:
  enum class Pairs { kWeights, kScores };

  // The same for normalisers that need whole rows: row_loop-inl.h.
  void RunBuffered(int64_t part);
  std::span<const ScoreTile> FillRowBuffer(size_t r);
  void FinishTile(const PackedTile& packed, const ScoreTile& tile, size_t r, int64_t part);
  void ReplaceWeights(const ScoreTile& tile);
  PackedTile KeyTile(size_t t);
  PackedTile ValueTile(size_t t);

  void RunRows() {
    RunTiles(0, plan_.num_tiles);
    WriteRows();
    if (p_.outputs.weights.has_value()) WritePairs(p_.outputs.weights, Pairs::kWeights);
    if (p_.outputs.scores.has_value()) WritePairs(p_.outputs.scores, Pairs::kScores);
  }

  // Takes the rows' denominators from the visit instead of computing them.
  void RestoreRows() {
    for (size_t r = 0; r < num_rows_; ++r) {
      states_.row_max[r] = plan_.plugs.normalize->MaxOfLse(Lse(r));
      states_.row_sum[r] = 1.0f;
    }
  }

  float Lse(size_t r) const {
    const Row& row = scratch_.rows[r];
    return plan_.visit->lse(batch_, row.head, row.query, 0);
  }

  void FillRows(int64_t first) {
    keys_ = {p_.kv_len, 0};
    int64_t query = first / p_.group;
    int64_t lane = first % p_.group;
    const int64_t head = unit_ % p_.num_kv_heads * p_.group;
    for (size_t r = 0; r < num_rows_; ++r) {
      Row& row = scratch_.rows[r];
      row = {head + lane, query, p_.Position(batch_, query), VisibleKeys(p_, batch_, query)};
      if (++lane == p_.group) {
        lane = 0;
        ++query;
      }
      NarrowToHulls(plan_.plugs.keep, batch_, row);
      const KeyRange keys = row.keys;
      if (keys.begin == keys.end) continue;
      keys_.begin = std::min(keys_.begin, keys.begin);
      keys_.end = std::max(keys_.end, keys.end);
    }
    if (keys_.begin >= keys_.end) keys_ = {0, 0};
    seen_.FindRuns(num_rows_);
  }

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
      plan_.plugs.score->PackQueries(rows, queries, count, packed + group * plan_.query_depth,
                                     packed + num_rows_ * plan_.query_depth);
    }
  }

  size_t BeginTile() const { return static_cast<size_t>(keys_.begin) / kTileKeys; }
  size_t EndTile() const { return (static_cast<size_t>(keys_.end) + kTileKeys - 1) / kTileKeys; }

  PackedTile Tile(size_t t) {
    if (source_.shared != nullptr) return source_.shared[t];
    PackedTile tile = {scratch_.k_tile.get(), scratch_.v_tile.get(), true};
    PackTile(plan_, unit_, t, scratch_.buffers(), tile);
    return tile;
  }

  // The same for the first pass, which packs no more than it uses.
  PackedTile LazyTile(size_t t) {
    if (!plan_.HasFewRows()) return Tile(t);
    const bool in_place = plan_.ReadsValuesInPlace();
    PackedTile tile = {scratch_.k_tile.get(), scratch_.v_tile.get(), true, false, !in_place};
    if (!in_place) tile.v_finite = PackValues(plan_, unit_, t, scratch_.buffers(), tile.v);
    return tile;
  }

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
        tile.groups[g] = PanelsInRun(visible.groups[g], run);
      }
      Score(packed, r, tile);
      if (!visible.all.Covers(run.begin, run.end)) ApplyBits(scratch_.key_bits.data(), tile);
      visit(tile);
    }
  }

  void Score(const PackedTile& packed, size_t r, ScoreTile& tile) const {
    FillScores(packed, r, tile);
    if (plan_.plugs.softcap != nullptr) plan_.plugs.softcap->Apply(tile);
    for (const auto& modify : plan_.plugs.additive) modify->Apply(tile);
  }

  void FillScores(const PackedTile& packed, size_t r, ScoreTile& tile) const {
    const float* queries = scratch_.queries.get() + r * plan_.query_depth;
    if (packed.k_packed) return plan_.plugs.score->Fill(queries, packed.k, tile);
    ScoreTile panel = tile;
    const size_t t = static_cast<size_t>(tile.key_begin) / kTileKeys;
    for (size_t c = tile.first; c < tile.last; c += PanelCols()) {
      const size_t next = std::min(c + PanelCols(), tile.num_keys);
      PrefetchRows(KeysOf(p_, unit_), tile.key_begin + static_cast<int64_t>(next),
                   std::min(PanelCols(), tile.num_keys - next));
      PackKeyPanel(plan_, unit_, t, c, scratch_.buffers(), packed.k);
      panel.first = c;
      panel.last = c + PanelCols();
      plan_.plugs.score->Fill(queries, packed.k, panel);
    }
  }

  // Turns the tile's scores into weights. `rescale` is what the output rows, which begin at r, are
  // still to be multiplied by.
  void Weigh(const ScoreTile& tile, size_t r, float* rescale) {
    plan_.plugs.normalize->Accumulate(tile, states_.From(r), rescale);
    if (p_.outputs.running_max.has_value()) {
      for (size_t i = 0; i < tile.num_rows; ++i) rescaled_[i] *= rescale[i];
    }
    for (const auto& plug : plan_.plugs.weights) plug->Apply(tile);
  }

  // All rows, values where they lie. Values that are not finite show in the sums: then the tile is
  // packed after all, and hidden keys are left out.
  HWY_NOINLINE void AttendInPlace(const PackedTile& packed, const ScoreTile& tile, size_t t) {
    const DF d;
    const size_t numbers = num_rows_ * plan_.v_cols;
    float* HWY_RESTRICT sums = scratch_.tile_sums.get();
    float* HWY_RESTRICT output = scratch_.output.get();
    std::copy_n(tile.scores, num_rows_ * kTileKeys, scratch_.raw_scores.get());
    HWY_ALIGN float rescale[kScoreRows];
    Weigh(tile, 0, rescale);
    const HeadRows values = ValuesOf(p_, unit_);
    FindValueRows(values, tile, scratch_.zeros.get(), *scratch_.value_rows);
    SumStoredValues(values.dtype(), *scratch_.value_rows, tile, plan_.v_cols, sums);
    VF poison = hn::Zero(d);
    for (size_t c = 0; c < numbers; c += hn::Lanes(d)) {
      poison = hn::MulAdd(hn::Load(d, sums + c), hn::Zero(d), poison);
    }
    if (hn::ReduceSum(d, poison) != 0.0f) {
      PackValues(plan_, unit_, t, scratch_.buffers(), packed.v);
      NoteVisible(tile, scratch_.raw_scores.get());
      AggregateVisible(packed, tile, 0, rescale);
      return AddRelativeValues(tile, 0);
    }
    for (size_t i = 0; i < num_rows_; ++i) {
      const VF scale = hn::Set(d, rescale[i]);
      for (size_t c = i * plan_.v_cols; c < (i + 1) * plan_.v_cols; c += hn::Lanes(d)) {
        hn::Store(Fma(hn::Load(d, output + c), scale, hn::Load(d, sums + c)), d, output + c);
      }
    }
    AddRelativeValues(tile, 0);
  }

  // One tile of scores through normalize and into the output rows, which begin at r.
  HWY_NOINLINE void Attend(const PackedTile& packed, const ScoreTile& tile, size_t r) {
    const bool select = !packed.v_finite;
    if (select) NoteVisible(tile, tile.scores);
    HWY_ALIGN float rescale[kScoreRows];
    Weigh(tile, r, rescale);
    if (select) {
      AggregateVisible(packed, tile, r, rescale);
    } else {
      Aggregate(packed, tile, r, rescale);
    }
    AddRelativeValues(tile, r);
  }

  // Shows the states of rows [r, r + kScoreRows) after tile t.
  void Trace(size_t t, size_t r) const {
    const size_t count = std::min(kScoreRows, num_rows_ - r);
    WriteTrace(p_, batch_, scratch_.rows.data() + r, count, states_.From(r), rescaled_, t);
  }

  // The same for tiles that no row sees.
  void TraceUnseen(size_t begin, size_t end) {
    std::fill_n(rescaled_, kScoreRows, kNoRescale);
    for (size_t t = begin; t < end; ++t) {
      for (size_t r = 0; r < num_rows_; r += kScoreRows) Trace(t, r);
    }
  }

  void ScaleRow(size_t r, float factor) {
    const DF d;
    float* HWY_RESTRICT row = scratch_.output.get() + r * plan_.v_cols;
    for (size_t c = 0; c < plan_.v_cols; c += hn::Lanes(d)) {
      hn::Store(hn::Mul(hn::Load(d, row + c), hn::Set(d, factor)), d, row + c);
    }
  }

  void AddRelativeValues(const ScoreTile& tile, size_t r) {
    const auto& values = plan_.plugs.relative_values;
    if (values != nullptr) values->Add(tile, scratch_.output.get() + r * plan_.v_cols);
  }

  // output rows = rescale * output rows + weights x values. Rows that see nothing of the tile stay.
  void Aggregate(const PackedTile& packed, const ScoreTile& tile, size_t r, const float* rescale) {
    const size_t cols = PanelCols();
    const size_t stride = plan_.v_cols;
    for (size_t c = 0; c < stride; c += cols) {
      const float* panel = packed.v + c * plan_.TileKeys();
      float* to = scratch_.output.get() + r * stride + c;
      ForEachRowGroup(tile, [&]<size_t kRows>(size_t i, const ColumnRange& columns) HWY_ATTR {
        const size_t end = std::min(columns.end, tile.num_keys);
        if (columns.begin >= end) return;
        RegisterTile<ALayout<1, kTileKeys>, kRows>(
            MultiplyAccumulate(), tile.row_scores(i) + columns.begin, panel + columns.begin * cols,
            end - columns.begin, to + i * stride, stride, AddToScaled{rescale + i});
      });
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

  // Aggregate for tiles that hold values that are not finite: 0 x NaN must not happen, so hidden
  // keys are left out. Same order and same operations, hence the same bits.
  void AggregateVisible(const PackedTile& packed, const ScoreTile& tile, size_t r,
                        const float* rescale) {
    const DF d;
    const size_t cols = PanelCols();
    const size_t end = std::min(tile.last, tile.num_keys);
    for (size_t i = 0; i < tile.num_rows; ++i) {
      float* HWY_RESTRICT output = scratch_.output.get() + (r + i) * plan_.v_cols;
      for (size_t c = 0; c < plan_.v_cols; c += hn::Lanes(d)) {
        const float* values = packed.v + c / cols * cols * plan_.TileKeys() + c % cols;
        VF sum = hn::Zero(d);
        for (size_t j = tile.first; j < end; ++j) {
          if (scratch_.visible[i * kTileKeys + j] == 0) continue;
          const VF weight = hn::Set(d, tile.row_scores(i)[j]);
          sum = Fma(weight, hn::LoadU(d, values + j * cols), sum);
        }
        hn::Store(Fma(hn::Load(d, output + c), hn::Set(d, rescale[i]), sum), d, output + c);
      }
    }
  }

  RowEnd Finish(size_t r) const {
    if (plan_.visit != nullptr && plan_.visit->lse.has_value()) {
      const bool empty = Lse(r) == -std::numeric_limits<float>::infinity();
      return {empty ? 0.0f : 1.0f, empty};
    }
    return plan_.plugs.normalize->Finish(scratch_.rows[r], states_, r);
  }

  void WriteRow(size_t r) {
    if (p_.outputs.lse.has_value()) {
      WriteLse(r, plan_.plugs.normalize->Lse(scratch_.rows[r], states_, r));
    }
    WriteOutput(r, Finish(r));
  }

  void WriteLse(size_t r, float lse) const {
    const Row& row = scratch_.rows[r];
    p_.outputs.lse(batch_, row.head, row.query, 0) = lse;
  }

  void WriteOutput(size_t r, const RowEnd& end) {
    const Row& row = scratch_.rows[r];
    const size_t width = static_cast<size_t>(p_.head_dim_v);
    if (width == 0 || !p_.output.has_value()) return;
    void* to = p_.output.Row(batch_, row.head, row.query);
    float* HWY_RESTRICT from = scratch_.output.get() + r * plan_.v_cols;
    if (end.empty) {
      std::fill_n(from, width, 0.0f);
    } else {
      ScaleRow(r, end.factor);
    }
    FloatsToStoredRow(from, width, p_.output.dtype, to);
  }

  // Second passes, which compute the scores again: pairs-inl.h.
  void FillPairs(const TensorView<float>& pairs, float value) const;
  void WritePairs(const TensorView<float>& pairs, Pairs what);
  ScoreTile EarlyScores(const PackedTile& packed, size_t t, size_t r) const;
  void ShowWeights(const WeightVisit& visit, int64_t part);
  void WritePairTile(const TensorView<float>& pairs, Pairs what, const ScoreTile& tile, size_t r);
  void CopyPairTile(const TensorView<float>& pairs, const ScoreTile& tile) const;
  void WeighRow(const ScoreTile& tile, size_t r, size_t i);

  const Plan& plan_;
  const AttentionProblem& p_;
  int64_t unit_;
  int64_t batch_;
  TileSource source_;
  Scratch& scratch_;
  RowStates states_;
  SeenKeys seen_;
  float* score_memory_;         // where the next score tile goes
  float rescaled_[kScoreRows];  // what a tile multiplied the rows by; only used to show it
  size_t num_rows_ = 0;
  KeyRange keys_{};  // what any row of the block sees
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_LOOP_INL_H_
