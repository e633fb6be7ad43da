// PyTorch's own attention, called from C++: at::scaled_dot_product_attention, which chooses its
// fused CPU kernel.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include <cstddef>
#include <string>

#include "native_bench/peer.h"

namespace heed::bench {
namespace {

std::string Details() {
  return std::string("PyTorch ") + TORCH_VERSION + ", " + at::get_cpu_capability();
}

std::string Refuse(const Case& c) {
  if (c.mechanism != "scaled_dot_product") return "computes only scaled_dot_product";
  if (c.window_left.has_value() || c.softcap.has_value() || c.sinks) {
    return "has no window, softcap or sinks";
  }
  if (c.mask == Mask::kCausal && c.lengths.q_len != c.lengths.kv_len) {
    return "aligns causal queries with the first keys";
  }
  return "";
}

at::ScalarType TypeOf(DType dtype) {
  if (dtype == DType::kBFloat16) return at::kBFloat16;
  return dtype == DType::kFloat16 ? at::kHalf : at::kFloat;
}

// A tensor over memory that the problem keeps.
at::Tensor Wrap(const AnyTensor& tensor) {
  const at::IntArrayRef shape(tensor.shape.data(), static_cast<size_t>(tensor.rank));
  return at::from_blob(tensor.data, shape, at::TensorOptions().dtype(TypeOf(tensor.dtype)));
}

std::function<void()> Prepare(Problem& problem, ThreadPool& pool) {
  const at::Tensor q = Wrap(problem.stored("q")), k = Wrap(problem.stored("k")),
                   v = Wrap(problem.stored("v")), output = Wrap(problem.stored_output().any());
  const bool causal = problem.shape().mask == Mask::kCausal;
  const bool grouped = problem.shape().heads.num_heads != problem.shape().heads.num_kv_heads;
  const int threads = pool.NumThreads();
  return [=] {
    at::set_num_threads(threads);
    const c10::InferenceMode no_gradients;
    output.copy_(at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal, {}, grouped));
  };
}

}  // namespace

Peer LibtorchPeer() {
  return {.id = "libtorch",
          .summary = "PyTorch: scaled_dot_product_attention; its result is copied to its place",
          .details = Details,
          .refuse = Refuse,
          .prepare = Prepare};
}

}  // namespace heed::bench
