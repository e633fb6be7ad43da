// The plan of one call: sizes, plugs and memory, fixed before any thread starts.
#if defined(HEED_EXACT_PLAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_PLAN_INL_H_
#undef HEED_EXACT_PLAN_INL_H_
#else
#define HEED_EXACT_PLAN_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "src/exact/keep/key_bits.h"
#include "src/exact/keep/range.h"
#include "src/exact/plugs-inl.h"
#include "src/exact/problem.h"
#include "src/exact/rows-inl.h"
#include "src/exact/tile.h"
#include "src/exact/visit.h"
#include "src/parallel/worker_scratch.h"
#include "src/simd/bfloat16-inl.h"
#include "src/simd/pack-inl.h"
#include "src/simd/tile_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Rows of one task at most, which pass over the keys together. A multiple of every kScoreRows.
inline constexpr int64_t kBlockRows = 96;

// Rows of one task where runs of `run` rows see the same keys: whole runs, or an equal part of one.
// A block across two runs would visit the keys of both, and compute row groups across them twice
// (random blocks of 64, AVX2: 9 % slower). Short runs share their groups anyway.
constexpr int64_t BlockRowsForRun(int64_t run) {
  if (run < kBlockRows / 4) return kBlockRows;
  if (run <= kBlockRows) return kBlockRows / run * run;
  for (int64_t part = kBlockRows; part > kBlockRows / 2; --part) {
    if (run % part == 0) return part;
  }
  return kBlockRows;
}

// The keys, or values, of a unit.
inline HeadRows KeysOf(const AttentionProblem& p, int64_t unit) {
  return {&p.k, p.cached_k, unit / p.num_kv_heads, unit % p.num_kv_heads};
}
inline HeadRows ValuesOf(const AttentionProblem& p, int64_t unit) {
  return {&p.v, p.cached_v, unit / p.num_kv_heads, unit % p.num_kv_heads};
}

// Tiles of a split: 1024 keys.
inline constexpr size_t kSplitTiles = 4;

// Rows of a task enumerate query positions and, innermost, the query heads of one KV head: a GQA
// group shares every packed tile, and a block spans few positions, so causal skips more.
struct Plan {
  const AttentionProblem* problem;
  const WeightVisit* visit;  // nullptr: output only
  Plugs plugs;
  size_t depth;                      // of a packed key
  size_t query_depth;                // of a packed query
  bool value_pairs;                  // values are packed two keys at a time, as bfloat16
  TileUnit tile_unit;                // that multiplies them
  size_t v_cols;                     // head_dim_v, rounded up to panels
  size_t num_tiles;                  // tiles of kTileKeys keys
  int64_t first_row;                 // rows of a KV head, of q_len * group
  int64_t rows;                      // one past the last of them
  int64_t block_rows;                // rows of a block, at most kBlockRows
  int64_t num_blocks;                // blocks per KV head
  int64_t num_parts;                 // tasks per KV head
  int64_t num_units;                 // batch * num_kv_heads
  bool same_keys;                    // SeeTheSameKeys(), asked once
  bool writes_at_once;               // WritesAtOnce(), asked once
  bool streams_rows;                 // StreamsRows(), asked once
  bool scores_rows;                  // ScoresRows(), asked once
  std::vector<KeyRange> batch_keys;  // keys that any query of a batch entry sees

  explicit Plan(const AttentionProblem& p, const WeightVisit* visited = nullptr)
      : problem(&p), visit(visited), plugs(MakePlugs(p)) {
    depth = plugs.score->Depth();
    query_depth = plugs.score->QueryDepth();
    value_pairs = visit == nullptr && MultipliesPairs(p);
    tile_unit = ValueTileUnit();
    v_cols = RoundUp(static_cast<size_t>(p.head_dim_v), PanelCols());
    num_tiles = (static_cast<size_t>(p.kv_len) + kTileKeys - 1) / kTileKeys;
    first_row = (visit == nullptr ? 0 : visit->queries.begin) * p.group;
    rows = (visit == nullptr ? p.q_len : visit->queries.end) * p.group;
    block_rows = kBlockRows;
    for (const auto& keep : plugs.keep) {
      block_rows = std::min(block_rows, BlockRowsForRun(keep->QueryRun() * p.group));
    }
    num_blocks = (rows - first_row + block_rows - 1) / block_rows;
    num_parts = visit == nullptr ? num_blocks : std::min(num_blocks, visit->parts);
    num_units = p.batch * p.num_kv_heads;
    same_keys = SeeTheSameKeys(p);
    writes_at_once = WritesAtOnce();
    streams_rows = StreamsRows();
    scores_rows = ScoresRows();
    for (int64_t b = 0; b < p.batch; ++b) batch_keys.push_back(KeysOfBatch(b));
  }

  // Panels of keys in a tile of `num_keys`.
  static size_t KeyCols(size_t num_keys) { return RoundUp(num_keys, PanelCols()); }

  // Packed keys, then the scratch of packing them.
  size_t KTileFloats() const { return PackedKeyFloats() + plugs.score->KeyScratch(); }
  size_t PackedKeyFloats() const { return KeyCols(TileKeys()) * depth; }
  size_t VTileFloats() const { return ValueRowsPacked() * v_cols; }
  // Rows of a packed tile of values: pairs of keys, or keys.
  size_t ValueRowsPacked() const {
    if (tile_unit != TileUnit::kNone) return RoundUp(TileKeys(), PanelCols()) / 2;
    return value_pairs ? (TileKeys() + 1) / 2 : TileKeys();
  }
  // Room for a panel of rows that are converted first.
  size_t ConvertedFloats() const {
    const bool all_floats = problem->q.dtype == DType::kFloat32 &&
                            KeysOf(*problem, 0).dtype() == DType::kFloat32 &&
                            ValuesOf(*problem, 0).dtype() == DType::kFloat32;
    return all_floats ? 0 : PanelCols() * LongestRow();
  }
  size_t LongestRow() const {
    return static_cast<size_t>(
        std::max({problem->head_dim, problem->head_dim_k, problem->head_dim_v}));
  }
  // Are all rows done with one tile, which all of them see, and written as they are summed?
  bool WritesAtOnce() const {
    if (HWY_ARCH_WASM) return false;  // where 128 tokens count for less than the size of code
    const AttentionProblem& p = *problem;
    return num_tiles == 1 && visit == nullptr && plugs.keep.empty() && same_keys &&
           plugs.rows == nullptr && plugs.relative_values == nullptr && !value_pairs &&
           p.group == 1 && !p.outputs.running_max.has_value() && p.output.has_value() &&
           p.output.dtype == DType::kFloat32 && p.output.strides[2] > 0 &&
           v_cols == static_cast<size_t>(p.head_dim_v);
  }
  // Few rows use a packed tile so little that packing it would cost as much: one score tile of rows
  // reads keys panel by panel, and values where they lie.
  bool HasFewRows() const {
    return visit == nullptr && num_blocks == 1 &&
           rows - first_row <= static_cast<int64_t>(kScoreRows);
  }
  bool ReadsValuesInPlace() const {
    return HasFewRows() && !PacksFewValues() && v_cols > 0 &&
           v_cols == static_cast<size_t>(problem->head_dim_v);
  }
  // Do as many rows as there are values use each of them? Then packing them takes less than the
  // copies, sums and checks of reading them in place: in WebAssembly, whose panels are narrow.
  bool PacksFewValues() const {
    return HWY_ARCH_WASM && problem->kv_len <= 2 * static_cast<int64_t>(kScoreRows) &&
           problem->kv_len <= 2 * (rows - first_row);
  }
  bool ReadsKeysInPlace() const {
    return HasFewRows() && num_units > 0 &&
           plugs.score->FillsStored(static_cast<size_t>(rows - first_row),
                                    KeysOf(*problem, 0).dtype());
  }
  // Are keys read row by row, each once? Where keys are split, partial sums merge in an order of
  // their own, and the bits of few queries are not those of many anyway.
  bool ScoresRows() const {
    return IsSplit() && HasFewRows() && num_units > 0 &&
           plugs.score->FillsFromRows(static_cast<size_t>(rows - first_row));
  }
  // Are keys that are transposed read once, and from memory rather than from a cache? Then
  // `TouchRows` pays: for 8 MB in a cache it would cost a tenth, for 32 MB it gains a fourth (Zen
  // 4).
  bool StreamsRows() const {
    constexpr int64_t kCached = 16 << 20;
    if (num_units == 0 || !HasFewRows()) return false;
    const HeadRows keys = KeysOf(*problem, 0);
    const HeadRows values = ValuesOf(*problem, 0);
    const auto bytes = static_cast<int64_t>(keys.RowBytes() + values.RowBytes());
    // What is stored in a byte takes longer to convert than to read.
    const bool converts = ElementSize(keys.dtype()) == 1 || ElementSize(values.dtype()) == 1;
    return !converts && num_units * problem->kv_len * bytes > kCached;
  }
  size_t NumSplits() const { return (num_tiles + kSplitTiles - 1) / kSplitTiles; }
  // Are the keys of a KV head spread over several tasks? Depends on shapes and options only.
  bool IsSplit() const {
    const AttentionOutputs& out = problem->outputs;
    return visit == nullptr && num_blocks == 1 && NumSplits() > 1 && plugs.rows == nullptr &&
           plugs.normalize->CanSplit() && !out.weights.has_value() && !out.scores.has_value() &&
           !out.running_max.has_value();
  }
  // Do tasks pack their tiles for themselves? When a KV head has one block only; and in a cache
  // with a window, most of whose tiles no longer exist.
  bool PacksOwnTiles() const {
    // The row buffer passes over the tiles once a group of rows: packing for one of them is enough.
    const bool passes_once = plugs.rows == nullptr || HasFewRows();
    return (num_blocks == 1 && passes_once) ||
           (problem->cached_k != nullptr && problem->options.window);
  }
  // Rows of the row buffer, when the normaliser needs one.
  size_t BufferRows() const {
    if (plugs.rows == nullptr) return 0;
    return static_cast<size_t>(
        std::min<int64_t>(rows - first_row, static_cast<int64_t>(kScoreRows)));
  }
  // Of the row buffer, for a tile of keys.
  size_t BufferedTileFloats() const { return BufferRows() * kTileKeys; }
  size_t BufferFloats() const { return num_tiles * BufferedTileFloats(); }
  // Tiles of scores in it, of which keep rules may make several runs.
  size_t MostBufferedTiles() const {
    return num_tiles * (plugs.keep.empty() ? 1 : kTileKeys / PanelCols() / 2);
  }
  // Keys of the largest tile: fewer than kTileKeys when there are fewer keys.
  size_t TileKeys() const { return std::min(kTileKeys, static_cast<size_t>(problem->kv_len)); }

  // Keys of tile t that some query of the batch entry sees the tile for.
  size_t NumKeys(int64_t batch, size_t t) const {
    const int64_t left =
        batch_keys[static_cast<size_t>(batch)].end - static_cast<int64_t>(t * kTileKeys);
    return static_cast<size_t>(std::clamp<int64_t>(left, 0, static_cast<int64_t>(kTileKeys)));
  }

 private:
  TileUnit ValueTileUnit() const {
#if HWY_NATIVE_DOT_BF16
    if (value_pairs) return UsableTileUnit();
#endif
    return TileUnit::kNone;
  }

  KeyRange KeysOfBatch(int64_t b) const {
    const AttentionProblem& p = *problem;
    // Scores of stages before the keep rules show every pair.
    if (p.outputs.scores.has_value() && p.outputs.score_stage != ScoreStage::kBiased) {
      return {0, p.kv_len};
    }
    KeyRange all = {p.kv_len, 0};
    const int64_t distinct = same_keys ? std::min<int64_t>(1, p.q_len) : p.q_len;
    for (int64_t i = 0; i < distinct; ++i) {
      const KeyRange keys = VisibleKeys(p, b, i);
      if (keys.begin == keys.end) continue;
      all.begin = std::min(all.begin, keys.begin);
      all.end = std::max(all.end, keys.end);
    }
    return all.begin < all.end ? all : KeyRange{0, 0};
  }
};

// Keys and values of one tile.
struct PackedTile {
  float* k;
  float* v;
  bool v_finite;
  bool k_packed = true;  // else panels are packed one by one, right before they are used
  bool v_packed = true;  // else values are read where they lie
};

// Packs columns [c, c + PanelCols()) of tile t. Keys that no query sees are not read.
inline void PackKeyPanel(const Plan& plan, int64_t unit, size_t t, size_t c, RowBuffers buffers,
                         float* k) {
  const HeadRows keys = KeysOf(*plan.problem, unit);
  const size_t count = std::min(PanelCols(), plan.NumKeys(keys.batch, t) - c);
  const float* rows[PanelCols()];
  GatherRows(keys, static_cast<int64_t>(t * kTileKeys + c), count, buffers, rows);
  plan.plugs.score->PackKeys(rows, count, keys.head, k + c * plan.depth,
                             k + plan.PackedKeyFloats());
}

// Packs the values of tile t. Returns whether all are finite.
inline bool PackValues(const Plan& plan, int64_t unit, size_t t, RowBuffers buffers, float* v) {
  const HeadRows values = ValuesOf(*plan.problem, unit);
  const size_t count = plan.NumKeys(values.batch, t);
  bool finite = true;
  for (size_t c = 0; c < count; c += PanelCols()) {
    const size_t here = std::min(PanelCols(), count - c);
    const float* rows[PanelCols()];
    GatherRows(values, static_cast<int64_t>(t * kTileKeys + c), here, buffers, rows);
#if HWY_NATIVE_DOT_BF16
    if (plan.value_pairs) {
      const size_t filled = plan.tile_unit == TileUnit::kNone ? here : PanelCols();
      finite = PackPairPanels(rows, here, filled, values.width(), plan.ValueRowsPacked(),
                              v + c / 2 * PanelCols()) &&
               finite;
      continue;
    }
#endif
    finite =
        PackPanels(RowPointers{rows}, here, values.width(), plan.TileKeys(), v + c * PanelCols()) &&
        finite;
  }
  return finite;
}

inline void PackTile(const Plan& plan, int64_t unit, size_t t, RowBuffers buffers,
                     PackedTile& tile) {
  const size_t count = plan.NumKeys(unit / plan.problem->num_kv_heads, t);
  for (size_t c = 0; c < count; c += PanelCols()) PackKeyPanel(plan, unit, t, c, buffers, tile.k);
  tile.v_finite = PackValues(plan, unit, t, buffers, tile.v);
}

// Memory of one worker.
struct Scratch {
  AlignedFloats queries;  // packed rows of a block, then the scratch of packing them
  AlignedFloats scores;   // one score tile
  AlignedFloats output;   // [block rows][v_cols]
  AlignedFloats pairs;    // the weights of a score tile as pairs of keys; only for those
  AlignedFloats k_tile;   // only when tiles are not shared
  AlignedFloats v_tile;
  AlignedFloats converted;                  // rows of q, k or v that are not stored as floats
  AlignedFloats zeros;                      // a row; only for caches
  std::unique_ptr<StoredRows> stored_rows;  // where keys or values of a tile lie
  AlignedFloats tile_sums;  // [score rows][v_cols]; only for unpacked values, and products of tiles
  AlignedFloats raw_scores;  // those of a tile before they became weights; only for unpacked values
  AlignedFloats row_max;
  AlignedFloats row_sum;
  std::vector<Row> rows;
  std::vector<size_t> run_ends;   // of the rows that see the same keys, from each row on
  std::vector<KeyBits> key_bits;  // what each row of a score tile sees; only used by cell plugs
  std::unique_ptr<uint8_t[]> visible;  // of one score tile; only used when values are not finite
  // Only for normalisers that need whole rows (row_loop-inl.h).
  AlignedFloats row_buffer;        // [tile][row][kTileKeys]
  AlignedFloats row_scratch;       // what the plug asked for
  ScratchVector<ScoreTile> tiles;  // those in the buffer, or runs of them

  Scratch(const Plan& plan, bool own_tiles) {
    const size_t most = static_cast<size_t>(std::min(plan.rows - plan.first_row, plan.block_rows));
    AllocateFloats(plan, own_tiles, most);
    if (zeros.get() != nullptr && DryRun::Current() == nullptr) {
      std::fill_n(zeros.get(), plan.LongestRow(), 0.0f);
    }
    if (plan.scores_rows || plan.ReadsKeysInPlace() || plan.ReadsValuesInPlace()) {
      stored_rows = std::make_unique_for_overwrite<StoredRows>();
    }
    rows.resize(most);
    run_ends.resize(most);
    key_bits.resize(kScoreRows);
    visible = std::make_unique<uint8_t[]>(std::min(most, kScoreRows) * kTileKeys);
    if (plan.plugs.rows == nullptr) return;
    row_buffer = AlignedFloats(plan.BufferFloats());
    row_scratch = AlignedFloats(plan.plugs.rows->ScratchFloats());
    tiles.reserve(plan.MostBufferedTiles());
  }

  RowBuffers buffers() const { return {converted.get(), zeros.get()}; }

 private:
  void AllocateFloats(const Plan& plan, bool own_tiles, size_t most) {
    const bool in_place = plan.ReadsValuesInPlace();
    floats_.Add(queries, most * plan.query_depth + plan.plugs.score->QueryScratch());
    floats_.Add(scores, std::min(most, kScoreRows) * kTileKeys);
    floats_.Add(output, most * plan.v_cols);
    floats_.Add(pairs, plan.value_pairs ? kScoreRows * kTileKeys / 2 : 0);
    floats_.Add(k_tile, own_tiles ? plan.KTileFloats() : 0);
    floats_.Add(v_tile, own_tiles ? plan.VTileFloats() : 0);
    floats_.Add(converted, plan.ConvertedFloats());
    floats_.Add(zeros, plan.problem->cached_k != nullptr ? plan.LongestRow() : 0);
    const bool by_tiles = plan.tile_unit != TileUnit::kNone;
    floats_.Add(tile_sums, in_place || by_tiles ? kScoreRows * plan.v_cols : 0);
    floats_.Add(raw_scores, in_place ? kScoreRows * kTileKeys : 0);
    floats_.Add(row_max, RoundUp(most, kScoreRows));
    floats_.Add(row_sum, RoundUp(most, kScoreRows));
    floats_.Allocate();
  }

  FloatArrays floats_;  // of all but the row buffer and its scratch
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_PLAN_INL_H_
