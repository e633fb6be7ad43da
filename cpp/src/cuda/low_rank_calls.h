// Calls of the low-rank family on the device: made and checked on the host, then run step by step.
// No CUDA here.
#ifndef HEED_SRC_CUDA_LOW_RANK_CALLS_H_
#define HEED_SRC_CUDA_LOW_RANK_CALLS_H_

#include <cstdint>

#include "heed/low_rank.h"
#include "src/cuda/composed_steps.h"
#include "src/low_rank/problem.h"

namespace heed::cuda {

// Constructors throw Error as the functions of the CPU do, before anything is launched. What the
// calls point to must outlive them.
class LinformerCall {
 public:
  LinformerCall(const TensorView<const float>& q, const TensorView<const float>& k,
                const TensorView<const float>& v, const LinformerOptions& options,
                const AttentionOutputs& outputs);
  void Run(ComposedSteps& steps) const;

 private:
  TensorView<const float> q_, k_, v_;
  LinformerOptions options_;
  AttentionOutputs outputs_;
  LinformerProblem problem_;
};

class EfficientCall {
 public:
  EfficientCall(const TensorView<const float>& q, const TensorView<const float>& k,
                const TensorView<const float>& v, const EfficientOptions& options,
                const AttentionOutputs& outputs);
  void Run(ComposedSteps& steps) const;

 private:
  TensorView<const float> q_, k_, v_;
  EfficientOptions options_;
  AttentionOutputs outputs_;
};

class MemoryCompressedCall {
 public:
  MemoryCompressedCall(const TensorView<const float>& q, const TensorView<const float>& k,
                       const TensorView<const float>& v, const MemoryCompressedOptions& options,
                       const AttentionOutputs& outputs);
  void Run(ComposedSteps& steps) const;

 private:
  int64_t NumRounds() const;
  const int32_t* SendRowLengths(ComposedSteps& steps) const;
  // Blocks of tokens as keys or values. `rows` are the row lengths; nullptr for means.
  void Compress(ComposedSteps& steps, const BlockConvolution& convolution,
                const TensorView<const float>& tokens, const int32_t* rows,
                const TensorView<float>& to) const;
  void Convolve(ComposedSteps& steps, const BlockConvolution& convolution,
                const TensorView<const float>& tokens, const int32_t* rows,
                const TensorView<float>& to) const;
  MultiplyParams ProductOfToken(const BlockConvolution& convolution,
                                const TensorView<const float>& tokens, int64_t n,
                                const TensorView<float>& to) const;

  TensorView<const float> q_, k_, v_;
  MemoryCompressedOptions options_;
  AttentionOutputs outputs_;
  MemoryCompressedProblem problem_;
  AttentionProblem tokens_;
};

class NystromCall {
 public:
  NystromCall(const TensorView<const float>& q, const TensorView<const float>& k,
              const TensorView<const float>& v, const NystromOptions& options,
              const NystromOutputs& outputs);
  void Run(ComposedSteps& steps) const;

 private:
  TensorView<const float> q_, k_, v_;
  NystromOptions options_;
  NystromOutputs outputs_;
  NystromProblem problem_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_LOW_RANK_CALLS_H_
