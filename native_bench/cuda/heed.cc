// heed::cuda itself: attention by the path that the environment chooses, attention by the kernel
// for Hopper, and recurrent attention.
#include <cuda_runtime.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heed/attention.h"
#include "heed/cuda.h"
#include "heed/recurrent.h"
#include "native_bench/cuda/device_memory.h"
#include "native_bench/cuda/device_problem.h"
#include "native_bench/cuda/hopper_path.h"
#include "native_bench/device_attention.h"
#include "native_bench/device_cases.h"
#include "native_bench/device_peer.h"
#include "native_bench/device_recurrence.h"

namespace heed::bench {
namespace {

// What the options of a recurrence point to, for as long as it is called.
struct Recurrence {
  std::optional<DeviceBytes> head_log_decays;
  std::vector<float> skip;
  RecurrentOptions options;
};

std::shared_ptr<const Recurrence> RecurrenceOf(const DeviceProblem& problem) {
  const Case& c = problem.shape();
  const auto recurrence = std::make_shared<Recurrence>();
  RecurrenceInputs inputs;
  inputs.tensor = [&](std::string_view name) { return problem.floats(name); };
  const std::vector<float> decays = HeadLogDecays(c);
  if (!decays.empty()) {
    const size_t bytes = decays.size() * sizeof(float);
    void* copy = recurrence->head_log_decays.emplace(bytes).get();
    Require(cudaMemcpy(copy, decays.data(), bytes, cudaMemcpyHostToDevice));
    inputs.head_log_decays = static_cast<const float*>(copy);
  }
  const StoredTensor skip = problem.input("skip");
  if (skip.has_value()) recurrence->skip = problem.FetchRows(skip, 0, 0, 0, 1);
  inputs.skip = recurrence->skip;
  recurrence->options = RecurrentOptionsOf(c, inputs);
  return recurrence;
}

// The options of attention and what they point to.
struct Sockets {
  SocketArrays arrays;
  std::optional<DeviceBytes> key_lengths;
  AttentionOptions options;
  cuda::DeviceArrays on_device;
};

std::shared_ptr<const Sockets> SocketsOf(const DeviceProblem& problem) {
  const Case& c = problem.shape();
  const auto sockets = std::make_shared<Sockets>();
  sockets->arrays = SocketArraysOf(c);
  sockets->options = AttentionOptionsOf(c, sockets->arrays);
  cuda::DeviceArrays& on_device = sockets->on_device;
  if (c.device_lengths) {
    const std::span<const int32_t> lengths = std::exchange(sockets->options.key_lengths, {});
    void* copy = sockets->key_lengths.emplace(lengths.size_bytes()).get();
    Require(cudaMemcpy(copy, lengths.data(), lengths.size_bytes(), cudaMemcpyHostToDevice));
    on_device.key_lengths = static_cast<const int32_t*>(copy);
  }
  on_device.q_scales = problem.scales("q");
  on_device.k_scales = problem.scales("k");
  on_device.v_scales = problem.scales("v");
  return sockets;
}

std::function<void()> PrepareAttention(DeviceProblem& problem) {
  AttentionOutputs outputs;
  outputs.stored_output = problem.output();
  return [q = problem.input("q"), k = problem.input("k"), v = problem.input("v"), outputs,
          sockets = SocketsOf(problem)] {
    cuda::Attention(q, k, v, sockets->options, outputs, nullptr, sockets->on_device);
  };
}

std::function<void()> Prepare(DeviceProblem& problem) {
  if (!IsDeviceRecurrence(problem.shape())) return PrepareAttention(problem);
  return [q = problem.input("q"), k = problem.input("k"), v = problem.input("v"),
          recurrence = RecurrenceOf(problem), output = problem.output()] {
    cuda::RecurrentAttention(q, k, v, recurrence->options, {.output = output}, nullptr);
  };
}

std::string Refuse(const Case& c) {
  if (IsDeviceAttention(c) || IsDeviceRecurrence(c)) return "";
  return "the benchmark calls heed::cuda for scaled_dot_product, linear, retention, lightning, "
         "mamba2, gated_linear, delta_rule, gated_delta_rule, kimi_delta and rwkv7";
}

std::string Details() {
  const char* path = std::getenv(kPathVariable);
  return path == nullptr ? "base path" : std::string(kPathVariable) + "=" + path;
}

std::string RefuseHopper(const Case& c) {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (major != 9) return "is for compute capability 9.0";
  return RefuseHopperCase(c);
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
              "RecurrentAttention of tensors as they are stored",
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
