// Mixture of block attention: blocks are chosen by the means of their keys.
#include <algorithm>
#include <vector>

#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/message.h"
#include "src/selective/choose.h"
#include "src/selective/dots.h"
#include "src/selective/selective_problem.h"

namespace heed {
namespace {

class BlockMeans final : public Chooser {
 public:
  BlockMeans(const AttentionProblem& p, const TensorView<const float>& q,
             const TensorView<const float>& k, int64_t key_block, ThreadPool& pool)
      : p_(p), q_(q), key_block_(key_block) {
    const int64_t blocks = NumBlocks();
    for (int64_t n = 0; n < p.batch * p.num_kv_heads; ++n) {
      means_.emplace_back(blocks, p.head_dim);
    }
    pool.Run(p.batch * p.num_kv_heads * blocks, [&](int64_t task, int) {
      const int64_t unit = task / blocks, block = task % blocks;
      const DotPanels& means = means_[static_cast<size_t>(unit)];
      SetMean(k, unit / p.num_kv_heads, unit % p.num_kv_heads, block, means);
      if (block == 0) means.FillGap();
    });
  }

  int64_t NumBlocks() const { return (p_.kv_len + key_block_ - 1) / key_block_; }

  // The blocks that exist, up to the own one where queries do not look ahead.
  int64_t Candidates(int64_t batch, int64_t query) const override {
    const int64_t length = p_.KeyLength(batch, query);
    const int64_t blocks = (length + key_block_ - 1) / key_block_;
    const int64_t position = p_.Position(batch, query);
    if (!p_.options.causal) return blocks;
    return position < 0 ? 0 : std::min(blocks, position / key_block_ + 1);
  }

  void Score(int64_t batch, int64_t list, int64_t first, size_t num_rows, int64_t count, int,
             double* scores, size_t stride) const override {
    const float* rows[kDotRows] = {};
    for (size_t r = 0; r < num_rows; ++r) {
      rows[r] = q_.data + batch * q_.strides[0] + list * q_.strides[1] +
                (first + static_cast<int64_t>(r)) * q_.strides[2];
    }
    const int64_t unit = batch * p_.num_kv_heads + list / p_.group;
    ExactDots(rows, num_rows, means_[static_cast<size_t>(unit)], count, scores, stride);
    for (size_t r = 0; r < num_rows; ++r) {
      double* row = scores + r * stride;
      for (int64_t n = 0; n < count; ++n) row[n] = Comparable(row[n]);
      const int64_t position = p_.Position(batch, first + static_cast<int64_t>(r));
      if (position >= 0 && position / key_block_ < count) row[position / key_block_] = kCertain;
    }
  }

  double Flops() const override { return 2 * static_cast<double>(p_.head_dim); }

 private:
  // Over the keys that exist; whoever reads a block without keys does not.
  void SetMean(const TensorView<const float>& k, int64_t b, int64_t h, int64_t block,
               const DotPanels& means) const {
    const int64_t begin = block * key_block_;
    const int64_t end = std::min(begin + key_block_, p_.KeyLength(b, 0));
    for (int64_t d = 0; d < p_.head_dim; ++d) {
      double sum = 0;
      for (int64_t j = begin; j < end; ++j) sum += static_cast<double>(k(b, h, j, d));
      means.at(block, d) = static_cast<float>(sum / static_cast<double>(end - begin));
    }
  }

  const AttentionProblem& p_;
  const TensorView<const float>& q_;
  int64_t key_block_;
  std::vector<DotPanels> means_;
};

}  // namespace

void ValidateBlockMixture(const BlockMixtureOptions& o, int64_t batch) {
  CheckCount("key_block", o.key_block);
  CheckCount("top_blocks", o.top_blocks);
  CheckChoosable(o.attention, batch);
}

void BlockMixtureAttention(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, const BlockMixtureOptions& options,
                           const AttentionOutputs& outputs, ThreadPool* pool) {
  ValidateBlockMixture(options, q.shape[0]);
  AttentionProblem p = ValidateComposed(q, k, v, options.attention, outputs);
  const BlockMeans means(p, q, k, options.key_block, PoolOrDefault(pool));
  AttendToChosen(p, means, {p.num_heads, options.key_block, options.top_blocks, means.NumBlocks()},
                 pool);
}

}  // namespace heed
