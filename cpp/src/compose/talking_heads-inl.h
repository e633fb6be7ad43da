// The loop of talking heads: a few queries pass over all keys with all heads together, because
// heads are mixed before and after the normaliser. Sockets are those of the tiled loop.
#if defined(HEED_COMPOSE_TALKING_HEADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_COMPOSE_TALKING_HEADS_INL_H_
#undef HEED_COMPOSE_TALKING_HEADS_INL_H_
#else
#define HEED_COMPOSE_TALKING_HEADS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "src/compose/mix_heads-inl.h"
#include "src/exact/keep/keep-inl.h"
#include "src/exact/plan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Queries of one task: as many as one register tile is high. Their scores of all heads are kept.
inline constexpr size_t kTalkingRows = kTileRows;

// Statistics of a head's rows, whole vectors of them.
inline constexpr size_t kStateRows = RoundUp(kTalkingRows, 16);

struct TalkingPlan {
  Plan plan;
  size_t heads;
  HeadMixer mix_scores;
  HeadMixer mix_weights;
  int64_t num_blocks;  // tasks per batch entry

  TalkingPlan(const AttentionProblem& p, std::span<const float> scores,
              std::span<const float> weights)
      : plan(p),
        heads(static_cast<size_t>(p.num_heads)),
        mix_scores(scores, heads),
        mix_weights(weights, heads) {
    const int64_t rows = static_cast<int64_t>(kTalkingRows);
    num_blocks = (p.q_len + rows - 1) / rows;
  }

  // One tile of scores of all heads.
  size_t TileFloats() const { return heads * kHeadFloats; }
};

// Memory of one worker.
struct TalkingScratch {
  AlignedFloats queries;  // [heads][depth][rows], then the scratch of packing them
  AlignedFloats raw;      // one tile of all heads before a mixing, or after the last
  AlignedFloats mixed;    // [tiles][heads][rows][kTileKeys]
  AlignedFloats passing;  // one tile of one head, on its way through the normaliser
  AlignedFloats output;   // [heads][rows][v_cols]
  AlignedFloats row_max;  // [heads][kStateRows]
  AlignedFloats row_sum;
  std::vector<Row> rows;         // [heads][kTalkingRows]
  std::vector<uint8_t> visible;  // [rows][kTileKeys]: which keys some head keeps

  explicit TalkingScratch(const TalkingPlan& talking)
      : queries(talking.heads * kTalkingRows * talking.plan.depth +
                talking.plan.plugs.score->QueryScratch()),
        raw(talking.TileFloats()),
        mixed(talking.plan.num_tiles * talking.TileFloats()),
        passing(kTalkingRows * kTileKeys),
        output(talking.heads * kTalkingRows * talking.plan.v_cols),
        row_max(talking.heads * kStateRows),
        row_sum(talking.heads * kStateRows),
        rows(talking.heads * kTalkingRows),
        visible(kTalkingRows * kTileKeys) {}
};

// One task: rows [first, first + num_rows) of all heads of a batch entry.
class TalkingBlock {
 public:
  // `tiles` holds the packed tiles of the batch entry: [num_kv_heads][num_tiles].
  TalkingBlock(const TalkingPlan& talking, int64_t batch, int64_t block, const PackedTile* tiles,
               TalkingScratch& scratch)
      : t_(talking),
        p_(*talking.plan.problem),
        batch_(batch),
        tiles_(tiles),
        scratch_(scratch),
        first_(block * static_cast<int64_t>(kTalkingRows)),
        num_rows_(static_cast<size_t>(
            std::min<int64_t>(static_cast<int64_t>(kTalkingRows), p_.q_len - first_))) {
    FillRows();
    for (size_t h = 0; h < t_.heads; ++h) PackQueries(h);
  }

  void Run() {
    const NormalizePlug& normalize = *t_.plan.plugs.normalize;
    std::fill_n(scratch_.row_max.get(), t_.heads * kStateRows, normalize.StartMax());
    std::fill_n(scratch_.row_sum.get(), t_.heads * kStateRows, 0.0f);
    std::fill_n(scratch_.output.get(), t_.heads * kTalkingRows * t_.plan.v_cols, 0.0f);
    ClearWeights();
    for (size_t t = BeginTile(); t < EndTile(); ++t) ScoreTileOfAllHeads(t);
    for (size_t t = BeginTile(); t < EndTile(); ++t) AttendWithAllHeads(t);
    for (size_t h = 0; h < t_.heads; ++h) WriteHead(h);
  }

 private:
  // Every head of a query has the same range of keys.
  void FillRows() {
    keys_ = {p_.kv_len, 0};
    for (size_t r = 0; r < num_rows_; ++r) {
      const int64_t query = first_ + static_cast<int64_t>(r);
      const KeyRange keys = VisibleKeys(p_, batch_, query);
      const int64_t position = query + p_.position[static_cast<size_t>(batch_)];
      for (size_t h = 0; h < t_.heads; ++h) {
        RowsOf(h)[r] = {static_cast<int64_t>(h), query, position, keys};
      }
      if (keys.begin == keys.end) continue;
      keys_.begin = std::min(keys_.begin, keys.begin);
      keys_.end = std::max(keys_.end, keys.end);
    }
    if (keys_.begin >= keys_.end) keys_ = {0, 0};
  }

  void PackQueries(size_t h) {
    const float* rows[kTalkingRows];
    for (size_t r = 0; r < num_rows_; ++r) {
      const int64_t query = first_ + static_cast<int64_t>(r);
      rows[r] = static_cast<const float*>(p_.q.Row(batch_, static_cast<int64_t>(h), query));
    }
    t_.plan.plugs.score->PackQueries(rows, RowsOf(h), num_rows_, QueriesOf(h), QueriesOf(t_.heads));
  }

  Row* RowsOf(size_t h) { return scratch_.rows.data() + h * kTalkingRows; }
  float* QueriesOf(size_t h) { return scratch_.queries.get() + h * kTalkingRows * t_.plan.depth; }
  RowStates StatesOf(size_t h) {
    return RowStates{scratch_.row_max.get(), scratch_.row_sum.get()}.From(h * kStateRows);
  }
  float* MixedOf(size_t t) { return scratch_.mixed.get() + t * t_.TileFloats(); }
  size_t BeginTile() const { return static_cast<size_t>(keys_.begin) / kTileKeys; }
  size_t EndTile() const { return (static_cast<size_t>(keys_.end) + kTileKeys - 1) / kTileKeys; }
  const PackedTile& Tile(size_t h, size_t t) const {
    return tiles_[h / static_cast<size_t>(p_.group) * t_.plan.num_tiles + t];
  }

  // The whole tile t of head h, whose scores lie at `scores`.
  ScoreTile MakeTile(size_t t, size_t h, float* scores) {
    ScoreTile tile;
    tile.problem = &p_;
    tile.batch = batch_;
    tile.rows = RowsOf(h);
    tile.num_rows = num_rows_;
    tile.key_begin = static_cast<int64_t>(t * kTileKeys);
    tile.num_keys = t_.plan.NumKeys(batch_, t);
    tile.first = 0;
    tile.last = Plan::KeyCols(tile.num_keys);
    std::fill_n(tile.groups, kMaxRowGroups, ColumnRange{tile.first, tile.last});
    tile.scores = scores;
    return tile;
  }

  // First pass: scores of all heads, mixed and modified, are kept; the normaliser sees a copy.
  void ScoreTileOfAllHeads(size_t t) {
    for (size_t h = 0; h < t_.heads; ++h) {
      ScoreTile tile = MakeTile(t, h, scratch_.raw.get() + h * kHeadFloats);
      t_.plan.plugs.score->Fill(QueriesOf(h), Tile(h, t).k, tile);
    }
    const size_t columns = Plan::KeyCols(t_.plan.NumKeys(batch_, t));
    t_.mix_scores.Mix(scratch_.raw.get(), num_rows_, columns, MixedOf(t));
    for (size_t h = 0; h < t_.heads; ++h) {
      ScoreTile tile = MakeTile(t, h, MixedOf(t) + h * kHeadFloats);
      ModifyAndKeep(tile);
      std::copy_n(tile.scores, num_rows_ * kTileKeys, scratch_.passing.get());
      tile.scores = scratch_.passing.get();
      HWY_ALIGN float rescale[kScoreRows];  // there is no output yet
      t_.plan.plugs.normalize->Accumulate(tile, StatesOf(h), rescale);
    }
  }

  void ModifyAndKeep(ScoreTile& tile) {
    const Plugs& plugs = t_.plan.plugs;
    if (plugs.softcap != nullptr) plugs.softcap->Apply(tile);
    for (const auto& modify : plugs.additive) modify->Apply(tile);
    if (plugs.keep.empty()) {
      ApplyRanges(tile);
      return;
    }
    KeyBits bits[kTalkingRows];
    for (size_t r = 0; r < num_rows_; ++r) {
      const ColumnRange columns = VisibleColumns(tile, r);
      bits[r].SetRange(columns.begin, columns.end);
    }
    const KeepTile keys = {tile.batch, tile.rows, tile.num_rows, tile.key_begin, tile.num_keys};
    for (const auto& keep : plugs.keep) keep->Narrow(keys, bits);
    ApplyBits(bits, tile);
  }

  // Second pass: final weights of all heads, mixed, times the values.
  void AttendWithAllHeads(size_t t) {
    NoteVisible(t);
    for (size_t h = 0; h < t_.heads; ++h) {
      ScoreTile tile = MakeTile(t, h, MixedOf(t) + h * kHeadFloats);
      for (size_t r = 0; r < num_rows_; ++r) WeighRow(tile, h, r);
    }
    const size_t columns = Plan::KeyCols(t_.plan.NumKeys(batch_, t));
    t_.mix_weights.Mix(MixedOf(t), num_rows_, columns, scratch_.raw.get());
    for (size_t h = 0; h < t_.heads; ++h) {
      const ScoreTile tile = MakeTile(t, h, scratch_.raw.get() + h * kHeadFloats);
      if (p_.outputs.weights.has_value()) WriteWeights(tile);
      if (Tile(h, t).v_finite) {
        Aggregate(Tile(h, t), tile, h);
      } else {
        AggregateVisible(Tile(h, t), tile, h);
      }
    }
  }

  // Scores to final weights. A row lost to NaN is multiplied by NaN; its hidden keys stay at 0.
  void WeighRow(const ScoreTile& tile, size_t h, size_t r) {
    float* row = tile.row_scores(r);
    const RowEnd end = Finish(h, r);
    const bool lost = std::isnan(end.factor);
    if (lost) std::copy_n(row, tile.last, scratch_.passing.get());
    t_.plan.plugs.normalize->Weights(tile, StatesOf(h), r, end);
    if (!lost) return;
    for (size_t c = 0; c < tile.last; ++c) {
      if (IsHidden(scratch_.passing.get()[c])) row[c] = 0.0f;
    }
  }

  RowEnd Finish(size_t h, size_t r) {
    return t_.plan.plugs.normalize->Finish(RowsOf(h)[r], StatesOf(h), r);
  }

  static bool IsHidden(float score) { return score == -std::numeric_limits<float>::infinity(); }

  // A key that some head keeps is seen by every mixed head.
  void NoteVisible(size_t t) {
    bool finite = true;
    for (size_t h = 0; h < t_.heads; ++h) finite = finite && Tile(h, t).v_finite;
    if (finite) return;
    std::fill(scratch_.visible.begin(), scratch_.visible.end(), uint8_t{0});
    const size_t columns = Plan::KeyCols(t_.plan.NumKeys(batch_, t));
    for (size_t h = 0; h < t_.heads; ++h) {
      const float* scores = MixedOf(t) + h * kHeadFloats;
      for (size_t r = 0; r < num_rows_; ++r) {
        for (size_t c = 0; c < columns; ++c) {
          if (!IsHidden(scores[r * kTileKeys + c])) scratch_.visible[r * kTileKeys + c] = 1;
        }
      }
    }
  }

  // output rows += weights x values.
  void Aggregate(const PackedTile& packed, const ScoreTile& tile, size_t h) {
    const size_t stride = t_.plan.v_cols;
    float* output = scratch_.output.get() + h * kTalkingRows * stride;
    for (size_t c = 0; c < stride; c += PanelCols()) {
      const float* panel = packed.v + c * t_.plan.TileKeys();
      WithRows(num_rows_, [&]<size_t kRows>() HWY_ATTR {
        RegisterTile<ALayout<1, kTileKeys>, kRows>(MultiplyAccumulate(), tile.scores, panel,
                                                   tile.num_keys, output + c, stride,
                                                   AddToStored());
      });
    }
  }

  // Aggregate where 0 x NaN must not happen: keys that no head keeps are left out. Same order and
  // same operations, hence the same bits.
  void AggregateVisible(const PackedTile& packed, const ScoreTile& tile, size_t h) {
    const DF d;
    const size_t cols = PanelCols();
    for (size_t r = 0; r < num_rows_; ++r) {
      float* output = scratch_.output.get() + (h * kTalkingRows + r) * t_.plan.v_cols;
      for (size_t c = 0; c < t_.plan.v_cols; c += hn::Lanes(d)) {
        const float* values = packed.v + c / cols * cols * t_.plan.TileKeys() + c % cols;
        VF sum = hn::Zero(d);
        for (size_t j = 0; j < tile.num_keys; ++j) {
          if (scratch_.visible[r * kTileKeys + j] == 0) continue;
          sum = Fma(hn::Set(d, tile.row_scores(r)[j]), hn::LoadU(d, values + j * cols), sum);
        }
        hn::Store(hn::Add(hn::Load(d, output + c), sum), d, output + c);
      }
    }
  }

  void ClearWeights() {
    if (!p_.outputs.weights.has_value() || p_.kv_len == 0) return;
    for (size_t h = 0; h < t_.heads; ++h) {
      for (size_t r = 0; r < num_rows_; ++r) {
        const Row& row = RowsOf(h)[r];
        std::fill_n(&p_.outputs.weights(batch_, row.head, row.query, 0), p_.kv_len, 0.0f);
      }
    }
  }

  void WriteWeights(const ScoreTile& tile) const {
    for (size_t r = 0; r < num_rows_; ++r) {
      const Row& row = tile.rows[r];
      float* to = &p_.outputs.weights(batch_, row.head, row.query, tile.key_begin);
      std::copy_n(tile.row_scores(r), tile.num_keys, to);
    }
  }

  void WriteHead(size_t h) {
    const AttentionOutputs& out = p_.outputs;
    const size_t width = static_cast<size_t>(p_.head_dim_v);
    for (size_t r = 0; r < num_rows_; ++r) {
      const Row& row = RowsOf(h)[r];
      if (out.lse.has_value()) {
        out.lse(batch_, row.head, row.query, 0) = t_.plan.plugs.normalize->Lse(row, StatesOf(h), r);
      }
      if (width == 0) continue;
      const float* from = scratch_.output.get() + (h * kTalkingRows + r) * t_.plan.v_cols;
      std::copy_n(from, width, &out.output(batch_, row.head, row.query, 0));
    }
  }

  const TalkingPlan& t_;
  const AttentionProblem& p_;
  int64_t batch_;
  const PackedTile* tiles_;
  TalkingScratch& scratch_;
  int64_t first_;
  size_t num_rows_;
  KeyRange keys_{};  // what any row of the block sees
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_COMPOSE_TALKING_HEADS_INL_H_
