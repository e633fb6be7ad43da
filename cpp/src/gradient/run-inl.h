// The stages of one backward call, for as many KV heads at a time as fit: pack their keys and
// values, pass over the blocks of their queries, write d_k and d_v.
#if defined(HEED_GRADIENT_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GRADIENT_RUN_INL_H_
#undef HEED_GRADIENT_RUN_INL_H_
#else
#define HEED_GRADIENT_RUN_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <vector>

#include "src/exact/keep/range.h"
#include "src/gradient/block-inl.h"
#include "src/gradient/deal.h"
#include "src/gradient/plan-inl.h"
#include "src/gradient/row_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Several threads take as many KV heads at once as fit here (4 MiB), and at least one each; a
// single thread takes one at a time.
inline constexpr size_t kGradientFloats = size_t{1} << 20;

class GradientRun {
 public:
  GradientRun(const GradientPlan& g, ThreadPool& pool) : g_(g), plan_(g.plan), pool_(pool) {
    const size_t unit_floats =
        plan_.num_tiles * g.TileFloats() + static_cast<size_t>(g.num_parts) * g.PartFloats();
    const int64_t fitting =
        static_cast<int64_t>(kGradientFloats / std::max<size_t>(1, unit_floats));
    const int64_t threads = pool.NumThreads();
    wave_ = std::min(plan_.num_units, threads == 1 ? 1 : std::max(threads, fitting));
    packed_ = AlignedFloats(static_cast<size_t>(wave_) * plan_.num_tiles * g.TileFloats());
    sums_ = AlignedFloats(static_cast<size_t>(wave_ * g.num_parts) * g.PartFloats());
    for (int64_t w = 0; w < threads; ++w) scratch_.push_back(std::make_unique<GradientScratch>(g));
    tiles_.resize(static_cast<size_t>(wave_) * plan_.num_tiles);
    for (size_t i = 0; i < tiles_.size(); ++i) {
      float* k = packed_.get() + i * g.TileFloats();
      float* values = k + plan_.KTileFloats();
      tiles_[i] = {{k, nullptr, true}, values, values + g.ValueFloats(), true};
    }
    const size_t heads = static_cast<size_t>(plan_.num_units * g.num_parts * Group());
    if (!g.gradients().d_alibi_slopes.empty()) slopes_.assign(heads, 0.0);
    if (!g.gradients().d_sinks.empty()) sinks_.assign(heads, 0.0);
    curves_.assign(heads * g.CurveFloats(), 0.0);
    gates_.assign(heads * g.GateFloats(), 0.0);
    value_tables_.assign(heads * g.ValueTableFloats(), 0.0);
    tables_.assign(heads * g.TableFloats(), 0.0);
    if (g.params == 0) return;
    const size_t units = static_cast<size_t>(plan_.num_units);
    query_params_.assign(units * static_cast<size_t>(g.num_parts) * g.plugs.score->QueryParams(),
                         0);
    key_params_.assign(units * static_cast<size_t>(KeyChunks()) * g.plugs.score->KeyParams(), 0);
  }

  void Run() {
    for (int64_t b = 0; g_.num_parts > 1 && b < g_.attention().batch; ++b) {
      parts_.push_back(PartsOfBlocks(b));
    }
    for (first_ = 0; first_ < plan_.num_units; first_ += wave_) {
      units_ = std::min(wave_, plan_.num_units - first_);
      const int64_t tiles = static_cast<int64_t>(plan_.num_tiles);
      pool_.Run(units_ * tiles, [&](int64_t index, int worker) {
        PackGradientTile(g_, first_ + index / tiles, static_cast<size_t>(index % tiles),
                         Worker(worker).buffers(), tiles_[static_cast<size_t>(index)]);
      });
      pool_.Run(units_ * g_.num_parts, [&](int64_t index, int worker) {
        RunPart(index % units_, index / units_, Worker(worker));
      });
      if (g_.gradients().d_bias.has_value() && !g_.owns_bias) RunSharedBias();
      if (!g_.wants_k && !g_.wants_v) continue;
      const int64_t chunks = KeyChunks();
      pool_.Run(units_ * chunks, [&](int64_t index, int worker) {
        WriteChunk(index / chunks, index % chunks, Worker(worker));
      });
    }
    WriteHeads(slopes_, g_.gradients().d_alibi_slopes);
    WriteHeads(sinks_, g_.gradients().d_sinks);
    if (!curves_.empty()) WriteCurves();
    if (!gates_.empty()) WriteShared(gates_, g_.GateFloats(), g_.gradients().d_log_gates);
    if (!value_tables_.empty()) {
      WriteShared(value_tables_, g_.ValueTableFloats(), g_.gradients().d_relative_values);
    }
    if (!tables_.empty()) WriteShared(tables_, g_.TableFloats(), g_.gradients().d_cope_table);
    if (g_.params > 0) WriteParams();
  }

 private:
  GradientScratch& Worker(int worker) { return *scratch_[static_cast<size_t>(worker)]; }
  int64_t Group() const { return g_.attention().group; }

  const GradientTile* TilesOf(int64_t unit) const {
    return tiles_.data() + static_cast<size_t>(unit - first_) * plan_.num_tiles;
  }

  PartSums SumsOf(int64_t index, int64_t part) const {
    float* k = sums_.get() + static_cast<size_t>(index * g_.num_parts + part) * g_.PartFloats();
    const size_t keys = static_cast<size_t>(g_.attention().kv_len);
    float* v = g_.wants_k ? k + keys * g_.k_cols : k;
    return {k, v, g_.wants_v ? v + keys * plan_.v_cols : v};
  }

  // `each` numbers for every query head of the KV head.
  template <class Sums>
  std::span<double> HeadsOf(Sums& sums, int64_t unit, int64_t part, size_t each = 1) const {
    if (sums.empty()) return {};
    const size_t count = static_cast<size_t>(Group()) * each;
    return {sums.data() + static_cast<size_t>(unit * g_.num_parts + part) * count, count};
  }

  // Of the n-th task; nullptr where nobody wants them.
  static double* ParamsOf(ScratchVector<double>& params, int64_t task, size_t count) {
    return params.empty() ? nullptr : params.data() + static_cast<size_t>(task) * count;
  }

  // What the keys that a row sees cost, and what a row costs that sees none.
  int64_t CostOfBlock(int64_t batch, int64_t block) const {
    constexpr int64_t kCostOfRow = 12;
    const int64_t first = block * plan_.block_rows;
    const int64_t last = std::min(first + plan_.block_rows, plan_.rows);
    int64_t cost = (last - first) * kCostOfRow;
    for (int64_t row = first; row < last; ++row) {
      const KeyRange keys = VisibleKeys(g_.attention(), batch, row / Group());
      cost += keys.end - keys.begin;
    }
    return cost;
  }

  // The part of each block of a KV head: parts take about the same time, also where late queries
  // see more keys than early ones. Depends on shapes, masks and lengths, never on threads.
  std::vector<int64_t> PartsOfBlocks(int64_t batch) const {
    std::vector<int64_t> costs(static_cast<size_t>(plan_.num_blocks));
    for (int64_t block = 0; block < plan_.num_blocks; ++block) {
      costs[static_cast<size_t>(block)] = CostOfBlock(batch, block);
    }
    return DealBlocks(costs, g_.num_parts);
  }

  void RunPart(int64_t index, int64_t part, GradientScratch& scratch) {
    const int64_t unit = first_ + index;
    const PartSums sums = SumsOf(index, part);
    std::fill_n(sums.k, g_.PartFloats(), 0.0f);
    const HeadSums heads = {
        HeadsOf(slopes_, unit, part),
        HeadsOf(sinks_, unit, part),
        HeadsOf(curves_, unit, part, g_.CurveFloats()),
        HeadsOf(gates_, unit, part, g_.GateFloats()),
        HeadsOf(value_tables_, unit, part, g_.ValueTableFloats()),
        ParamsOf(query_params_, unit * g_.num_parts + part, g_.plugs.score->QueryParams()),
        HeadsOf(tables_, unit, part, g_.TableFloats()).data()};
    const size_t batch = static_cast<size_t>(unit / g_.attention().num_kv_heads);
    for (int64_t block = 0; block < plan_.num_blocks; ++block) {
      if (g_.num_parts > 1 && parts_[batch][static_cast<size_t>(block)] != part) continue;
      GradientBlock(g_, unit, block, TilesOf(unit), scratch).Run(sums, heads);
    }
  }

  // Tasks that write the keys of a KV head: each tile one, or a few that have sums of parameters.
  int64_t KeyChunks() const {
    const int64_t tiles = static_cast<int64_t>(plan_.num_tiles);
    return g_.params > 0 && g_.plugs.score->KeyParams() > 0 ? std::min(tiles, kMostTasks) : tiles;
  }

  // Adds up the parts of the keys of some tiles, and writes their gradients.
  void WriteChunk(int64_t index, int64_t chunk, GradientScratch& scratch) {
    const AttentionProblem& p = g_.attention();
    const int64_t unit = first_ + index;
    const int64_t tiles = static_cast<int64_t>(plan_.num_tiles), chunks = KeyChunks();
    const int64_t tile_keys = static_cast<int64_t>(kTileKeys);
    const int64_t begin = chunk * tiles / chunks * tile_keys;
    const int64_t end = std::min((chunk + 1) * tiles / chunks * tile_keys, p.kv_len);
    const HeadRows keys = KeysOf(p, unit);
    float* const buffer = scratch.row.get() + RoundUp(plan_.LongestRow(), PanelCols());
    double* const params =
        ParamsOf(key_params_, unit * chunks + chunk, g_.plugs.score->KeyParams());
    for (int64_t j = begin; j < end; ++j) {
      if (g_.wants_k) {
        const float* sum = SumOf(index, j, g_.k_cols, &PartSums::k, buffer);
        WriteKey(keys, j, {sum, TotalOf(index, j)}, params, scratch);
      }
      if (g_.wants_v) {
        const StoredOutput& d_v = g_.gradients().d_v;
        const float* sum = SumOf(index, j, plan_.v_cols, &PartSums::v, buffer);
        FloatsToStoredRow(sum, g_.DimV(), d_v.dtype, d_v.Row(keys.batch, keys.head, j));
      }
    }
  }

  // Row `key` of all parts, added up in ascending order in `buffer` where there are several.
  const float* SumOf(int64_t index, int64_t key, size_t cols, float* PartSums::*which,
                     float* HWY_RESTRICT buffer) const {
    const DF d;
    const size_t at = static_cast<size_t>(key) * cols;
    const float* first = SumsOf(index, 0).*which + at;
    if (g_.num_parts == 1) return first;
    std::copy_n(first, cols, buffer);
    for (int64_t part = 1; part < g_.num_parts; ++part) {
      const float* HWY_RESTRICT from = SumsOf(index, part).*which + at;
      for (size_t c = 0; c < cols; c += hn::Lanes(d)) {
        hn::Store(hn::Add(hn::Load(d, buffer + c), hn::Load(d, from + c)), d, buffer + c);
      }
    }
    return buffer;
  }

  float TotalOf(int64_t index, int64_t key) const {
    float total = 0;
    for (int64_t part = 0; g_.NeedsTotals() && part < g_.num_parts; ++part) {
      total += SumsOf(index, part).totals[key];
    }
    return total;
  }

  // A key that no query sees is not read.
  void WriteKey(const HeadRows& keys, int64_t j, const ScoreSums& sums, double* params,
                GradientScratch& scratch) const {
    const StoredOutput& d_k = g_.gradients().d_k;
    const size_t width = keys.width();
    float* row = scratch.row.get();
    const float* vectors = sums.vectors;
    const bool none = std::all_of(vectors, vectors + plan_.depth, [](float x) { return x == 0; });
    if (none && sums.total == 0) {
      std::fill_n(row, width, 0.0f);
    } else {
      const float* k = nullptr;
      GatherRows(keys, j, 1, scratch.buffers(), &k);
      g_.plugs.score->Key(keys.head, k, sums, row, params);
    }
    if (!d_k.has_value()) return;
    FloatsToStoredRow(row, width, d_k.dtype, d_k.Row(keys.batch, keys.head, j));
  }

  // KV heads with the same number add to the same cells of d_bias.
  int64_t BiasOf(int64_t unit) const {
    const int64_t heads = g_.attention().num_kv_heads;
    const int64_t batch = g_.SharesBias(0) ? 0 : unit / heads;
    return g_.SharesBias(1) ? batch * heads : batch * heads + unit % heads;
  }

  // Blocks that add to the same cells run one after the other, in ascending order of KV heads: a
  // task takes one block of all KV heads that share it, or all blocks.
  void RunSharedBias() {
    std::vector<int64_t> biases;
    for (int64_t unit = first_; unit < first_ + units_; ++unit) {
      const int64_t bias = BiasOf(unit);
      if (std::find(biases.begin(), biases.end(), bias) == biases.end()) biases.push_back(bias);
    }
    // Query heads of one query may lie in two blocks.
    const bool all_blocks =
        g_.SharesBias(2) || (g_.SharesBias(1) && plan_.block_rows % Group() != 0);
    const int64_t tasks = all_blocks ? 1 : plan_.num_blocks;
    pool_.Run(static_cast<int64_t>(biases.size()) * tasks, [&](int64_t index, int worker) {
      const int64_t bias = biases[static_cast<size_t>(index / tasks)];
      const int64_t block = index % tasks;
      for (int64_t unit = first_; unit < first_ + units_; ++unit) {
        if (BiasOf(unit) != bias) continue;
        for (int64_t n = block; n < (all_blocks ? plan_.num_blocks : block + 1); ++n) {
          GradientBlock(g_, unit, n, TilesOf(unit), Worker(worker)).RunBias();
        }
      }
    });
  }

  // Adds up batch entries and parts, in ascending order.
  void WriteHeads(const ScratchVector<double>& sums, std::span<float> gradient) const {
    const int64_t group = Group();
    const int64_t kv_heads = g_.attention().num_kv_heads;
    for (size_t h = 0; h < gradient.size(); ++h) {
      const int64_t head = static_cast<int64_t>(h);
      double sum = 0;
      for (int64_t b = 0; b < g_.attention().batch; ++b) {
        const int64_t unit = b * kv_heads + head / group;
        for (int64_t part = 0; part < g_.num_parts; ++part) {
          sum += sums[static_cast<size_t>((unit * g_.num_parts + part) * group + head % group)];
        }
      }
      gradient[h] = static_cast<float>(sum);
    }
  }

  // Adds up batch entries and parts, in ascending order, then distances.
  void WriteCurves() {
    const size_t each = g_.CurveFloats();
    const AttentionProblem& p = g_.attention();
    ScratchVector<double> curve(each);
    for (int64_t h = 0; h < p.num_heads; ++h) {
      std::fill(curve.begin(), curve.end(), 0.0);
      for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t part = 0; part < g_.num_parts; ++part) {
          const int64_t unit = b * p.num_kv_heads + h / Group();
          const double* from =
              HeadsOf(curves_, unit, part, each).data() + static_cast<size_t>(h % Group()) * each;
          for (size_t n = 0; n < each; ++n) curve[n] += from[n];
        }
      }
      const AttentionGradients& to = g_.gradients();
      if (to.d_distance_bias.has_value()) AddToDistanceTable(curve, h, to.d_distance_bias);
      if (to.d_bucket_bias.has_value()) AddToBuckets(p.options, curve, h, to.d_bucket_bias);
    }
  }

  // Adds up parts, and what heads or batch entries share, in ascending order: `each` numbers for a
  // batch entry and head of `to`.
  void WriteShared(const ScratchVector<double>& sums, size_t each,
                   const TensorView<float>& to) const {
    const AttentionProblem& p = g_.attention();
    const int64_t batch = to.shape[0], heads = to.shape[1];
    ScratchVector<double> shared(static_cast<size_t>(to.size()));
    for (int64_t n = 0; n < p.batch * p.num_heads * g_.num_parts; ++n) {
      const int64_t part = n % g_.num_parts, head = n / g_.num_parts % p.num_heads;
      const int64_t b = n / g_.num_parts / p.num_heads;
      const int64_t unit = b * p.num_kv_heads + head / Group();
      const double* from =
          sums.data() +
          static_cast<size_t>((unit * g_.num_parts + part) * Group() + head % Group()) * each;
      const int64_t cell = (batch == 1 ? 0 : b) * heads + (heads == 1 ? 0 : head);
      double* sum = shared.data() + static_cast<size_t>(cell) * each;
      for (size_t i = 0; i < each; ++i) sum[i] += from[i];
    }
    StoreTensor(shared.data(), to);
  }

  // Adds up KV heads, and of each its parts and chunks, in ascending order.
  void WriteParams() const {
    std::vector<double> sums(g_.params);
    const ScoreGradient& score = *g_.plugs.score;
    using ParamOf = size_t (ScoreGradient::*)(int64_t, size_t) const;
    const auto add = [&](const ScratchVector<double>& from, size_t tasks, size_t count,
                         ParamOf of) {
      for (size_t n = 0; n < from.size(); ++n) {
        const int64_t unit = static_cast<int64_t>(n / count / tasks);
        const int64_t kv_head = unit % g_.attention().num_kv_heads;
        sums[(score.*of)(kv_head, n % count)] += from[n];
      }
    };
    add(query_params_, static_cast<size_t>(g_.num_parts), score.QueryParams(),
        &ScoreGradient::QueryParamOf);
    add(key_params_, static_cast<size_t>(KeyChunks()), score.KeyParams(),
        &ScoreGradient::KeyParamOf);
    score.Store(sums, g_.gradients());
  }

  const GradientPlan& g_;
  const Plan& plan_;
  ThreadPool& pool_;
  int64_t wave_ = 0;                         // KV heads in flight
  int64_t first_ = 0;                        // of the wave
  int64_t units_ = 0;                        // in the wave
  std::vector<std::vector<int64_t>> parts_;  // of the blocks, for each batch entry; of several
  AlignedFloats packed_, sums_;
  ScratchVector<GradientTile> tiles_;
  std::vector<std::unique_ptr<GradientScratch>> scratch_;
  ScratchVector<double> slopes_, sinks_;             // [unit][part][query head of the group]
  ScratchVector<double> curves_, gates_;             // [unit][part][query head][distance or key]
  ScratchVector<double> value_tables_;               // [unit][part][query head][row][head_dim_v]
  ScratchVector<double> tables_;                     // [unit][part][query head][row][head_dim]
  ScratchVector<double> query_params_, key_params_;  // [unit][part or chunk][parameters]
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_GRADIENT_RUN_INL_H_
