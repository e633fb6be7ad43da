// What native sparse attention does both ways: what its branches read, compression, and options.
#ifndef HEED_SRC_SELECTIVE_NATIVE_SPARSE_H_
#define HEED_SRC_SELECTIVE_NATIVE_SPARSE_H_

#include <cstdint>

#include "heed/selective.h"
#include "heed/thread_pool.h"
#include "src/compose/rows.h"
#include "src/exact/problem.h"

namespace heed {

// Compressed keys that `length` keys make.
int64_t NumCompressed(const NativeSparseOptions& options, int64_t length);

// The same weights for every head have a stride of 0.
TensorView<const float> PerHead(TensorView<const float> weight);

// What a branch reads: of its own where it is given, else k or v.
struct BranchTokens {
  TensorView<const float> k, v;
};
BranchTokens OfCompressed(const NativeSparseOptions& options, const TensorView<const float>& k,
                          const TensorView<const float>& v);
BranchTokens OfWindow(const NativeSparseOptions& options, const TensorView<const float>& k,
                      const TensorView<const float>& v);

// Compressed keys and values, and how many of them each query sees, [batch * q_len]. `p` is the
// call of attention with the options of Branch().
struct CompressedTokens {
  OwnedTensor keys, values;
  ScratchVector<int32_t> visible;
};
CompressedTokens CompressTokens(const NativeSparseOptions& options, const AttentionProblem& p,
                                const TensorView<const float>& k, const TensorView<const float>& v,
                                ThreadPool& pool);

// Options of the branches. The first holds a view of tokens.visible.
AttentionOptions OverCompressed(const NativeSparseOptions& options, const CompressedTokens& tokens);
AttentionOptions Branch(const NativeSparseOptions& options);  // of the selected one
AttentionOptions OverWindow(const NativeSparseOptions& options);

// Makes p see the selected blocks.
void KeepSelected(const NativeSparseOptions& options, const TensorView<const float>& q,
                  const CompressedTokens& tokens, AttentionProblem& p, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_NATIVE_SPARSE_H_
