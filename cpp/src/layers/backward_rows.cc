#include "src/layers/backward_rows.h"

#include <algorithm>

#include "src/linear/backward_linear.h"
#include "src/parallel/pieces.h"

namespace heed {

OwnedHeads NewRows(const TensorView<const float>& like, int64_t dim) {
  return {like.shape[0], 1, like.shape[2], dim};
}

OwnedHeads CopiedRows(const TensorView<const float>& rows, ThreadPool& pool) {
  OwnedHeads copy = NewRows(rows, rows.shape[3]);
  CopyInto(rows, copy.view, pool);
  return copy;
}

void AddRows(const OwnedHeads& from, const OwnedHeads& to, ThreadPool& pool) {
  AddTo(from.data(), to.view.size(), &pool, to.data());
}

void SelfAttentionBackward(MultiHeadPass& pass, const TensorView<const float>& d_output,
                           MultiHeadGradients to, const OwnedHeads& d_x, ThreadPool& pool) {
  const int64_t dim = d_x.view.shape[3];
  const OwnedHeads d_key = NewRows(d_x.view, dim), d_value = NewRows(d_x.view, dim);
  to.d_query = d_x.view;
  to.d_key = d_key.view;
  to.d_value = d_value.view;
  pass.Backward(d_output, to);
  AddRows(d_key, d_x, pool);
  AddRows(d_value, d_x, pool);
}

}  // namespace heed
