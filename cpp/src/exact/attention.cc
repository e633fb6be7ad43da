// heed::Attention: validation, scheduling and dispatch to the best SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/exact/attention.cc"
#include "heed/attention.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/exact/bands-inl.h"
#include "src/exact/cost-inl.h"
#include "src/exact/loop-inl.h"
#include "src/exact/pairs-inl.h"
#include "src/exact/problem.h"
#include "src/exact/row_loop-inl.h"
#include "src/exact/split-inl.h"
#include "src/exact/visit.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/calling_thread.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Several threads pack as many KV heads ahead as fit here (4 MiB), and at least one each; a single
// thread packs one at a time.
inline constexpr size_t kPackedFloats = size_t{1} << 20;

// Blocks of part `part` of a unit, one after the other.
void RunPart(const Plan& plan, int64_t unit, int64_t part, TileSource source, Scratch& scratch) {
  const int64_t first = part * plan.num_blocks / plan.num_parts;
  const int64_t last = (part + 1) * plan.num_blocks / plan.num_parts;
  for (int64_t block = first; block < last; ++block) {
    BlockLoop(plan, unit, block, source, scratch).Run(part);
  }
}

// A pool may give any task to any of its workers, however few the tasks are.
int UnitWorkers(const Plan& plan, int threads) {
  return plan.num_units * plan.num_parts == 1 ? 1 : threads;
}

// Each task packs its own tiles while they are hot; nothing is shared.
void RunUnits(const Plan& plan, ThreadPool& pool) {
  const int64_t tasks = plan.num_units * plan.num_parts;
  const int workers = UnitWorkers(plan, pool.NumThreads());
  const auto scratch = MakeScratch(plan, workers, true);
  const auto task = [&](int64_t index, int worker) {
    const int64_t part = plan.num_parts - 1 - index / plan.num_units;
    RunPart(plan, index % plan.num_units, part, TileSource{},
            *scratch[static_cast<size_t>(worker)]);
  };
  if (workers == 1) {
    for (int64_t index = 0; index < tasks; ++index) task(index, 0);
  } else {
    pool.Run(tasks, task);
  }
}

// How many KV heads are packed at once.
int64_t WaveUnits(const Plan& plan, int64_t threads) {
  const size_t tile_floats = plan.KTileFloats() + plan.VTileFloats();
  const int64_t unit_floats = static_cast<int64_t>(plan.num_tiles * tile_floats);
  const int64_t fitting = static_cast<int64_t>(kPackedFloats) / std::max<int64_t>(1, unit_floats);
  return std::min(plan.num_units, threads == 1 ? 1 : std::max(threads, fitting));
}

#if !HWY_ARCH_WASM  // where the size of code counts for more
// How many KV heads threads take whole, each packing its own: none waits for the tiles of another,
// which lie in a cache further away. The last ones are shared, so that all threads end together,
// and so are those that a second-level cache (1 MiB) does not hold, and batch entries of unequal
// lengths: threads would wait for who has the longest.
int64_t OwnedUnits(const Plan& plan, int64_t threads, int64_t unit_floats) {
  constexpr int64_t kCached = int64_t{1} << 18;
  if (threads == 1 || unit_floats > kCached) return 0;
  const auto differ = [](const KeyRange& a, const KeyRange& b) {
    return a.begin != b.begin || a.end != b.end;
  };
  const auto& keys = plan.batch_keys;
  if (std::adjacent_find(keys.begin(), keys.end(), differ) != keys.end()) return 0;
  return std::max<int64_t>(0, plan.num_units / threads - 1) * threads;
}
#endif

// Several blocks per KV head: packs the keys and values of as many KV heads as memory allows, then
// runs all their blocks, longest first: in causal attention later rows see more keys.
void RunWaves(const Plan& plan, ThreadPool& pool) {
#if !HWY_ARCH_WASM  // where 3 kB of code count for more
  const size_t band_tiles = BandTiles(plan, pool.NumThreads());
  const ScratchVector<Band> bands = FindBands(plan, band_tiles);
  if (!bands.empty()) return RunBands(plan, bands, band_tiles, pool);
#endif
  const size_t tile_floats = plan.KTileFloats() + plan.VTileFloats();
  const int64_t unit_floats = static_cast<int64_t>(plan.num_tiles * tile_floats);
  const int64_t wave = WaveUnits(plan, pool.NumThreads());
  const AlignedFloats packed(static_cast<size_t>(wave * unit_floats));
  const auto scratch = MakeScratch(plan, pool.NumThreads(), false);
  const int64_t tiles = static_cast<int64_t>(plan.num_tiles);
  ScratchVector<PackedTile> table(static_cast<size_t>(wave * tiles));
  for (size_t i = 0; i < table.size(); ++i) {
    float* k = packed.get() + i * tile_floats;
    table[i] = {k, k + plan.KTileFloats(), true};
  }
#if HWY_ARCH_WASM
  constexpr int64_t owned = 0;
#else
  const int64_t owned = OwnedUnits(plan, pool.NumThreads(), unit_floats);
  pool.Run(owned, [&](int64_t unit, int worker) {
    PackedTile* const own = table.data() + worker * tiles;
    Scratch& memory = *scratch[static_cast<size_t>(worker)];
    for (size_t t = 0; t < plan.num_tiles; ++t) PackTile(plan, unit, t, memory.buffers(), own[t]);
    for (int64_t part = plan.num_parts; part-- > 0;) {
      RunPart(plan, unit, part, TileSource{own}, memory);
    }
  });
#endif
  for (int64_t first = owned; first < plan.num_units; first += wave) {
    const int64_t units = std::min(wave, plan.num_units - first);
    pool.Run(units * tiles, [&](int64_t index, int worker) {
      PackTile(plan, first + index / tiles, static_cast<size_t>(index % tiles),
               scratch[static_cast<size_t>(worker)]->buffers(), table[static_cast<size_t>(index)]);
    });
    pool.Run(units * plan.num_parts, [&](int64_t index, int worker) {
      const int64_t unit = index % units;
      const int64_t part = plan.num_parts - 1 - index / units;
      RunPart(plan, first + unit, part, TileSource{table.data() + unit * tiles},
              *scratch[static_cast<size_t>(worker)]);
    });
  }
}

// Is there anything to write? Views of nothing may have absurd extents in their other dimensions.
bool AllOutputsEmpty(const AttentionProblem& p) {
  const AttentionOutputs& out = p.outputs;
  return p.output.size() == 0 && (!out.lse.has_value() || out.lse.size() == 0) &&
         (!out.weights.has_value() || out.weights.size() == 0) &&
         (!out.scores.has_value() || out.scores.size() == 0) &&
         (!out.running_max.has_value() || out.running_max.size() == 0);
}

void RunAttention(const AttentionProblem& problem, const WeightVisit* visit, ThreadPool& pool) {
  if (visit == nullptr && AllOutputsEmpty(problem)) return;
  const Plan plan(problem, visit);
  if (plan.num_units == 0 || plan.first_row >= plan.rows) return;
  if (plan.IsSplit()) {
    SplitRun(plan, pool).Run();
  } else if (plan.PacksOwnTiles()) {
    RunUnits(plan, pool);
  } else {
    RunWaves(plan, pool);
  }
}

// What RunAttention allocates, by allocating it in a dry run.
void CountScratch(const Plan& plan, ThreadPool& pool) {
  if (plan.IsSplit()) {
    const SplitRun run(plan, pool);
  } else if (plan.PacksOwnTiles()) {
    MakeScratch(plan, UnitWorkers(plan, pool.NumThreads()), true);
  } else {
    RunWaves(plan, pool);
  }
}

// RunAttention in a dry run. Depends on which outputs have a value, never on their data.
void CountAttention(const AttentionProblem& problem, ThreadPool& pool) {
  if (AllOutputsEmpty(problem)) return;
  const Plan plan = InRealMemory([&] { return Plan(problem); });
  if (plan.num_units == 0 || plan.first_row >= plan.rows) return;
  DryRun::Current()->AddFlops(Flops(plan));
  CountScratch(plan, pool);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunAttention);
HWY_EXPORT(CountAttention);

namespace {

// Multiply-adds that take about as long as waking a thread.
constexpr double kFewMultiplyAdds = 1 << 19;

bool IsSmall(const AttentionProblem& p) {
  const double pairs = static_cast<double>(p.batch * p.num_heads) * static_cast<double>(p.q_len) *
                       static_cast<double>(p.kv_len);
  return pairs * static_cast<double>(p.head_dim + p.head_dim_v) < kFewMultiplyAdds;
}

// All memory is allocated before the first task runs.
void Dispatch(const AttentionProblem& problem, const WeightVisit* visit, ThreadPool* pool) {
  ThreadPool& threads = pool != nullptr    ? *pool
                        : IsSmall(problem) ? CallingThread()
                                           : DefaultThreadPool();
  if (DryRun::Current() != nullptr) return HWY_DYNAMIC_DISPATCH(CountAttention)(problem, threads);
  HWY_DYNAMIC_DISPATCH(RunAttention)(problem, visit, threads);
}

}  // namespace

void Attention(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
               const AttentionOptions& options, const AttentionOutputs& outputs, ThreadPool* pool) {
  Attention(StoredTensor(q), StoredTensor(k), StoredTensor(v), options, outputs, pool);
}

void Attention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
               const AttentionOptions& options, const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("attention",
                   [&] { Dispatch(ValidateAttention(q, k, v, options, outputs), nullptr, pool); });
}

void RunProblem(const AttentionProblem& problem, ThreadPool* pool) {
  Dispatch(problem, nullptr, pool);
}

void VisitWeights(const AttentionProblem& problem, const WeightVisit& visit, ThreadPool* pool) {
  Dispatch(problem, &visit, pool);
}

}  // namespace heed
#endif  // HWY_ONCE
