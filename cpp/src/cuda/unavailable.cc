// The device path of a build without CUDA, which leaves this file out otherwise: everything that
// can be said about a call is said, then that it cannot run.
#include "heed/cuda.h"
#include "src/cuda/chunk_plan.h"
#include "src/cuda/gradient_plan.h"
#include "src/cuda/low_rank_calls.h"
#include "src/cuda/plan.h"
#include "src/cuda/recurrent_plan.h"
#include "src/cuda/request_call.h"
#include "src/memory_errors.h"
#include "src/message.h"

namespace heed::cuda {
namespace {

[[noreturn]] void Refuse() {
  const Availability state = Available();
  Fail(ErrorCode::kUnsupported, "heed::cuda found {}; it needs {}", {state.found, state.needed});
}

}  // namespace

Availability Available() {
  return {
      false, "a build of heed without CUDA",
      "one configured with -DHEED_CUDA=ON (CUDA 12.4 or newer), and a GPU of compute capability "
      "8.0 or newer"};
}

void Attention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
               const AttentionOptions& options, const AttentionOutputs& outputs, Stream /*stream*/,
               const DeviceArrays& arrays) {
  WithMemoryErrors("attention", [&] { ValidateForDevice(q, k, v, options, outputs, arrays); });
  Refuse();
}

void Attention(const StoredTensor& q, const PagedKeys& keys, const AttentionOptions& options,
               const AttentionOutputs& outputs, Stream /*stream*/, const DeviceArrays& arrays) {
  WithMemoryErrors("attention", [&] { ValidateForDevice(q, keys, options, outputs, arrays); });
  Refuse();
}

void AttentionBackward(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                       const StoredTensor& out, TensorView<const float> lse,
                       const StoredTensor& d_out, const AttentionOptions& options,
                       const AttentionGradients& gradients, Stream /*stream*/,
                       const DeviceArrays& arrays) {
  WithMemoryErrors("gradients of attention", [&] {
    ValidateGradientForDevice(q, k, v, out, lse, d_out, options, gradients, arrays);
  });
  Refuse();
}

void RecurrentAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const RecurrentOptions& options,
                        const RecurrentOutputs& outputs, Stream /*stream*/) {
  WithMemoryErrors("recurrent attention",
                   [&] { ValidateRecurrentForDevice(q, k, v, options, outputs); });
  Refuse();
}

void RecurrentAttention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                        const RecurrentOptions& options, const StoredRecurrentOutputs& outputs,
                        Stream /*stream*/) {
  WithMemoryErrors("recurrent attention",
                   [&] { ValidateStoredRecurrentForDevice(q, k, v, options, outputs); });
  Refuse();
}

void RecurrentStep(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                   const RecurrentOptions& options, TensorView<float> state,
                   TensorView<float> output, Stream /*stream*/) {
  WithMemoryErrors("a recurrent step",
                   [&] { ValidateStepForDevice(q, k, v, options, state, output); });
  Refuse();
}

void Linformer(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
               const LinformerOptions& options, const AttentionOutputs& outputs,
               Stream /*stream*/) {
  WithMemoryErrors("Linformer attention",
                   [&] { const LinformerCall call(q, k, v, options, outputs); });
  Refuse();
}

void EfficientAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const EfficientOptions& options,
                        const AttentionOutputs& outputs, Stream /*stream*/) {
  WithMemoryErrors("efficient attention",
                   [&] { const EfficientCall call(q, k, v, options, outputs); });
  Refuse();
}

void MemoryCompressedAttention(TensorView<const float> q, TensorView<const float> k,
                               TensorView<const float> v, const MemoryCompressedOptions& options,
                               const AttentionOutputs& outputs, Stream /*stream*/) {
  WithMemoryErrors("memory-compressed attention",
                   [&] { const MemoryCompressedCall call(q, k, v, options, outputs); });
  Refuse();
}

void NystromAttention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const NystromOptions& options,
                      const NystromOutputs& outputs, Stream /*stream*/) {
  WithMemoryErrors("Nystrom attention", [&] { const NystromCall call(q, k, v, options, outputs); });
  Refuse();
}

void Run(const Request& request, std::span<const NamedTensor> outputs, Stream /*stream*/) {
  WithMemoryErrors("a call", [&] { CheckOutputNames(RequestCall(request).outputs(), outputs); });
  Refuse();
}

void Check(Stream /*stream*/) { Refuse(); }

void ReleaseMemory() { Refuse(); }

}  // namespace heed::cuda
