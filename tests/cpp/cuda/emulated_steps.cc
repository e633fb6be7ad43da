// Mechanisms composed of several kernels, in emulated thread blocks.
#include <deque>
#include <limits>
#include <variant>
#include <vector>

#include "device_backend.h"
#include "emulated_blocks.h"
#include "gtest/gtest.h"
#include "src/cuda/low_rank_calls.h"
#include "src/cuda/request_call.h"

namespace heed::testing {
namespace {

class EmulatedSteps : public cuda::ComposedSteps {
 public:
  char* AllocateBytes(size_t bytes) override {
    memory_.emplace_back(bytes / sizeof(float) + 1, std::numeric_limits<float>::quiet_NaN());
    return reinterpret_cast<char*>(memory_.back().data());
  }
  const char* Send(const char* data, size_t bytes) override {
    return std::copy_n(data, bytes, AllocateBytes(bytes)) - bytes;
  }
  void Release() override { memory_.clear(); }
  // Few queries at a time: choices take several rounds.
  int64_t ScoreBytes() const override { return 300; }
  void Attend(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
              const AttentionOptions& options, const AttentionOutputs& outputs,
              const cuda::SeenRules& seen) override {
    DeviceCall call;
    call.q = q;
    call.k = k;
    call.v = v;
    call.options = options;
    call.outputs = outputs;
    call.seen = &seen;
    EXPECT_EQ(RunOnDevice(call), "");
  }
  void Recur(const TensorView<const float>& q, const TensorView<const float>& k,
             const TensorView<const float>& v, const RecurrentOptions& options,
             const RecurrentOutputs& outputs) override {
    RunRecurrentOnDevice(q, k, v, options, outputs);
  }
  void Run(const cuda::StepParams& step) override {
    std::visit([](const auto& params) { RunBlocks(params); }, step);
  }

 private:
  std::deque<std::vector<float>> memory_;
};

template <class Call>
void RunCall(const Call& call) {
  EmulatedSteps steps;
  call.Run(steps);
}

}  // namespace

void RunLinformerOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const LinformerOptions& options,
                          const AttentionOutputs& outputs) {
  RunCall(cuda::LinformerCall(q, k, v, options, outputs));
}

void RunEfficientOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const EfficientOptions& options,
                          const AttentionOutputs& outputs) {
  RunCall(cuda::EfficientCall(q, k, v, options, outputs));
}

void RunMemoryCompressedOnDevice(TensorView<const float> q, TensorView<const float> k,
                                 TensorView<const float> v, const MemoryCompressedOptions& options,
                                 const AttentionOutputs& outputs) {
  RunCall(cuda::MemoryCompressedCall(q, k, v, options, outputs));
}

void RunNystromOnDevice(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const NystromOptions& options,
                        const NystromOutputs& outputs) {
  RunCall(cuda::NystromCall(q, k, v, options, outputs));
}

void RunRequestOnDevice(const Request& request, std::span<const NamedTensor> outputs) {
  const cuda::RequestCall call(request);
  CheckOutputNames(call.outputs(), outputs);
  EmulatedSteps steps;
  call.Run(steps, outputs);
}

}  // namespace heed::testing
