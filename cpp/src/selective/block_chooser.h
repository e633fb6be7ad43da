// Blocks of keys, chosen by the product of a query with a vector that stands for the block.
#ifndef HEED_SRC_SELECTIVE_BLOCK_CHOOSER_H_
#define HEED_SRC_SELECTIVE_BLOCK_CHOOSER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "heed/thread_pool.h"
#include "src/selective/choose.h"
#include "src/selective/dots.h"

namespace heed {

// The own block of a query, where it has one, is chosen whatever the others score. Causal queries
// choose up to it.
class BlockChooser final : public Chooser {
 public:
  // Writes vector `block` of `to`, which stands for the keys of one head. Where the length leaves
  // none of them, whatever it writes is not looked at.
  using Summarize = std::function<void(int64_t batch, int64_t kv_head, const KeyRange& keys,
                                       const DotPanels& to, int64_t block)>;

  // `queries` [batch, num_heads, q_len, width of the vectors] outlive the chooser, as p does.
  BlockChooser(const AttentionProblem& p, const TensorView<const float>& queries,
               int64_t block_size, const Summarize& summarize, ThreadPool& pool);

  int64_t NumBlocks() const { return (p_.kv_len + block_size_ - 1) / block_size_; }
  // A list for each query head, of `most` blocks.
  ChoiceLists Lists(int64_t most) const { return {p_.num_heads, block_size_, most, NumBlocks()}; }

  int64_t Candidates(int64_t batch, int64_t query) const override;
  void Score(int64_t batch, int64_t list, int64_t first, size_t num_rows, int64_t count, int worker,
             double* scores, size_t stride) const override;
  double Flops() const override { return 2 * static_cast<double>(queries_.shape[3]); }

 private:
  const AttentionProblem& p_;
  TensorView<const float> queries_;
  int64_t block_size_;
  std::vector<DotPanels> vectors_;  // of each batch entry and KV head
};

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_BLOCK_CHOOSER_H_
