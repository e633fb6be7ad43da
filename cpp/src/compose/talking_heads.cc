// heed::TalkingHeadsAttention: validation, scheduling and dispatch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/compose/talking_heads.cc"
#include <algorithm>
#include <memory>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/compose/checks.h"
#include "src/compose/compose_problem.h"
#include "src/compose/talking_heads-inl.h"
#include "src/exact/attention_spans.h"
#include "src/exact/cost-inl.h"
#include "src/exact/problem.h"
#include "src/memory_errors.h"
#include "src/message.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Of the dot products, of the weighted sums and of the two mixings.
double TalkingFlops(const TalkingPlan& talking, const TalkingHeadsOptions& options) {
  const Plan& plan = talking.plan;
  const AttentionProblem& p = *plan.problem;
  const double mixings =
      (options.mix_scores.empty() ? 0 : 1) + (options.mix_weights.empty() ? 0 : 1);
  const double terms = static_cast<double>(plan.depth) + static_cast<double>(p.head_dim_v) +
                       mixings * static_cast<double>(p.num_heads);
  return 2 * PairsSeen(p, plan.plugs.keep) * terms;
}

// Packs the keys and values of some batch entries, as many as give every thread a block and fit
// 4 MiB, at least one; then runs their blocks, longest first.
void RunTalkingLoop(const AttentionProblem& p, const TalkingHeadsOptions& options,
                    ThreadPool& pool) {
  const TalkingPlan talking =
      InRealMemory([&] { return TalkingPlan(p, options.mix_scores, options.mix_weights); });
  const Plan& plan = talking.plan;
  if (p.batch == 0 || p.num_heads == 0 || p.q_len == 0) return;
  if (DryRun* dry = DryRun::Current()) dry->AddFlops(TalkingFlops(talking, options));
  const size_t tile_floats = plan.KTileFloats() + plan.VTileFloats();
  const int64_t tiles = p.num_kv_heads * static_cast<int64_t>(plan.num_tiles);  // of an entry
  const int64_t floats = std::max<int64_t>(1, tiles * static_cast<int64_t>(tile_floats));
  const int64_t fitting = (int64_t{1} << 20) / floats;
  const int64_t wanted = (pool.NumThreads() + talking.num_blocks - 1) / talking.num_blocks;
  const int64_t wave = std::clamp<int64_t>(std::max(fitting, wanted), 1, p.batch);

  const AlignedFloats packed(static_cast<size_t>(wave * floats));
  ScratchVector<PackedTile> table(static_cast<size_t>(wave * tiles));
  for (size_t i = 0; i < table.size(); ++i) {
    float* k = packed.get() + i * tile_floats;
    table[i] = {k, k + plan.KTileFloats(), true};
  }
  std::vector<std::unique_ptr<TalkingScratch>> scratch;
  for (int w = 0; w < pool.NumThreads(); ++w) {
    scratch.push_back(std::make_unique<TalkingScratch>(talking));
  }
  const int64_t num_tiles = static_cast<int64_t>(plan.num_tiles);
  for (int64_t first = 0; first < p.batch; first += wave) {
    const int64_t entries = std::min(wave, p.batch - first);
    pool.Run(entries * tiles, [&](int64_t index, int) {
      PackTile(plan, first * p.num_kv_heads + index / num_tiles,
               static_cast<size_t>(index % num_tiles), RowBuffers{},
               table[static_cast<size_t>(index)]);
    });
    pool.Run(entries * talking.num_blocks, [&](int64_t index, int worker) {
      const int64_t entry = index % entries;
      const int64_t block = talking.num_blocks - 1 - index / entries;
      TalkingBlock(talking, first + entry, block, table.data() + entry * tiles,
                   *scratch[static_cast<size_t>(worker)])
          .Run();
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {
namespace {

HWY_EXPORT(RunTalkingLoop);

void CheckMatrix(std::string_view name, std::span<const float> matrix, int64_t heads) {
  CheckValueCount(name, matrix.size(), heads * heads, "num_heads x num_heads");
  CheckAllFinite(name, matrix);
}

}  // namespace

void ValidateTalkingHeads(const TalkingHeadsOptions& options, const AttentionOutputs& outputs,
                          int64_t num_heads) {
  if (outputs.scores.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "talking heads mix their scores before anything else; ask for weights");
  }
  if (options.attention.normalize != Normalize::kSoftmax) {
    Fail(ErrorCode::kUnsupported, "talking heads are offered with Normalize::kSoftmax only");
  }
  if (options.attention.prob_mod || options.attention.dropout.p > 0) {
    Fail(ErrorCode::kUnsupported, "talking heads are offered without prob_mod and dropout");
  }
  RefuseTiles(outputs, "attention of talking heads");
  if (options.attention.relative_values.has_value()) {
    Fail(ErrorCode::kUnsupported, "relative_values are not offered with talking heads");
  }
  CheckMatrix("mix_scores", options.mix_scores, num_heads);
  CheckMatrix("mix_weights", options.mix_weights, num_heads);
}

void TalkingHeadsAttention(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, const TalkingHeadsOptions& options,
                           const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("talking-heads attention", [&] {
    const AttentionProblem problem = ValidateComposed(q, k, v, options.attention, outputs);
    ValidateTalkingHeads(options, outputs, problem.num_heads);
    SpansOf(outputs)
        .ApartFrom("mix_scores", options.mix_scores)
        .ApartFrom("mix_weights", options.mix_weights);
    HWY_DYNAMIC_DISPATCH(RunTalkingLoop)
    (problem, options, pool != nullptr ? *pool : DefaultThreadPool());
  });
}

}  // namespace heed
#endif  // HWY_ONCE
