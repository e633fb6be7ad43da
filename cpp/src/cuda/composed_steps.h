// The steps that a mechanism composed of several kernels is made of, and what runs them: a stream
// of the GPU (composed.cu), or emulated thread blocks (the tests). No CUDA here.
#ifndef HEED_SRC_CUDA_COMPOSED_STEPS_H_
#define HEED_SRC_CUDA_COMPOSED_STEPS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "heed/attention.h"
#include "heed/recurrent.h"
#include "heed/tensor.h"
#include "src/cuda/choice_params.h"
#include "src/cuda/cluster_params.h"
#include "src/cuda/composed_params.h"
#include "src/cuda/elementwise_params.h"
#include "src/cuda/hash_params.h"
#include "src/cuda/layer_params.h"
#include "src/cuda/policy_params.h"
#include "src/cuda/sort_params.h"
#include "src/cuda/weighted_params.h"

namespace heed::cuda {

// The kernels between the attentions: which one runs is the type of its parameters.
using StepParams =
    std::variant<MultiplyParams, MeanParams, InverseParams, ResidualParams, ConvolveParams,
                 MapParams, NormParams, GateParams, RestParams, SumValuesParams, GraphParams,
                 ChannelParams, ExtraKeyParams, BoundsParams, CompressParams, DotScoreParams,
                 IndexScoreParams, CompressedScoreParams, ChooseParams, StreamKeepParams,
                 HeavyKeepParams, ClusterScoreParams, MemberParams, MemberRowParams,
                 ClusterLengthParams, ClusterMeanParams, HashParams, HashPlaceParams,
                 HashKeepParams, BalanceParams, SortRowParams, SortKeepParams, EmbedParams,
                 PoolParams, RotateParams, PositionCodeParams, ShortConvParams, ConvStateParams>;

// Blocks of the step.
inline int64_t BlocksOf(const StepParams& step) {
  return std::visit([](const auto& params) { return NumBlocks(params); }, step);
}

class ComposedSteps {
 public:
  virtual ~ComposedSteps() = default;

  // Device memory of so many bytes, and host memory sent there. Both live until Release(), which
  // gives all of it back once the steps so far are done, or as long as the steps.
  virtual char* AllocateBytes(size_t bytes) = 0;
  virtual const char* Send(const char* data, size_t bytes) = 0;
  virtual void Release() = 0;
  // How many of so many rounds of the same steps are to run: one is enough to check them.
  virtual int64_t RoundsOf(int64_t rounds) const { return rounds; }
  // How many bytes the scores may take by which queries choose keys: a block has a query, and fewer
  // bytes would leave multiprocessors without one where keys are many.
  virtual int64_t ScoreBytes() const { return int64_t{256} << 20; }

  // `seen` is what steps before this one wrote.
  virtual void Attend(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                      const AttentionOptions& options, const AttentionOutputs& outputs,
                      const SeenRules& seen) = 0;
  virtual void Recur(const TensorView<const float>& q, const TensorView<const float>& k,
                     const TensorView<const float>& v, const RecurrentOptions& options,
                     const RecurrentOutputs& outputs) = 0;
  virtual void Run(const StepParams& step) = 0;

  void Attend(const TensorView<const float>& q, const TensorView<const float>& k,
              const TensorView<const float>& v, const AttentionOptions& options,
              const AttentionOutputs& outputs, const SeenRules& seen = {}) {
    Attend(StoredTensor(q), StoredTensor(k), StoredTensor(v), options, outputs, seen);
  }
  // At least one number: what has none has an address too.
  template <class T>
  T* AllocateArray(const Extents& e) {
    const int64_t count = std::max<int64_t>(e[0] * e[1] * e[2] * e[3], 1);
    return reinterpret_cast<T*>(AllocateBytes(static_cast<size_t>(count) * sizeof(T)));
  }
  TensorView<float> Allocate(const Extents& e) {
    return Contiguous(AllocateArray<float>(e), e[0], e[1], e[2], e[3]);
  }
  // nullptr for an empty array.
  template <class T>
  const T* SendArray(std::span<const T> values) {
    if (values.empty()) return nullptr;
    const char* bytes = reinterpret_cast<const char*>(values.data());
    return reinterpret_cast<const T*>(Send(bytes, values.size_bytes()));
  }
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_COMPOSED_STEPS_H_
