// heed::cuda itself: attention by the path that the environment chooses, attention by the kernel
// for Hopper, and recurrent attention.
#include <cuda_runtime.h>

#include <cstdlib>
#include <string>

#include "heed/attention.h"
#include "heed/cuda.h"
#include "heed/recurrent.h"
#include "native_bench/cuda/device_problem.h"
#include "native_bench/device_cases.h"
#include "native_bench/device_peer.h"

namespace heed::bench {
namespace {

constexpr char kPath[] = "HEED_CUDA_PATH";  // docs/cuda.md

bool IsRecurrence(const Case& c) {
  return c.mechanism == "linear" || c.mechanism == "gated_linear" ||
         c.mechanism == "gated_delta_rule";
}

// [1, batch, num_kv_heads, kv_len], as tensors of rank 3 are held, becomes [batch, num_kv_heads,
// kv_len, 1].
TensorView<const float> PerToken(const TensorView<const float>& view) {
  return {view.data,
          {view.shape[1], view.shape[2], view.shape[3], 1},
          {view.strides[1], view.strides[2], view.strides[3], 0}};
}

RecurrentOptions RecurrentOptionsOf(const DeviceProblem& problem) {
  const Case& c = problem.shape();
  RecurrentOptions options;
  if (c.mechanism == "linear") {
    options.feature_map = FeatureMap::kEluPlusOne;
    options.normalize = true;
    options.causal = c.mask == Mask::kCausal;
    options.scale = 1;
  } else if (c.mechanism == "gated_linear") {
    options.log_decay = problem.floats("channel_log_decay");
  } else {
    options.feature_map = FeatureMap::kUnit;
    options.delta = true;
    options.log_decay = PerToken(problem.floats("log_decay"));
    options.beta = PerToken(problem.floats("beta"));
  }
  return options;
}

std::function<void()> PrepareAttention(DeviceProblem& problem) {
  AttentionOptions options;
  options.causal = problem.shape().mask == Mask::kCausal;
  options.query_offset = QueryOffset::End();
  AttentionOutputs outputs;
  outputs.stored_output = problem.output();
  return [q = problem.input("q"), k = problem.input("k"), v = problem.input("v"), options,
          outputs] { cuda::Attention(q, k, v, options, outputs, nullptr); };
}

std::function<void()> Prepare(DeviceProblem& problem) {
  if (!IsRecurrence(problem.shape())) return PrepareAttention(problem);
  return [q = problem.floats("q"), k = problem.floats("k"), v = problem.floats("v"),
          options = RecurrentOptionsOf(problem), output = problem.float_output()] {
    cuda::RecurrentAttention(q, k, v, options, {.output = output}, nullptr);
  };
}

std::string Refuse(const Case& c) {
  if (IsPlainAttention(c) || (IsRecurrence(c) && c.dtype == DType::kFloat32)) return "";
  return "the benchmark calls heed::cuda for scaled_dot_product, linear, gated_linear and "
         "gated_delta_rule";
}

std::string Details() {
  const char* path = std::getenv(kPath);
  return path == nullptr ? "base path" : std::string(kPath) + "=" + path;
}

// Takes the kernel for Hopper for every call that it can compute while this lives.
class HopperPath {
 public:
  HopperPath() {
    if (const char* path = std::getenv(kPath)) before_ = path;
    setenv(kPath, "hopper", 1);
  }
  ~HopperPath() {
    if (before_.empty()) {
      unsetenv(kPath);
    } else {
      setenv(kPath, before_.c_str(), 1);
    }
  }

 private:
  std::string before_;
};

std::string RefuseHopper(const Case& c) {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (major != 9) return "is for compute capability 9.0";
  if (!IsPlainAttention(c)) return "computes only scaled_dot_product";
  if (c.dtype == DType::kFloat32) return "takes float16 and bfloat16";
  if (c.head_dim > 128 || c.head_dim % 8 != 0) return "takes head_dim of 8, 16, ... 128";
  return "";
}

std::function<void()> PrepareHopper(DeviceProblem& problem) {
  return [call = PrepareAttention(problem)] {
    const HopperPath path;
    call();
  };
}

}  // namespace

DevicePeer HeedDevicePeer() {
  return {.id = "heed",
          .summary =
              "heed::cuda: Attention by the path that HEED_CUDA_PATH names, "
              "RecurrentAttention token by token",
          .details = Details,
          .refuse = Refuse,
          .prepare = Prepare};
}

DevicePeer HeedHopperPeer() {
  return {.id = "heed_hopper",
          .summary = "heed::cuda::Attention by its kernel for Hopper (wgmma, TMA)",
          .details = [] { return std::string("HEED_CUDA_PATH=hopper"); },
          .refuse = RefuseHopper,
          .prepare = PrepareHopper};
}

}  // namespace heed::bench
