// The layer's tensors as a request, and the two ways through the mechanism.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "heed/training/attention_layer.h"
#include "src/parallel/pieces.h"
#include "src/split_mix.h"
#include "src/training/checks.h"

namespace heed::training {
namespace {

float Sigmoid(float x) {
  const float e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

float LogSigmoid(float x) { return std::min(x, 0.0f) - std::log1p(std::exp(-std::abs(x))); }

bool IsChannelled(const std::string& gate) { return gate == "channel_log_decay"; }

// [batch, heads, len, dim] of rows [batch * len, heads * dim].
AnyTensor Strided(float* data, const Extents& shape) {
  const auto& [batch, heads, len, dim] = shape;
  return {DType::kFloat32, data, 4, shape, {len * heads * dim, dim, heads * dim, 1}};
}

// Another tensor in the place of one, as long as it lives. A request is not copied for that: in
// libstdc++ std::variant, which parameters are, destroys what it had no memory to copy.
class Replaced {
 public:
  Replaced(AnyTensor& place, const AnyTensor& other) : place_(place), kept_(place) {
    place_ = other;
  }
  ~Replaced() { place_ = kept_; }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

 private:
  AnyTensor& place_;
  const AnyTensor kept_;
};

}  // namespace

// Where the mechanism has element n of the rows of the linear map. Numbers a head stand side by
// side there and in rows of their own here: tensors of gates are contiguous along the sequence.
int64_t AttentionLayer::GatePlace(const Gate& gate, int64_t n) const {
  if (IsChannelled(gate.input)) return n;
  const int64_t heads = gate.linear.y().dim(), len = shape_.kv_len;
  const int64_t token = n / heads;
  return (token / len * heads + n % heads) * len + token % len;
}

void AttentionLayer::ActivateGate(Gate& gate, const Matrix& context, ThreadPool* pool) {
  const Matrix& raw = gate.linear.Forward(context, pool);
  gate.activated.Resize(raw.rows(), raw.dim());
  const bool is_beta = gate.input == "beta";
  ForEachPiece(raw.size(), kTaskElements, pool, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t n = begin; n < end; ++n) {
      const float x = raw.data()[n];
      gate.activated.data()[GatePlace(gate, n)] = is_beta ? Sigmoid(x) : LogSigmoid(x);
    }
  });
}

// The gradient of the linear map from that of what the mechanism read.
const Matrix& AttentionLayer::GateInputGradient(Gate& gate, ThreadPool* pool) {
  const Matrix& raw = gate.linear.y();
  gate.d_raw.Resize(raw.rows(), raw.dim());
  const bool is_beta = gate.input == "beta";
  ForEachPiece(raw.size(), kTaskElements, pool, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t n = begin; n < end; ++n) {
      const float x = raw.data()[n], rest = Sigmoid(-x);
      const float slope = is_beta ? rest * Sigmoid(x) : rest;
      gate.d_raw.data()[n] = slope * gate.gradient.data()[GatePlace(gate, n)];
    }
  });
  return gate.d_raw;
}

AnyTensor AttentionLayer::GateTensor(const Gate& gate, Matrix& rows) const {
  const int64_t len = shape_.kv_len;
  if (IsChannelled(gate.input)) {
    return Strided(rows.data(), {shape_.batch, options_.num_kv_heads, len, head_dim_});
  }
  const int64_t shape[] = {shape_.batch, rows.dim(), len};
  return ContiguousTensor(DType::kFloat32, rows.data(), shape);
}

Request AttentionLayer::MakeRequest() {
  const auto [batch, q_len, kv_len, draw] = shape_;
  Request request = {options_.mechanism, {}, options_.params};
  std::erase_if(request.params, [&](const NamedParam& param) {
    return param.name == "dropout_seed" || (param.name == "dropout_p" && !shape_.dropout_draw);
  });
  if (dropout_seed_ && draw) {
    const uint64_t seed = SplitMix64(*dropout_seed_ + *draw).Next();
    request.params.push_back({"dropout_seed", std::to_string(seed)});
  }
  const auto add = [&](const std::string& name, const AnyTensor& tensor) {
    request.inputs.push_back({name, tensor});
  };
  const Extents keys = {batch, options_.num_kv_heads, kv_len, head_dim_};
  add("q", Strided(q_.y().data(), {batch, options_.num_heads, q_len, head_dim_}));
  if (k_) add("k", Strided(k_->y().data(), keys));
  add("v", Strided(v_.y().data(), keys));
  for (Gate& gate : gates_) add(gate.input, GateTensor(gate, gate.activated));
  for (Learned& learned : learned_) {
    const Parameter& parameter = *learned.parameter;
    learned.value = parameter.value;
    add(learned.input, ContiguousTensor(DType::kFloat32, learned.value.data(), parameter.shape));
  }
  if (!slopes_.empty()) {
    add("alibi_slopes", ContiguousTensor(DType::kFloat32, slopes_.data(), {{options_.num_heads}}));
  }
  return request;
}

// Where the mechanism writes: the heads side by side, and what backward needs besides.
std::vector<NamedTensor> AttentionLayer::Results(const Request& request) {
  const BackwardPlan plan = PlanBackward(request);
  std::vector<NamedTensor> results;
  for (const OutputSpec& spec : plan.results) {
    if (spec.name == "output") {
      results.push_back({spec.name, Strided(heads_.data(), spec.shape)});
      continue;
    }
    const auto& [batch, heads, len, none] = spec.shape;
    lse_.Resize(batch * heads, len);
    results.push_back({spec.name, ContiguousTensor(DType::kFloat32, lse_.data(),
                                                   {spec.shape.data(), size_t(spec.rank)})});
  }
  return results;
}

std::vector<NamedTensor> AttentionLayer::GradientPlaces() {
  const auto [batch, q_len, kv_len, draw] = shape_;
  const int64_t kv_dim = options_.num_kv_heads * head_dim_;
  d_q_.Resize(batch * q_len, options_.embed_dim);
  d_v_.Resize(batch * kv_len, kv_dim);
  const Extents keys = {batch, options_.num_kv_heads, kv_len, head_dim_};
  std::vector<NamedTensor> places = {
      {"q", Strided(d_q_.data(), {batch, options_.num_heads, q_len, head_dim_})},
      {"v", Strided(d_v_.data(), keys)}};
  if (k_) {
    d_k_.Resize(batch * kv_len, kv_dim);
    places.push_back({"k", Strided(d_k_.data(), keys)});
  }
  for (Gate& gate : gates_) {
    gate.gradient.Resize(gate.activated.rows(), gate.activated.dim());
    places.push_back({gate.input, GateTensor(gate, gate.gradient)});
  }
  for (Learned& learned : learned_) {
    const Parameter& parameter = *learned.parameter;
    MakeRoom(parameter.name, static_cast<int64_t>(parameter.value.size()), learned.gradient);
    places.push_back({learned.input,
                      ContiguousTensor(DType::kFloat32, learned.gradient.data(), parameter.shape)});
  }
  return places;
}

void AttentionLayer::RunMechanismBackward(const Matrix& d_heads, ThreadPool* pool) {
  const Extents shape = {shape_.batch, options_.num_heads, shape_.q_len, head_dim_};
  const NamedTensor arriving = {"output", Strided(const_cast<float*>(d_heads.data()), shape)};
  RunBackward(request_, Results(request_), {{arriving}}, GradientPlaces(), pool);
  for (Learned& learned : learned_) {
    AddTo(learned.gradient.data(), static_cast<int64_t>(learned.gradient.size()), pool,
          learned.parameter->gradient.data());
  }
}

void AttentionLayer::Weights(TensorView<float> weights, ThreadPool* pool) const {
  WithMemoryErrors("the weights of heads", [&] {
    if (request_.inputs.empty()) Fail(ErrorCode::kOption, "Weights() is called before Forward()");
    const auto [batch, q_len, kv_len, draw] = shape_;
    Matrix unit(kv_len, kv_len), lse(batch * options_.num_heads, q_len);
    unit.Fill(0);
    for (int64_t j = 0; j < kv_len; ++j) unit.Row(j)[j] = 1;
    const int64_t kv_heads = options_.num_kv_heads;
    const auto is_v = [](const NamedTensor& input) { return input.name == "v"; };
    const Replaced values(
        std::find_if(request_.inputs.begin(), request_.inputs.end(), is_v)->tensor,
        {DType::kFloat32, unit.data(), 4, {batch, kv_heads, kv_len, kv_len}, {0, 0, kv_len, 1}});
    std::vector<NamedTensor> results;
    for (const OutputSpec& spec : PlanBackward(request_).results) {
      const std::span<const int64_t> shape = {spec.shape.data(), size_t(spec.rank)};
      AnyTensor to = ContiguousTensor(DType::kFloat32, lse.data(), shape);
      if (spec.name == "output") {
        to = {DType::kFloat32, weights.data, 4, weights.shape, weights.strides};
      }
      results.push_back({spec.name, to});
    }
    RunForward(request_, results, pool);
  });
}

}  // namespace heed::training
