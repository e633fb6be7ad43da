// The transformer block after validation, and the parts that other layers share.
#ifndef HEED_SRC_LAYERS_TRANSFORMER_BLOCK_H_
#define HEED_SRC_LAYERS_TRANSFORMER_BLOCK_H_

#include "heed/layers.h"

namespace heed {

// Checks everything but the output; throws Error.
void ValidateTransformerBlock(TensorView<const float> x, const TransformerBlockWeights& weights,
                              const TransformerBlockOptions& options);

// Normalises the rows of x into `to`, which may be x.
struct RowNorm {
  Norm norm = Norm::kLayer;
  double epsilon = 1e-5;
  std::span<const float> weight, bias;  // empty = 1 and 0
  void operator()(const TensorView<const float>& x, const TensorView<float>& to,
                  ThreadPool& pool) const;
};

}  // namespace heed

#endif  // HEED_SRC_LAYERS_TRANSFORMER_BLOCK_H_
