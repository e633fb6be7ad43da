// Multi-head attention and the parts of other layers, as steps of the device. No CUDA here.
#ifndef HEED_SRC_CUDA_LAYER_STEPS_H_
#define HEED_SRC_CUDA_LAYER_STEPS_H_

#include <span>

#include "heed/layers.h"
#include "src/cuda/step_calls.h"
#include "src/position/problem.h"

namespace heed::cuda {

// MultiHead(), of checked arguments. Matrices are device memory, lists host memory.
void RunMultiHead(ComposedSteps& steps, const TensorView<const float>& query,
                  const TensorView<const float>& key, const TensorView<const float>& value,
                  const MultiHeadWeights& weights, const MultiHeadOptions& options,
                  const MultiHeadOutputs& outputs);

// Rows of x, normalised into `to`, which may be x.
struct LayerNormRule {
  Norm norm = Norm::kLayer;
  double epsilon = 1e-5;
  std::span<const float> weight, bias;  // empty = 1 and 0
};
void NormRows(ComposedSteps& steps, const LayerNormRule& rule, const TensorView<const float>& x,
              const TensorView<float>& to);

// to += x.
void AddRows(ComposedSteps& steps, const TensorView<const float>& x, const TensorView<float>& to);

// Rope() and Xpos(), of a checked problem without an output.
void RotateRows(ComposedSteps& steps, const RotationProblem& problem,
                const TensorView<float>& output);

// Positions of rows, sent.
RowPlaces SendPlaces(ComposedSteps& steps, const RowPositions& positions);
PhaseRule SendPhases(ComposedSteps& steps, const Spectrum& spectrum);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_LAYER_STEPS_H_
