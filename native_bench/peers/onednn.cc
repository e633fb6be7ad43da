// oneDNN's fused attention: matrix product, scale, mask, softmax, matrix product as one partition
// of its graph API. A causal mask is added as numbers; nothing is skipped for it.
#include <omp.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <oneapi/dnnl/dnnl_graph.hpp>
#include <string>
#include <vector>

#include "native_bench/peer.h"

namespace heed::bench {
namespace {

using dnnl::graph::graph;
using dnnl::graph::logical_tensor;
using dnnl::graph::op;
using Dims = std::vector<int64_t>;
using Type = logical_tensor::data_type;

std::string Details() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

Type TypeOf(DType dtype) { return dtype == DType::kBFloat16 ? Type::bf16 : Type::f32; }

// What goes into the graph and comes out of it. Query heads that share keys are an axis of their
// own, along which keys and values are repeated.
struct Ports {
  logical_tensor q, k, v, scale, mask, output;
};

Ports PortsOf(const Case& c) {
  const int64_t kv = c.heads.num_kv_heads, group = c.heads.num_heads / kv;
  const auto [q_len, kv_len] = c.lengths;
  const auto port = [&](size_t id, const Dims& dims) {
    return logical_tensor(id, TypeOf(c.dtype), dims, logical_tensor::layout_type::strided);
  };
  const bool grouped = group > 1;
  const auto heads = [&](int64_t shared, int64_t len, int64_t dim) {
    return grouped ? Dims{c.batch, kv, shared, len, dim} : Dims{c.batch, kv, len, dim};
  };
  const Dims mask = grouped ? Dims{1, 1, 1, q_len, kv_len} : Dims{1, 1, q_len, kv_len};
  return {port(0, heads(group, q_len, c.head_dim)),
          port(1, heads(1, kv_len, c.head_dim)),
          port(2, heads(1, kv_len, c.ValueDim())),
          port(3, {1}),
          port(4, mask),
          port(5, heads(group, q_len, c.ValueDim()))};
}

logical_tensor Between(size_t id, const Case& c) {
  return {id, TypeOf(c.dtype), logical_tensor::layout_type::strided};
}

// The partitions that oneDNN makes of attention: one when it has a kernel for all of it.
std::vector<dnnl::graph::partition> Partitions(const Case& c, const Ports& ports) {
  const bool causal = c.mask == Mask::kCausal;
  const logical_tensor products = Between(10, c), scaled = Between(11, c), masked = Between(12, c),
                       weights = Between(13, c);
  op scores(0, op::kind::MatMul, {ports.q, ports.k}, {products}, "scores");
  scores.set_attr<bool>(op::attr::transpose_b, true);
  op scale(1, op::kind::Multiply, {products, ports.scale}, {scaled}, "scale");
  op mask(2, op::kind::Add, {scaled, ports.mask}, {masked}, "mask");
  op softmax(3, op::kind::SoftMax, {causal ? masked : scaled}, {weights}, "softmax");
  softmax.set_attr<int64_t>(op::attr::axis, -1);
  op values(4, op::kind::MatMul, {weights, ports.v}, {ports.output}, "values");
  graph whole(dnnl::engine::kind::cpu);
  whole.add_op(scores);
  whole.add_op(scale);
  if (causal) whole.add_op(mask);
  whole.add_op(softmax);
  whole.add_op(values);
  whole.finalize();
  return whole.get_partitions();
}

std::string Refuse(const Case& c) {
  if (c.mechanism != "scaled_dot_product") return "computes only scaled_dot_product";
  if (c.dtype == DType::kFloat16) return "is asked for float32 and bfloat16 only";
  if (c.window_left.has_value() || c.softcap.has_value() || c.sinks) {
    return "is asked for no window, softcap or sinks";
  }
  if (c.ValueDim() != c.head_dim) return "wants values as wide as keys";
  if (c.mask == Mask::kCausal && c.lengths.q_len > c.lengths.kv_len) {
    return "gives no zeros to rows that see no key";
  }
  const auto partitions = Partitions(c, PortsOf(c));
  if (partitions.size() == 1 && partitions[0].is_supported()) return "";
  return "has no fused kernel for this case";
}

// -inf where a causal mask hides the key, as the case stores its numbers.
std::vector<std::byte> MaskBytes(const Problem& problem) {
  const auto [q_len, kv_len] = problem.shape().lengths;
  OwnedTensor mask("mask", DType::kFloat32, {q_len, kv_len});
  for (int64_t i = 0; i < q_len; ++i) {
    const auto [begin, end] = problem.VisibleKeys(i);
    for (int64_t j = 0; j < kv_len; ++j) {
      const bool seen = begin <= j && j < end;
      mask.floats()[i * kv_len + j] = seen ? 0.0f : -std::numeric_limits<float>::infinity();
    }
  }
  const auto bytes = [](const OwnedTensor& tensor) {
    const auto* begin = reinterpret_cast<const std::byte*>(tensor.bytes());
    return std::vector<std::byte>(begin, begin + tensor.size() * ElementSize(tensor.any().dtype));
  };
  if (problem.shape().dtype == DType::kFloat32) return bytes(mask);
  return bytes(StoredAs(mask, problem.shape().dtype));
}

// A compiled partition with its arguments.
struct Prepared {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<std::byte> mask;
  std::vector<float> scale;
  dnnl::graph::compiled_partition compiled;
  std::vector<dnnl::graph::tensor> inputs, outputs;
};

// The numbers 1 / sqrt(head_dim), alone, in the case's type: a float whose upper half is a
// bfloat16.
std::vector<float> ScaleOf(const Case& c) {
  OwnedTensor scale("scale", DType::kFloat32, {1});
  scale.floats()[0] = 1 / std::sqrt(static_cast<float>(c.head_dim));
  if (c.dtype == DType::kFloat32) return {scale.floats()[0]};
  const OwnedTensor half = StoredAs(scale, c.dtype);
  return {std::bit_cast<float>(static_cast<uint32_t>(half.halves()[0]))};
}

std::function<void()> Prepare(Problem& problem, ThreadPool& pool) {
  const Case& c = problem.shape();
  const Ports ports = PortsOf(c);
  const auto partition = Partitions(c, ports).front();
  auto state = std::make_shared<Prepared>();
  state->scale = ScaleOf(c);
  if (c.mask == Mask::kCausal) state->mask = MaskBytes(problem);
  const logical_tensor known[] = {ports.q, ports.k, ports.v, ports.scale, ports.mask};
  void* data[] = {problem.stored("q").data, problem.stored("k").data, problem.stored("v").data,
                  state->scale.data(), state->mask.data()};
  std::vector<logical_tensor> inputs;
  for (const logical_tensor& port : partition.get_input_ports()) {
    const size_t id = port.get_id();
    inputs.push_back(known[id]);
    state->inputs.emplace_back(known[id], state->engine, data[id]);
  }
  state->outputs.emplace_back(ports.output, state->engine, problem.stored_output().any().data);
  state->compiled = partition.compile(inputs, {ports.output}, state->engine);
  const int threads = pool.NumThreads();
  return [state, threads] {
    omp_set_num_threads(threads);
    state->compiled.execute(state->stream, state->inputs, state->outputs);
    state->stream.wait();
  };
}

}  // namespace

Peer OneDnnPeer() {
  return {.id = "onednn",
          .summary = "oneDNN: attention as one fused partition of its graph API",
          .details = Details,
          .refuse = Refuse,
          .prepare = Prepare};
}

}  // namespace heed::bench
