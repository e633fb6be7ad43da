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
#include "src/exact/score_block-inl.h"
#include "src/exact/stored_bytes-inl.h"
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
class BlockLoop : private ScoreBlock {
 public:
  BlockLoop(const Plan& plan, int64_t unit, int64_t block, TileSource source, Scratch& scratch)
      : ScoreBlock(plan, unit, block, scratch),
        source_(source),
        states_{scratch.row_max.get(), scratch.row_sum.get()} {}

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
    at_once_ = WritesAtOnce();
    if (!at_once_) std::fill_n(scratch_.output.get(), num_rows_ * plan_.v_cols, 0.0f);
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
    float* const raw_scores = scratch_.raw_scores.get();
    for (size_t i = 0; i < num_rows_; ++i) {
      const float* row = tile.row_scores(i);
      std::copy(row + tile.first, row + tile.last, raw_scores + i * kTileKeys + tile.first);
    }
    HWY_ALIGN float rescale[kScoreRows];
    Weigh(tile, 0, rescale);
    const HeadRows values = ValuesOf(p_, unit_);
    FindRows(values, tile, scratch_.zeros.get(), *scratch_.stored_rows);
    const StoredRows& rows = *scratch_.stored_rows;
    // Where scores were those of many queries, so are sums: in fixed point they have other bits.
    if (!plan_.scores_rows || values.dtype() != DType::kInt8 ||
        !SumBytes(rows, tile, plan_.v_cols, sums)) {
      SumStoredValues(values.dtype(), rows, tile, plan_.v_cols, sums);
    }
    VF poison = hn::Zero(d);
    for (size_t c = 0; c < numbers; c += hn::Lanes(d)) {
      poison = hn::MulAdd(hn::Load(d, sums + c), hn::Zero(d), poison);
    }
    if (hn::ReduceSum(d, poison) != 0.0f) {
      PackValues(plan_, unit_, t, scratch_.buffers(), packed.v);
      NoteVisible(tile, raw_scores);
      AggregateVisible(packed, tile, 0, rescale);
      return AddRelativeValues(tile, 0);
    }
    AddTileSums(num_rows_, 0, rescale);
    AddRelativeValues(tile, 0);
  }

  // output rows from r on = rescale * output rows + the tile's sums.
  void AddTileSums(size_t count, size_t r, const float* rescale) {
    const DF d;
    const float* HWY_RESTRICT sums = scratch_.tile_sums.get();
    float* HWY_RESTRICT output = OutputRow(r);
    for (size_t i = 0; i < count; ++i) {
      const VF scale = hn::Set(d, rescale[i]);
      for (size_t c = i * plan_.v_cols; c < (i + 1) * plan_.v_cols; c += hn::Lanes(d)) {
        hn::Store(Fma(hn::Load(d, output + c), scale, hn::Load(d, sums + c)), d, output + c);
      }
    }
  }

  // One tile of scores through normalize and into the output rows, which begin at r.
  HWY_NOINLINE void Attend(const PackedTile& packed, const ScoreTile& tile, size_t r) {
    const bool select = !packed.v_finite;
    if (select) NoteVisible(tile, tile.scores);
    HWY_ALIGN float rescale[kScoreRows];
    Weigh(tile, r, rescale);
    if (at_once_) return WriteProducts(packed, tile, r);
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

  // to = factor * row r, whole vectors. May be done in place.
  void ScaleRow(size_t r, float factor, float* to) {
    const DF d;
    const float* row = scratch_.output.get() + r * plan_.v_cols;
    for (size_t c = 0; c < plan_.v_cols; c += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(hn::Load(d, row + c), hn::Set(d, factor)), d, to + c);
    }
  }

  void AddRelativeValues(const ScoreTile& tile, size_t r) {
    const auto& values = plan_.plugs.relative_values;
    if (values != nullptr) values->Add(tile, scratch_.output.get() + r * plan_.v_cols);
  }

  // output rows = rescale * output rows + weights x values. Rows that see nothing of the tile stay.
  void Aggregate(const PackedTile& packed, const ScoreTile& tile, size_t r, const float* rescale) {
#if HWY_NATIVE_DOT_BF16
    if (plan_.tile_unit != TileUnit::kNone) return AggregateByTiles(packed, tile, r, rescale);
    if (plan_.value_pairs) {
      RoundWeights(tile);
      return AddProducts<2>(MultiplyPairs(), RowPairs(0), packed, tile,
                            OutputRows<AddToScaled>{OutputRow(r), plan_.v_cols, rescale});
    }
#endif
    AddProducts<1>(MultiplyAccumulate(), tile.scores, packed, tile,
                   OutputRows<AddToScaled>{OutputRow(r), plan_.v_cols, rescale});
  }

  bool WritesAtOnce() const {
#if HWY_ARCH_WASM
    return false;
#else
    return plan_.writes_at_once && source_.shared != nullptr && source_.shared[0].v_finite &&
           keys_.begin < keys_.end;
#endif
  }

  // Outputs of rows whose only tile this is: weights x values, divided, to where they belong.
  void WriteProducts([[maybe_unused]] const PackedTile& packed,
                     [[maybe_unused]] const ScoreTile& tile, [[maybe_unused]] size_t r) {
#if !HWY_ARCH_WASM
    HWY_ALIGN float factors[kScoreRows];
    for (size_t i = 0; i < tile.num_rows; ++i) {
      const RowEnd end = Finish(r + i);
      factors[i] = end.empty ? 0.0f : end.factor;
    }
    const Row& row = scratch_.rows[r];
    auto* const to = static_cast<float*>(p_.output.Row(batch_, row.head, row.query));
    const auto stride = static_cast<size_t>(p_.output.strides[2]);
    AddProducts<1>(MultiplyAccumulate(), tile.scores, packed, tile,
                   OutputRows<WriteScaled>{to, stride, factors});
#endif
  }

  // What AddToScaled and WriteOutput() do to the only sums of a row: -0, of products that are next
  // to nothing, becomes 0 before it is divided.
  struct WriteScaled {
    const float* factors;
    HWY_INLINE void operator()(DF d, VF acc, float* HWY_RESTRICT to, size_t r) const {
      hn::StoreU(hn::Mul(hn::Add(acc, hn::Zero(d)), hn::Set(d, factors[r])), d, to);
    }
  };

  float* OutputRow(size_t r) const { return scratch_.output.get() + r * plan_.v_cols; }

  // Where the sums of a score tile's rows go, by Store{factors + row}.
  template <class Store>
  struct OutputRows {
    float* first;
    size_t stride;
    const float* factors;
  };

  // kKeys weights, and values of as many keys, lie in the place of one float.
  template <size_t kKeys, class Op, class Output>
  void AddProducts(Op op, const float* weights, const PackedTile& packed, const ScoreTile& tile,
                   const Output& output) {
    for (size_t c = 0; c < plan_.v_cols; c += PanelCols()) {
      // Vectors of 4 leave so few columns over that code of their own does not pay.
      if (hn::MaxLanes(DF()) > 4 && c + hn::Lanes(DF()) >= static_cast<size_t>(p_.head_dim_v)) {
        AddPanel<kKeys, 1>(op, weights, packed, tile, c, output);
      } else {
        AddPanel<kKeys, 2>(op, weights, packed, tile, c, output);
      }
    }
  }

  // The same for the panel of values, or its first vector, from column c on.
  template <size_t kKeys, size_t kVectors, class Op, class Store>
  void AddPanel(Op op, const float* weights, const PackedTile& packed, const ScoreTile& tile,
                size_t c, const OutputRows<Store>& output) {
    const float* panel = packed.v + c * plan_.ValueRowsPacked();
    ForEachRowGroup(tile, [&]<size_t kRows>(size_t i, const ColumnRange& columns) HWY_ATTR {
      const size_t begin = columns.begin / kKeys;
      const size_t end = (std::min(columns.end, tile.num_keys) + kKeys - 1) / kKeys;
      if (begin >= end) return;
      RegisterTile<ALayout<1, kTileKeys / kKeys>, kRows, kVectors>(
          op, weights + i * kTileKeys / kKeys + begin, panel + begin * PanelCols(), end - begin,
          output.first + i * output.stride + c, output.stride, Store{output.factors + i});
    });
  }

#if HWY_NATIVE_DOT_BF16
  // The weights of a row as pairs of neighbouring keys.
  float* RowPairs(size_t i) { return scratch_.pairs.get() + i * kTileKeys / 2; }
  void RoundWeights(const ScoreTile& tile) {
    const DF d;
    for (size_t i = 0; i < tile.num_rows; ++i) {
      for (size_t c = tile.first; c < tile.last; c += PanelCols()) {
        const float* weights = tile.row_scores(i) + c;
        const VF pairs = ToPairs(hn::Load(d, weights), hn::Load(d, weights + hn::Lanes(d)));
        hn::Store(pairs, d, RowPairs(i) + c / 2);
      }
    }
  }

  // Rounded weights x values of the tile, to its sums. Weights of keys that a row does not see are
  // 0.
  TileProduct ValueProduct(const PackedTile& packed, const ScoreTile& tile) {
    return {.rows = tile.num_rows,
            .steps = (tile.last - tile.first) / 2 / kStepPairs,
            .a = RowPairs(0) + tile.first / 2,
            .a_stride = kTileKeys / 2,
            .panels = packed.v + tile.first / 2 * PanelCols(),
            .panel_stride = plan_.ValueRowsPacked() * PanelCols(),
            .num_panels = plan_.v_cols / PanelCols(),
            .c = scratch_.tile_sums.get(),
            .c_stride = plan_.v_cols};
  }

  HWY_NOINLINE void AggregateByTiles(const PackedTile& packed, const ScoreTile& tile, size_t r,
                                     const float* rescale) {
    RoundWeights(tile);
    MultiplyTiles(plan_.tile_unit, ValueProduct(packed, tile));
    AddTileSums(tile.num_rows, r, rescale);
  }

  // AggregateVisible for pairs.
  void AggregateVisiblePairs(const PackedTile& packed, const ScoreTile& tile, size_t r,
                             const float* rescale) {
    RoundWeights(tile);
    if (plan_.tile_unit != TileUnit::kNone) {
      MultiplyByVectors(ValueProduct(packed, tile), scratch_.visible.get() + tile.first, kTileKeys);
      return AddTileSums(tile.num_rows, r, rescale);
    }
    const DF d;
    const hn::RebindToUnsigned<DF> du;
    const size_t cols = PanelCols();
    const size_t end = std::min(tile.last, tile.num_keys);
    for (size_t i = 0; i < tile.num_rows; ++i) {
      const uint8_t* visible = scratch_.visible.get() + i * kTileKeys;
      float* HWY_RESTRICT output = scratch_.output.get() + (r + i) * plan_.v_cols;
      for (size_t c = 0; c < plan_.v_cols; c += hn::Lanes(d)) {
        const float* values = packed.v + c / cols * cols * plan_.ValueRowsPacked() + c % cols;
        VF sum = hn::Zero(d);
        for (size_t j = tile.first; j < end; j += 2) {
          const uint32_t second = j + 1 < end && visible[j + 1] != 0 ? 0xFFFF0000u : 0;
          const uint32_t seen = second | (visible[j] != 0 ? 0xFFFFu : 0);
          if (seen == 0) continue;
          const VF pair = hn::LoadU(d, values + j / 2 * cols);
          const VF selected = hn::And(pair, hn::BitCast(d, hn::Set(du, seen)));
          sum = MultiplyPairs().Step(hn::Set(d, RowPairs(i)[j / 2]), selected, sum);
        }
        hn::Store(Fma(hn::Load(d, output + c), hn::Set(d, rescale[i]), sum), d, output + c);
      }
    }
  }
#endif

  // Aggregate for tiles that hold values that are not finite: 0 x NaN must not happen, so hidden
  // keys are left out. Same order and same operations, hence the same bits.
  void AggregateVisible(const PackedTile& packed, const ScoreTile& tile, size_t r,
                        const float* rescale) {
#if HWY_NATIVE_DOT_BF16
    if (plan_.value_pairs) return AggregateVisiblePairs(packed, tile, r, rescale);
#endif
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
    if (!at_once_) WriteOutput(r, Finish(r));
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
    const bool is_whole = p_.output.dtype == DType::kFloat32 && width == plan_.v_cols;
    if (end.empty) {
      std::fill_n(from, width, 0.0f);
    } else {
      ScaleRow(r, end.factor, is_whole ? static_cast<float*>(to) : from);
      if (is_whole) return;
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

  TileSource source_;
  RowStates states_;
  bool at_once_ = false;        // outputs are written as they are summed
  float rescaled_[kScoreRows];  // what a tile multiplied the rows by; only used to show it
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_LOOP_INL_H_
