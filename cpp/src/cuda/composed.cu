// What heed::cuda composes of several kernels, on a stream: the low-rank family, and mechanisms by
// name.
#include <deque>
#include <variant>
#include <vector>

#include "heed/cuda.h"
#include "src/cuda/attention_launch.h"
#include "src/cuda/block.h"
#include "src/cuda/grid.h"
#include "src/cuda/low_rank_calls.h"
#include "src/cuda/request_call.h"
#include "src/cuda/runtime.h"
#include "src/cuda/send.h"
#include "src/cuda/step_kernels.h"
#include "src/memory_errors.h"

namespace heed::cuda {
namespace {

template <class Params>
__global__ void __launch_bounds__(kBlockThreads) StepBlocks(const __grid_constant__ Params params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  RunStep(block, params, int64_t{blockIdx.x});
}

class StreamSteps : public ComposedSteps {
 public:
  explicit StreamSteps(Stream stream) : stream_(stream) {}

  char* AllocateBytes(size_t bytes) override { return memory_.emplace_back(bytes, stream_).get(); }
  const char* Send(const char* data, size_t bytes) override {
    char* to = AllocateBytes(bytes);
    SendArrays(std::vector<char>(data, data + bytes), to, stream_);
    return to;
  }
  // Freed in the stream's order: behind the steps that use it.
  void Release() override { memory_.clear(); }
  void Attend(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
              const AttentionOptions& options, const AttentionOutputs& outputs,
              const SeenRules& seen) override {
    DeviceProblem call = ValidateForDevice(q, k, v, options, outputs, {});
    call.seen = seen;
    LaunchAttention(call, stream_);
  }
  void Recur(const TensorView<const float>& q, const TensorView<const float>& k,
             const TensorView<const float>& v, const RecurrentOptions& options,
             const RecurrentOutputs& outputs) override {
    RecurrentAttention(q, k, v, options, outputs, stream_);
  }
  void Run(const StepParams& step) override {
    std::visit([&](const auto& params) { Launch(params); }, step);
  }

 private:
  template <class Params>
  void Launch(const Params& params) {
    const int64_t blocks = NumBlocks(params);
    if (blocks == 0) return;
    constexpr int kBytes = SharedBytesOf<DeviceBlock, Params>();
    StepBlocks<<<GridOf(blocks), kBlockThreads, kBytes, stream_>>>(params);
    ThrowOnError(cudaGetLastError(), "launching a step between attentions");
  }

  Stream stream_;
  std::deque<DeviceMemory> memory_;
};

template <class Call>
void RunOn(Stream stream, const Call& call) {
  CurrentDevice();  // throws without a usable one
  StreamSteps steps(stream);
  call.Run(steps);
}

}  // namespace

void Linformer(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
               const LinformerOptions& options, const AttentionOutputs& outputs, Stream stream) {
  WithMemoryErrors("Linformer attention",
                   [&] { RunOn(stream, LinformerCall(q, k, v, options, outputs)); });
}

void EfficientAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const EfficientOptions& options,
                        const AttentionOutputs& outputs, Stream stream) {
  WithMemoryErrors("efficient attention",
                   [&] { RunOn(stream, EfficientCall(q, k, v, options, outputs)); });
}

void MemoryCompressedAttention(TensorView<const float> q, TensorView<const float> k,
                               TensorView<const float> v, const MemoryCompressedOptions& options,
                               const AttentionOutputs& outputs, Stream stream) {
  WithMemoryErrors("memory-compressed attention",
                   [&] { RunOn(stream, MemoryCompressedCall(q, k, v, options, outputs)); });
}

void NystromAttention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const NystromOptions& options,
                      const NystromOutputs& outputs, Stream stream) {
  WithMemoryErrors("Nystrom attention",
                   [&] { RunOn(stream, NystromCall(q, k, v, options, outputs)); });
}

void Run(const Request& request, std::span<const NamedTensor> outputs, Stream stream) {
  WithMemoryErrors("a call", [&] {
    const RequestCall call(request);
    CheckOutputNames(call.outputs(), outputs);
    CurrentDevice();  // throws without a usable one
    StreamSteps steps(stream);
    call.Run(steps, outputs);
  });
}

}  // namespace heed::cuda
