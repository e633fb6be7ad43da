// Steps of the way back that layers share, on contiguous rows.
#ifndef HEED_SRC_LAYERS_BACKWARD_ROWS_H_
#define HEED_SRC_LAYERS_BACKWARD_ROWS_H_

#include "src/layers/backward_multi_head.h"
#include "src/parallel/owned_heads.h"

namespace heed {

// New rows [batch, 1, len, dim] beside others.
OwnedHeads NewRows(const TensorView<const float>& like, int64_t dim);

// Rows of any strides, copied.
OwnedHeads CopiedRows(const TensorView<const float>& rows, ThreadPool& pool);

// to += from, of the same size.
void AddRows(const OwnedHeads& from, const OwnedHeads& to, ThreadPool& pool);

// The way back of self-attention: what arrives at x as queries, keys and values together is written
// to d_x, contiguous rows.
void SelfAttentionBackward(MultiHeadPass& pass, const TensorView<const float>& d_output,
                           MultiHeadGradients to, const OwnedHeads& d_x, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_BACKWARD_ROWS_H_
