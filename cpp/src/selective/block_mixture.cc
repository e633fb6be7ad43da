// Mixture of block attention: blocks are chosen by the means of their keys.
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/memory_errors.h"
#include "src/selective/block_chooser.h"
#include "src/selective/selective_problem.h"

namespace heed {
namespace {

// The mean of the keys that exist.
void SetMean(const TensorView<const float>& k, int64_t b, int64_t h, const KeyRange& keys,
             const DotPanels& means, int64_t block) {
  for (int64_t d = 0; d < means.dim(); ++d) {
    double sum = 0;
    for (int64_t j = keys.begin; j < keys.end; ++j) sum += static_cast<double>(k(b, h, j, d));
    means.at(block, d) = static_cast<float>(sum / static_cast<double>(keys.end - keys.begin));
  }
}

BlockChooser MeanChooser(const AttentionProblem& p, const TensorView<const float>& q,
                         const TensorView<const float>& k, int64_t key_block, ThreadPool* pool) {
  return BlockChooser(
      p, q, key_block,
      [&](int64_t b, int64_t h, const KeyRange& keys, const DotPanels& means, int64_t block) {
        SetMean(k, b, h, keys, means, block);
      },
      PoolOrDefault(pool));
}

}  // namespace

void ValidateBlockMixture(const BlockMixtureOptions& o, int64_t batch) {
  CheckCount("key_block", o.key_block);
  CheckCount("top_blocks", o.top_blocks);
  CheckChoosable(o.attention, batch);
}

void BlockMixtureAttention(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, const BlockMixtureOptions& options,
                           const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("block-mixture attention", [&] {
    ValidateBlockMixture(options, q.shape[0]);
    AttentionProblem p = ValidateComposed(q, k, v, options.attention, outputs);
    const BlockChooser chooser = MeanChooser(p, q, k, options.key_block, pool);
    AttendToChosen(p, chooser, chooser.Lists(options.top_blocks), pool);
  });
}

void KeepBlockMixture(const TensorView<const float>& q, const TensorView<const float>& k,
                      const BlockMixtureOptions& options, AttentionProblem& p, ThreadPool* pool) {
  const BlockChooser chooser = MeanChooser(p, q, k, options.key_block, pool);
  KeepChosen(p, chooser, chooser.Lists(options.top_blocks), pool);
}

}  // namespace heed
