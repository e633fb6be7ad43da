// Gradients of the attention-free transformer: every channel is a softmax of its own. Scheduling
// and dispatch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/compose/backward_attention_free.cc"
#include "src/compose/backward_attention_free.h"

#include <memory>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/compose/backward_free_pairs-inl.h"
#include "src/compose/backward_growing-inl.h"
#include "src/compose/backward_request.h"
#include "src/message.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Whether each row of a batch entry sees what the row before it does, and more, without a bias.
bool Grows(const AttentionFreeProblem& p, const SeenKeys& seen) {
  if (p.pairs.options.bias.has_value() || !seen.only_ranges()) return false;
  for (int64_t b = 0; b < p.q.shape[0]; ++b) {
    KeyRange last = {0, 0};
    for (int64_t i = 0; i < p.q.shape[2]; ++i) {
      const KeyRange keys = VisibleKeys(p.pairs, b, i);
      if (keys.end < last.end || (last.end > 0 && keys.begin != last.begin)) return false;
      last = keys;
    }
  }
  return true;
}

// Floats that rows leave for their keys, of so many vectors of channels.
size_t RowFloats(int64_t rows, int64_t vectors) {
  return static_cast<size_t>(rows * vectors) * kFreeRowVectors * hn::Lanes(DF());
}

void RunGrowing(const FreeBackward& g, ThreadPool& pool) {
  const Extents& k = g.p.k.shape;
  std::vector<AlignedFloats> rows(static_cast<size_t>(pool.NumThreads()));
  for (AlignedFloats& own : rows) own = AlignedFloats(RowFloats(g.p.q.shape[2], 1));
  const int64_t vectors = FreeVectors(g.width());
  pool.Run(k[0] * k[1] * vectors, [&](int64_t task, int worker) {
    const int64_t unit = task / vectors;
    GrowingChannels(g, unit / k[1], unit % k[1], task % vectors,
                    rows[static_cast<size_t>(worker)].get())
        .Run();
  });
}

void RunPairs(const FreeBackward& g, const SeenKeys& seen, ThreadPool& pool) {
  const Extents &q = g.p.q.shape, &k = g.p.k.shape;
  const AlignedFloats rows(RowFloats(q[0] * q[1] * q[2], FreeVectors(g.width())));
  std::vector<std::unique_ptr<FreePairsScratch>> scratch;
  for (int w = 0; w < pool.NumThreads(); ++w) {
    scratch.push_back(std::make_unique<FreePairsScratch>(g));
  }
  const auto pairs = [&](int worker) {
    return FreePairs(g, seen, rows.get(), *scratch[static_cast<size_t>(worker)]);
  };
  pool.Run(q[0] * q[1] * q[2], [&](int64_t row, int worker) {
    const int64_t unit = row / q[2];
    pairs(worker).SumRow(unit / q[1], unit % q[1], row % q[2]);
  });
  const int64_t blocks = (k[2] + kFreeKeys - 1) / kFreeKeys;
  pool.Run(k[0] * k[1] * blocks, [&](int64_t task, int worker) {
    const int64_t unit = task / blocks;
    pairs(worker).KeyBlock(unit / k[1], unit % k[1], task % blocks * kFreeKeys);
  });
  if (!g.d_bias.has_value()) return;
  const Extents& bias = g.d_bias.shape;
  pool.Run(bias[0] * bias[1] * bias[2], [&](int64_t row, int worker) {
    const int64_t unit = row / bias[2];
    pairs(worker).BiasRow(unit / bias[1], unit % bias[1], row % bias[2]);
  });
}

void RunFreeBackward(const FreeBackward& g, ThreadPool& pool) {
  const SeenKeys seen(g.p.pairs);
  if (Grows(g.p, seen)) return RunGrowing(g, pool);
  RunPairs(g, seen, pool);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunFreeBackward);

void AttentionFreeBackward(const ComposedBackward& call) {
  const AttentionFreeRequest r = ReadAttentionFree(call.reader);
  FreeBackward g = {ValidateAttentionFree(r.q, r.k, r.v, r.options),
                    call.d_output(),
                    call.Wanted("q"),
                    call.Wanted("k"),
                    call.Wanted("v"),
                    call.Wanted("bias")};
  HWY_DYNAMIC_DISPATCH(RunFreeBackward)(g, call.pool);
}

}  // namespace heed
#endif  // HWY_ONCE
