// Quest: pages are chosen by what their smallest and largest keys let a query score at most.
#include "src/cache/page_bounds.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/memory_errors.h"
#include "src/selective/block_chooser.h"
#include "src/selective/selective_problem.h"

namespace heed {
namespace {

// The bound is a product: [max(q, 0), min(q, 0)] times [maxima, minima].
OwnedTensor SplitBySign(const TensorView<const float>& q, ThreadPool& pool) {
  const auto [batch, heads, len, dim] = q.shape;
  OwnedTensor split(batch * heads == 0 ? Extents{0, 0, 0, 0} : Extents{batch, heads, len, 2 * dim});
  ForEachRow(split.view().shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    for (int64_t d = 0; d < q.shape[3]; ++d) {
      const float x = q(b, h, i, d);
      split.view()(b, h, i, d) = x < 0 ? 0.0f : x;
      split.view()(b, h, i, q.shape[3] + d) = x > 0 ? 0.0f : x;
    }
  });
  return split;
}

void SetBounds(const TensorView<const float>& k, int64_t b, int64_t h, const KeyRange& keys,
               const DotPanels& bounds, int64_t page) {
  const int64_t dim = bounds.dim() / 2;
  for (int64_t d = 0; d < dim; ++d) {
    Bounds both;
    for (int64_t j = keys.begin; j < keys.end; ++j) both.Add(k(b, h, j, d));
    bounds.at(page, d) = both.max;
    bounds.at(page, dim + d) = both.min;
  }
}

BlockChooser BoundsChooser(const AttentionProblem& p, const TensorView<const float>& queries,
                           const TensorView<const float>& k, int64_t page_size, ThreadPool* pool) {
  return BlockChooser(
      p, queries, page_size,
      [&](int64_t b, int64_t h, const KeyRange& keys, const DotPanels& bounds, int64_t page) {
        SetBounds(k, b, h, keys, bounds, page);
      },
      PoolOrDefault(pool));
}

}  // namespace

AttentionOptions ValidateQuest(const QuestOptions& o, int64_t batch) {
  CheckCount("page_size", o.page_size);
  CheckCount("top_pages", o.top_pages);
  CheckChoosable(o.attention, batch);
  AttentionOptions options = o.attention;
  options.causal = true;
  return options;
}

void QuestAttention(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                    const QuestOptions& options, const AttentionOutputs& outputs,
                    ThreadPool* pool) {
  WithMemoryErrors("Quest attention", [&] {
    AttentionProblem p = ValidateComposed(q, k, v, ValidateQuest(options, q.shape[0]), outputs);
    const OwnedTensor queries = SplitBySign(q, PoolOrDefault(pool));
    const BlockChooser chooser = BoundsChooser(p, queries.view(), k, options.page_size, pool);
    AttendToChosen(p, chooser, chooser.Lists(options.top_pages), pool);
  });
}

void KeepQuest(const TensorView<const float>& q, const TensorView<const float>& k,
               const QuestOptions& options, AttentionProblem& p, ThreadPool* pool) {
  const OwnedTensor queries = SplitBySign(q, PoolOrDefault(pool));
  const BlockChooser chooser = BoundsChooser(p, queries.view(), k, options.page_size, pool);
  KeepChosen(p, chooser, chooser.Lists(options.top_pages), pool);
}

}  // namespace heed
