// ONNX Runtime's two kernels of attention on a CPU: Attention of the standard (opset 23), and the
// older MultiHeadAttention of its own, which takes the heads of a token side by side.
#include <onnxruntime_cxx_api.h>
#include <onnxruntime_session_options_config_keys.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "native_bench/peer.h"

namespace heed::bench {
namespace {

constexpr int kOpset = 23;

std::string Details() { return "ONNX Runtime " + Ort::GetVersionString(); }

// Where ONNX's list of operators is linked twice, as in Debian's package, it complains of each.
class SilentErrors {
 public:
  ~SilentErrors() { std::cerr.rdbuf(buffer_); }

 private:
  std::streambuf* const buffer_ = std::cerr.rdbuf(nullptr);
};

Ort::Env& Environment() {
  static Ort::Env environment(ORT_LOGGING_LEVEL_FATAL, "heed-bench");
  return environment;
}

std::string RefuseAnyway(const Case& c) {
  if (c.mechanism != "scaled_dot_product") return "computes only scaled_dot_product";
  if (c.dtype != DType::kFloat32) return "is asked for float32 alone";
  if (c.window_left.has_value() || c.softcap.has_value() || c.sinks) {
    return "is asked for no window, softcap or sinks";
  }
  if (c.mask == Mask::kCausal && c.lengths.q_len != c.lengths.kv_len) {
    return "aligns causal queries with the first keys";
  }
  return "";
}

std::string RefuseTokens(const Case& c) {
  if (const std::string why = RefuseAnyway(c); !why.empty()) return why;
  return c.heads.num_heads == c.heads.num_kv_heads ? "" : "has as many key heads as query heads";
}

Ort::OpAttr Attribute(const char* name, int64_t value) {
  return {name, &value, 1, ORT_OP_ATTR_INT};
}

Ort::OpAttr Attribute(const char* name, float value) {
  return {name, &value, 1, ORT_OP_ATTR_FLOAT};
}

// One operator that makes "output" of q, k and v.
struct Operator {
  const char* name;
  const char* domain;
  int version;
  std::vector<Ort::OpAttr> attributes;
};

constexpr std::array kInputs = {"q", "k", "v"};
constexpr std::array kOutputs = {"output"};

using Shapes = std::array<std::vector<int64_t>, 4>;  // of q, k, v and the output

std::unique_ptr<Ort::Session> MakeSession(Operator op, const Shapes& shapes, int threads) {
  const auto port = [&](const char* name, const std::vector<int64_t>& shape) {
    const Ort::TensorTypeAndShapeInfo tensor(ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, shape);
    const Ort::TypeInfo type = Ort::TypeInfo::CreateTensorInfo(tensor.GetConst());
    return Ort::ValueInfo(name, type.GetConst());
  };
  std::vector<Ort::ValueInfo> inputs, outputs;
  for (size_t i = 0; i < kInputs.size(); ++i) inputs.push_back(port(kInputs[i], shapes[i]));
  outputs.push_back(port(kOutputs[0], shapes[3]));
  Ort::Graph graph;
  graph.SetInputs(inputs);
  graph.SetOutputs(outputs);
  Ort::Node node(op.name, op.domain, "attention", {"q", "k", "v"}, {"output"}, op.attributes);
  graph.AddNode(node);
  Ort::Model model({{"", kOpset}, {op.domain, op.version}});
  model.AddGraph(graph);
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(threads);
  // Threads that spin after a call would take the processor from the next peer.
  options.AddConfigEntry(kOrtSessionOptionsConfigAllowIntraOpSpinning, "0");
  const SilentErrors silent;
  return std::make_unique<Ort::Session>(Environment(), model, options);
}

Ort::Value Wrap(float* data, const std::vector<int64_t>& shape) {
  size_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  static const Ort::MemoryInfo memory =
      Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
  return Ort::Value::CreateTensor<float>(memory, data, size, shape.data(), shape.size());
}

// A session and the tensors that it runs on.
struct Prepared {
  std::unique_ptr<Ort::Session> session;
  std::vector<float> q, k, v, output;  // of heads side by side
  std::vector<Ort::Value> inputs, outputs;

  void Bind(const Shapes& shapes, const std::array<float*, 4>& data) {
    for (size_t i = 0; i < 3; ++i) inputs.push_back(Wrap(data[i], shapes[i]));
    outputs.push_back(Wrap(data[3], shapes[3]));
  }

  void Run() {
    session->Run(Ort::RunOptions{nullptr}, kInputs.data(), inputs.data(), inputs.size(),
                 kOutputs.data(), outputs.data(), outputs.size());
  }
};

float ScaleOf(const Case& c) { return 1 / std::sqrt(static_cast<float>(c.head_dim)); }

std::function<void()> PrepareHeads(Problem& problem, ThreadPool& pool) {
  const Case& c = problem.shape();
  const auto [q_len, kv_len] = c.lengths;
  const Shapes shapes = {{{c.batch, c.heads.num_heads, q_len, c.head_dim},
                          {c.batch, c.heads.num_kv_heads, kv_len, c.head_dim},
                          {c.batch, c.heads.num_kv_heads, kv_len, c.ValueDim()},
                          {c.batch, c.heads.num_heads, q_len, c.ValueDim()}}};
  Operator op{"Attention", "", kOpset, {}};
  op.attributes.push_back(Attribute("is_causal", int64_t{c.mask == Mask::kCausal}));
  op.attributes.push_back(Attribute("scale", ScaleOf(c)));
  const auto state = std::make_shared<Prepared>();
  state->session = MakeSession(std::move(op), shapes, pool.NumThreads());
  const auto input = [&](const char* name) {
    return static_cast<float*>(problem.stored(name).data);
  };
  state->Bind(shapes, {input("q"), input("k"), input("v"), problem.output().data});
  return [state] { state->Run(); };
}

// [batch, len, heads, dim] of [batch, heads, len, dim].
std::vector<float> HeadsSideBySide(TensorView<const float> x) {
  const auto [batch, heads, len, dim] = x.shape;
  std::vector<float> tokens;
  tokens.reserve(batch * heads * len * dim);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < len; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        const float* row = x.data + ((b * heads + h) * len + i) * dim;
        tokens.insert(tokens.end(), row, row + dim);
      }
    }
  }
  return tokens;
}

void HeadsApart(const std::vector<float>& tokens, TensorView<float> output) {
  const auto [batch, heads, len, dim] = output.shape;
  const float* row = tokens.data();
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < len; ++i) {
      for (int64_t h = 0; h < heads; ++h, row += dim) {
        std::copy_n(row, dim, output.data + ((b * heads + h) * len + i) * dim);
      }
    }
  }
}

std::function<void()> PrepareTokens(Problem& problem, ThreadPool& pool) {
  const Case& c = problem.shape();
  const auto [q_len, kv_len] = c.lengths;
  const int64_t heads = c.heads.num_heads;
  const Shapes shapes = {{{c.batch, q_len, heads * c.head_dim},
                          {c.batch, kv_len, heads * c.head_dim},
                          {c.batch, kv_len, heads * c.ValueDim()},
                          {c.batch, q_len, heads * c.ValueDim()}}};
  Operator op{"MultiHeadAttention", "com.microsoft", 1, {}};
  op.attributes.push_back(Attribute("num_heads", heads));
  op.attributes.push_back(Attribute("unidirectional", int64_t{c.mask == Mask::kCausal}));
  op.attributes.push_back(Attribute("scale", ScaleOf(c)));
  const auto state = std::make_shared<Prepared>();
  state->session = MakeSession(std::move(op), shapes, pool.NumThreads());
  state->q = HeadsSideBySide(problem.q());
  state->k = HeadsSideBySide(problem.k());
  state->v = HeadsSideBySide(problem.v());
  state->output.resize(c.batch * q_len * heads * c.ValueDim());
  state->Bind(shapes, {state->q.data(), state->k.data(), state->v.data(), state->output.data()});
  const TensorView<float> output = problem.output();
  return [state, output] {
    state->Run();
    HeadsApart(state->output, output);
  };
}

}  // namespace

Peer OrtPeer() {
  return {.id = "ort",
          .summary = "ONNX Runtime: the standard's operator Attention",
          .details = Details,
          .refuse = RefuseAnyway,
          .prepare = PrepareHeads};
}

Peer OrtMultiHeadPeer() {
  return {.id = "ort_mha",
          .summary =
              "ONNX Runtime: its operator MultiHeadAttention; heads are put side by side "
              "before the call, the result's apart in it",
          .details = Details,
          .refuse = RefuseTokens,
          .prepare = PrepareTokens};
}

}  // namespace heed::bench
