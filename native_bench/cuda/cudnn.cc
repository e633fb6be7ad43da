// cuDNN's fused attention, by its graph API. The header-only cudnn-frontend describes the graph.
#include <cudnn_frontend.h>

#include <cmath>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "native_bench/cuda/device_problem.h"
#include "native_bench/device_cases.h"
#include "native_bench/device_peer.h"

namespace heed::bench {
namespace {

namespace fe = cudnn_frontend;

// What cuDNN does not take is a refusal.
void RequireGraph(fe::error_t error) {
  if (error.is_bad()) throw Error(ErrorCode::kUnsupported, "cuDNN: " + error.get_message());
}

cudnnHandle_t Handle() {
  static cudnnHandle_t handle = [] {
    cudnnHandle_t created = nullptr;
    if (cudnnCreate(&created) != CUDNN_STATUS_SUCCESS) {
      throw Error(ErrorCode::kUnsupported, "cuDNN cannot be initialised");
    }
    return created;
  }();
  return handle;
}

std::vector<int64_t> Listed(const Extents& extents) { return {extents.begin(), extents.end()}; }

class FusedAttention {
 public:
  explicit FusedAttention(const DeviceProblem& problem) {
    const Case& c = problem.shape();
    const fe::DataType_t type =
        c.dtype == DType::kFloat16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
    graph_.set_io_data_type(type)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto q = AddInput("q", problem), k = AddInput("k", problem), v = AddInput("v", problem);
    const auto options = fe::graph::SDPA_attributes()
                             .set_name("attention")
                             .set_generate_stats(false)
                             .set_causal_mask(c.mask == Mask::kCausal)
                             .set_attn_scale(1 / std::sqrt(static_cast<float>(c.head_dim)));
    const auto output = graph_.sdpa(q, k, v, options)[0];
    const StoredOutput to = problem.output();
    output->set_output(true)
        .set_uid(static_cast<int64_t>(pointers_.size()) + 1)
        .set_dim(Listed(to.shape))
        .set_stride(Listed(to.strides));
    pointers_[output->get_uid()] = to.data;
    RequireGraph(graph_.build(Handle(), {fe::HeurMode_t::A}));
    workspace_ = std::make_unique<DeviceBytes>(static_cast<size_t>(graph_.get_workspace_size()));
  }

  void Run() {
    if (graph_.execute(Handle(), pointers_, workspace_->get()).is_bad()) {
      throw Error(ErrorCode::kUnsupported, "cuDNN could not run its plan");
    }
  }

 private:
  std::shared_ptr<fe::graph::Tensor_attributes> AddInput(const char* name,
                                                         const DeviceProblem& problem) {
    const StoredTensor tensor = problem.input(name);
    const int64_t uid = static_cast<int64_t>(pointers_.size()) + 1;
    pointers_[uid] = const_cast<void*>(tensor.data);
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_name(name)
                             .set_uid(uid)
                             .set_dim(Listed(tensor.shape))
                             .set_stride(Listed(tensor.strides)));
  }

  fe::graph::Graph graph_;
  std::unordered_map<int64_t, void*> pointers_;
  std::unique_ptr<DeviceBytes> workspace_;
};

std::string Details() {
  const size_t version = cudnnGetVersion();
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

std::string Refuse(const Case& c) {
  if (!IsPlainAttention(c)) return "computes only scaled_dot_product, causal or not";
  if (c.dtype == DType::kFloat32) return "takes float16 and bfloat16";
  // cudnn-frontend 1.23: descale factors are [1, 1, 1, 1]; an output of 16 bits needs Blackwell.
  if (c.dtype == DType::kFloat8E4M3) {
    return "has one scale for a tensor of float8, not one a KV head, and on Hopper an output of "
           "float8 alone";
  }
  if (c.mask == Mask::kCausal && c.lengths.q_len != c.lengths.kv_len) {
    return "aligns causal queries with the first keys";
  }
  return "";
}

std::function<void()> Prepare(DeviceProblem& problem) {
  return [fused = std::make_shared<FusedAttention>(problem)] { fused->Run(); };
}

}  // namespace

DevicePeer CudnnPeer() {
  return {.id = "cudnn",
          .summary =
              "cuDNN: scaled dot product attention of its graph API, the first plan that its "
              "heuristics offer",
          .details = Details,
          .refuse = Refuse,
          .prepare = Prepare};
}

}  // namespace heed::bench
