// ggml's fused attention (ggml_flash_attn_ext), as llama.cpp computes it on a CPU.
#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "heed/dtype.h"
#include "heed/error.h"
#include "native_bench/peer.h"

namespace heed::bench {
namespace {

// The backend for this processor among those that are installed.
ggml_backend_dev_t Cpu() {
  static const ggml_backend_dev_t device = [] {
    ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    ggml_backend_load_all();
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  }();
  return device;
}

std::string Details() { return std::string("ggml ") + ggml_version(); }

std::string Refuse(const Case& c) {
  if (c.mechanism != "scaled_dot_product") return "computes only scaled_dot_product";
  if (c.dtype != DType::kFloat32) return "takes queries of float32 alone";
  if (c.mask == Mask::kCausal && c.lengths.q_len > c.lengths.kv_len) {
    return "is asked for no rows without keys";
  }
  return Cpu() == nullptr ? "finds no backend for this processor" : "";
}

// Frees what ggml made.
struct Free {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
};

// A graph of one attention, over memory of the problem. Extents are innermost first.
class Graph {
 public:
  Graph(Problem& problem, int threads) : shape_(problem.shape()) {
    const ggml_init_params room = {.mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(),
                                   .mem_buffer = nullptr,
                                   .no_alloc = true};
    context_.reset(ggml_init(room));
    backend_.reset(ggml_backend_dev_init(Cpu(), nullptr));
    if (!context_ || !backend_) throw Error(ErrorCode::kMemory, "ggml: no context");
    SetThreads(threads);
    const auto [q_len, kv_len] = shape_.lengths;
    ggml_tensor* q = Input(problem, "q", shape_.head_dim, q_len, shape_.heads.num_heads);
    ggml_tensor* k = Input(problem, "k", shape_.head_dim, kv_len, shape_.heads.num_kv_heads);
    ggml_tensor* v = Input(problem, "v", shape_.ValueDim(), kv_len, shape_.heads.num_kv_heads);
    const float scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
    const auto softcap = static_cast<float>(shape_.softcap.value_or(0));
    ggml_tensor* result = ggml_flash_attn_ext(context_.get(), q, k, v, MakeMask(problem), scale,
                                              /*max_bias=*/0, softcap);
    if (shape_.sinks) ggml_flash_attn_ext_add_sinks(result, MakeSinks(problem));
    Place(result, Make(DType::kFloat32, ggml_nelements(result)).bytes());
    // Token by token, the heads of each side by side: brought to the order of the other peers.
    ggml_tensor* output =
        ggml_cont(context_.get(), ggml_permute(context_.get(), result, 0, 2, 1, 3));
    Place(output, problem.output().data);
    ggml_backend_view_init(output->src[0]);
    graph_ = ggml_new_graph(context_.get());
    ggml_build_forward_expand(graph_, output);
  }

  void Compute() const {
    if (ggml_backend_graph_compute(backend_.get(), graph_) != GGML_STATUS_SUCCESS) {
      throw Error(ErrorCode::kUnsupported, "ggml: the graph was not computed");
    }
  }

 private:
  // Memory on cache lines, as ggml wants it.
  OwnedTensor& Make(DType dtype, int64_t count) {
    return memory_.emplace_back("", dtype, std::vector<int64_t>{count});
  }

  void SetThreads(int threads) const {
    using SetThreadsOf = void (*)(ggml_backend_t, int);
    const auto set = reinterpret_cast<SetThreadsOf>(ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(Cpu()), "ggml_backend_set_n_threads"));
    if (set == nullptr) throw Error(ErrorCode::kUnsupported, "ggml: no choice of threads");
    set(backend_.get(), threads);
  }

  void Place(ggml_tensor* tensor, void* data) {
    buffers_.emplace_back(ggml_backend_cpu_buffer_from_ptr(data, ggml_nbytes(tensor)));
    ggml_backend_tensor_alloc(buffers_.back().get(), tensor, data);
  }

  ggml_tensor* Input(const Problem& problem, const char* name, int64_t dim, int64_t len,
                     int64_t heads) {
    ggml_tensor* tensor =
        ggml_new_tensor_4d(context_.get(), GGML_TYPE_F32, dim, len, heads, shape_.batch);
    Place(tensor, problem.stored(name).data);
    return tensor;
  }

  // 0 where the key is seen and -infinity elsewhere, in float16 as ggml wants it.
  ggml_tensor* MakeMask(const Problem& problem) {
    if (shape_.mask == Mask::kFull && !shape_.window_left.has_value()) return nullptr;
    const auto [q_len, kv_len] = shape_.lengths;
    OwnedTensor& cells = Make(DType::kFloat16, q_len * kv_len);
    std::fill_n(cells.halves(), cells.size(), ggml_fp32_to_fp16(-INFINITY));
    for (int64_t i = 0; i < q_len; ++i) {
      const auto [begin, end] = problem.VisibleKeys(i);
      std::fill(cells.halves() + i * kv_len + begin, cells.halves() + i * kv_len + end,
                ggml_fp32_to_fp16(0));
    }
    ggml_tensor* mask = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F16, kv_len, q_len);
    Place(mask, cells.bytes());
    return mask;
  }

  ggml_tensor* MakeSinks(const Problem& problem) {
    OwnedTensor& logits = Make(DType::kFloat32, shape_.heads.num_heads);
    for (int64_t h = 0; h < logits.size(); ++h) logits.floats()[h] = *problem.sink(h);
    ggml_tensor* sinks = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, shape_.heads.num_heads);
    Place(sinks, logits.bytes());
    return sinks;
  }

  const Case shape_;
  std::deque<OwnedTensor> memory_;
  std::unique_ptr<ggml_context, Free> context_;
  std::unique_ptr<ggml_backend, Free> backend_;
  std::vector<std::unique_ptr<ggml_backend_buffer, Free>> buffers_;
  ggml_cgraph* graph_ = nullptr;  // of the context
};

std::function<void()> Prepare(Problem& problem, ThreadPool& pool) {
  const auto graph = std::make_shared<Graph>(problem, pool.NumThreads());
  return [graph] { graph->Compute(); };
}

}  // namespace

Peer GgmlPeer() {
  return {
      .id = "ggml",
      .summary = "ggml: ggml_flash_attn_ext with keys of float32; masks are made before the call",
      .details = Details,
      .refuse = Refuse,
      .prepare = Prepare};
}

}  // namespace heed::bench
