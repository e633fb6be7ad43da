// The plan of one call: sizes, plugs and memory, fixed before any thread starts.
#if defined(HEED_EXACT_PLAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_PLAN_INL_H_
#undef HEED_EXACT_PLAN_INL_H_
#else
#define HEED_EXACT_PLAN_INL_H_
#endif

#include <algorithm>
#include <utility>
#include <vector>

#include "src/exact/keep/key_bits.h"
#include "src/exact/keep/range.h"
#include "src/exact/plugs-inl.h"
#include "src/exact/problem.h"
#include "src/exact/tile.h"
#include "src/exact/visit.h"
#include "src/parallel/worker_scratch.h"
#include "src/simd/convert-inl.h"
#include "src/simd/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Rows of one task, which pass over the keys together. A multiple of every kScoreRows.
inline constexpr size_t kBlockRows = 96;

// Rows of a task enumerate query positions and, innermost, the query heads of one KV head: a GQA
// group shares every packed tile, and a block spans few positions, so causal skips more.
struct Plan {
  const AttentionProblem* problem;
  const WeightVisit* visit;  // nullptr: output only
  Plugs plugs;
  size_t k_panel_floats;             // one packed panel of keys
  size_t v_cols;                     // head_dim_v, rounded up to panels
  size_t num_tiles;                  // tiles of kTileKeys keys
  int64_t first_row;                 // rows of a KV head, of q_len * group
  int64_t rows;                      // one past the last of them
  int64_t num_blocks;                // blocks per KV head
  int64_t num_parts;                 // tasks per KV head
  int64_t num_units;                 // batch * num_kv_heads
  std::vector<KeyRange> batch_keys;  // keys that any query of a batch entry sees

  explicit Plan(const AttentionProblem& p, const WeightVisit* visited = nullptr)
      : problem(&p), visit(visited), plugs(MakePlugs(p)) {
    k_panel_floats = static_cast<size_t>(p.head_dim) * PanelCols();
    v_cols = RoundUp(static_cast<size_t>(p.head_dim_v), PanelCols());
    num_tiles = (static_cast<size_t>(p.kv_len) + kTileKeys - 1) / kTileKeys;
    first_row = (visit == nullptr ? 0 : visit->queries.begin) * p.group;
    rows = (visit == nullptr ? p.q_len : visit->queries.end) * p.group;
    const int64_t block = static_cast<int64_t>(kBlockRows);
    num_blocks = (rows - first_row + block - 1) / block;
    num_parts = visit == nullptr ? num_blocks : std::min(num_blocks, visit->parts);
    num_units = p.batch * p.num_kv_heads;
    for (int64_t b = 0; b < p.batch; ++b) batch_keys.push_back(KeysOfBatch(b));
  }

  // Panels of keys in a tile of `num_keys`.
  static size_t KeyCols(size_t num_keys) { return RoundUp(num_keys, PanelCols()); }

  size_t KTileFloats() const { return KeyCols(TileKeys()) / PanelCols() * k_panel_floats; }
  size_t VTileFloats() const { return TileKeys() * v_cols; }
  // Room for a panel of rows that are converted first.
  size_t ConvertedFloats() const {
    const auto width = [](const StoredTensor& tensor) {
      return tensor.dtype == DType::kFloat32 ? 0 : static_cast<size_t>(tensor.shape[3]);
    };
    return PanelCols() * std::max({width(problem->q), width(problem->k), width(problem->v)});
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
  KeyRange KeysOfBatch(int64_t b) const {
    const AttentionProblem& p = *problem;
    // Scores of stages before the keep rules show every pair.
    if (p.outputs.scores.has_value() && p.outputs.score_stage != ScoreStage::kBiased) {
      return {0, p.kv_len};
    }
    KeyRange all = {p.kv_len, 0};
    for (int64_t i = 0; i < p.q_len; ++i) {
      const KeyRange keys = VisibleKeys(p, b, i);
      if (keys.begin == keys.end) continue;
      all.begin = std::min(all.begin, keys.begin);
      all.end = std::max(all.end, keys.end);
    }
    return all.begin < all.end ? all : KeyRange{0, 0};
  }
};

// Packed keys and values of one tile.
struct PackedTile {
  float* k;
  float* v;
  bool v_finite;
};

// Rows [first, first + count) of a KV head as floats: where they are, or converted into
// `converted`, which has room for PanelCols() rows.
inline Rows FloatRows(const StoredTensor& from, int64_t b, int64_t h, int64_t first, size_t count,
                      float* converted) {
  if (from.dtype == DType::kFloat32) {
    return {static_cast<const float*>(from.Row(b, h, first)), from.strides[2]};
  }
  const size_t width = static_cast<size_t>(from.shape[3]);
  for (size_t r = 0; r < count; ++r) {
    StoredRowToFloats(from.dtype, from.Row(b, h, first + static_cast<int64_t>(r)), width,
                      converted + r * width);
  }
  return {converted, from.shape[3]};
}

// Packs tile t of a KV head. Keys that no query sees are not read. `converted` is scratch.
inline void PackTile(const Plan& plan, int64_t unit, size_t t, float* converted, PackedTile& tile) {
  const AttentionProblem& p = *plan.problem;
  const int64_t b = unit / p.num_kv_heads;
  const int64_t h = unit % p.num_kv_heads;
  const size_t count = plan.NumKeys(b, t);
  const int64_t key_begin = static_cast<int64_t>(t * kTileKeys);
  tile.v_finite = true;
  for (size_t c = 0; c < count; c += PanelCols()) {
    const size_t here = std::min(PanelCols(), count - c);
    const int64_t first = key_begin + static_cast<int64_t>(c);
    PackTransposedPanel(FloatRows(p.k, b, h, first, here, converted), here,
                        static_cast<size_t>(p.head_dim),
                        tile.k + c / PanelCols() * plan.k_panel_floats);
    const bool finite =
        PackPanels(FloatRows(p.v, b, h, first, here, converted), here,
                   static_cast<size_t>(p.head_dim_v), plan.TileKeys(), tile.v + c * PanelCols());
    tile.v_finite = tile.v_finite && finite;
  }
}

// Memory of one worker.
struct Scratch {
  AlignedFloats queries;  // packed rows of a block
  AlignedFloats scores;   // one score tile
  AlignedFloats output;   // [block rows][v_cols]
  AlignedFloats k_tile;   // only when tiles are not shared
  AlignedFloats v_tile;
  AlignedFloats converted;  // rows of q, k or v that are not stored as floats
  AlignedFloats row_max;
  AlignedFloats row_sum;
  std::vector<Row> rows;
  std::vector<KeyBits> key_bits;  // what each row of a score tile sees; only used by cell plugs
  std::vector<uint8_t> visible;  // of one score tile; only used when values are not finite

  Scratch(const Plan& plan, bool own_tiles) {
    const size_t most = static_cast<size_t>(
        std::min<int64_t>(plan.rows - plan.first_row, static_cast<int64_t>(kBlockRows)));
    queries = AlignedFloats(most * static_cast<size_t>(plan.problem->head_dim));
    scores = AlignedFloats(std::min(most, kScoreRows) * kTileKeys);
    output = AlignedFloats(most * plan.v_cols);
    if (own_tiles) {
      k_tile = AlignedFloats(plan.KTileFloats());
      v_tile = AlignedFloats(plan.VTileFloats());
    }
    converted = AlignedFloats(plan.ConvertedFloats());
    rows.resize(most);
    key_bits.resize(kScoreRows);
    row_max = AlignedFloats(RoundUp(most, kScoreRows));
    row_sum = AlignedFloats(RoundUp(most, kScoreRows));
    visible.resize(kScoreRows * kTileKeys);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_PLAN_INL_H_
