// Gradients of the low-rank family: each is one or more calls of AttentionBackward(), and products
// around them.
#ifndef HEED_SRC_LOW_RANK_BACKWARD_H_
#define HEED_SRC_LOW_RANK_BACKWARD_H_

#include <span>

#include "heed/gradient.h"
#include "heed/low_rank.h"
#include "src/compose/rows.h"

namespace heed {

// What forward gave, where it is needed, and what arrives at it.
struct LowRankArriving {
  TensorView<const float> out, lse, d_out, d_lse;
};

// Where gradients go; those without a value are not computed. Shaped as the inputs of these names.
struct LowRankGradients {
  TensorView<float> d_q{}, d_k{}, d_v{};
  // [1, 1 or num_kv_heads, rows, columns]
  TensorView<float> d_key_projection{}, d_value_projection{};
  TensorView<float> d_key_conv{}, d_value_conv{};
  std::span<float> d_key_conv_bias{}, d_value_conv_bias{}, d_sinks{};
  TensorView<float> d_depthwise_conv{};
};

void LinformerBackward(const TensorView<const float>& q, const TensorView<const float>& k,
                       const TensorView<const float>& v, const LinformerOptions& options,
                       const LowRankArriving& arriving, const LowRankGradients& to,
                       ThreadPool& pool);
void EfficientBackward(const TensorView<const float>& q, const TensorView<const float>& k,
                       const TensorView<const float>& v, const EfficientOptions& options,
                       const LowRankArriving& arriving, const LowRankGradients& to,
                       ThreadPool& pool);
void NystromBackward(const TensorView<const float>& q, const TensorView<const float>& k,
                     const TensorView<const float>& v, const NystromOptions& options,
                     const LowRankArriving& arriving, const LowRankGradients& to, ThreadPool& pool);
void MemoryCompressedBackward(const TensorView<const float>& q, const TensorView<const float>& k,
                              const TensorView<const float>& v,
                              const MemoryCompressedOptions& options,
                              const LowRankArriving& arriving, const LowRankGradients& to,
                              ThreadPool& pool);

// Every matrix transposed, in memory of its own: products take rows that are contiguous.
OwnedTensor Transposed(const TensorView<const float>& rows, ThreadPool& pool);

// Rows [first, their number) of a view that may be absent become 0.
void ClearRows(const TensorView<float>& to, int64_t b, int64_t first);

}  // namespace heed

#endif  // HEED_SRC_LOW_RANK_BACKWARD_H_
