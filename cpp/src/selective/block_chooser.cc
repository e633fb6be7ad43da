#include "src/selective/block_chooser.h"

#include <algorithm>

namespace heed {

BlockChooser::BlockChooser(const AttentionProblem& p, const TensorView<const float>& queries,
                           int64_t block_size, const Summarize& summarize, ThreadPool& pool)
    : p_(p), queries_(queries), block_size_(block_size) {
  const int64_t blocks = NumBlocks();
  for (int64_t n = 0; n < p.batch * p.num_kv_heads; ++n) {
    vectors_.emplace_back(blocks, queries.shape[3]);
  }
  pool.Run(p.batch * p.num_kv_heads * blocks, [&](int64_t task, int) {
    const int64_t unit = task / blocks, block = task % blocks, b = unit / p.num_kv_heads;
    const DotPanels& vectors = vectors_[static_cast<size_t>(unit)];
    const int64_t begin = block * block_size;
    const KeyRange keys = {begin, std::min(begin + block_size, p.KeyLength(b, 0))};
    summarize(b, unit % p.num_kv_heads, keys, vectors, block);
    if (block == 0) vectors.FillGap();
  });
}

int64_t BlockChooser::Candidates(int64_t batch, int64_t query) const {
  const int64_t blocks = (p_.KeyLength(batch, query) + block_size_ - 1) / block_size_;
  const int64_t position = p_.Position(batch, query);
  if (!p_.options.causal) return blocks;
  return position < 0 ? 0 : std::min(blocks, position / block_size_ + 1);
}

void BlockChooser::Score(int64_t batch, int64_t list, int64_t first, size_t num_rows, int64_t count,
                         int, double* scores, size_t stride) const {
  const float* rows[kDotRows] = {};
  for (size_t r = 0; r < num_rows; ++r) {
    rows[r] = &queries_(batch, list, first + static_cast<int64_t>(r), 0);
  }
  const int64_t unit = batch * p_.num_kv_heads + list / p_.group;
  ExactDots(rows, num_rows, vectors_[static_cast<size_t>(unit)], count, scores, stride);
  for (size_t r = 0; r < num_rows; ++r) {
    double* row = scores + r * stride;
    for (int64_t n = 0; n < count; ++n) row[n] = Comparable(row[n]);
    const int64_t position = p_.Position(batch, first + static_cast<int64_t>(r));
    if (position >= 0 && position / block_size_ < count) row[position / block_size_] = kCertain;
  }
}

}  // namespace heed
