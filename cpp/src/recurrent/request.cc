#include "src/recurrent/request.h"

#include <cmath>
#include <optional>
#include <string>

#include "src/choice.h"
#include "src/message.h"
#include "src/recurrent/problem.h"

namespace heed {
namespace {

// A call of RecurrentAttention() read from a request, with the memory that its options point to.
struct RecurrentRequest {
  TensorView<const float> q, k, v;
  RecurrentOptions options;
  std::vector<float> rates;  // log_decay of each KV head, when it is the same for all tokens
  bool return_state = false;

  RecurrentOptions Options() const {
    RecurrentOptions all = options;
    if (!rates.empty()) all.log_decay = {rates.data(), {1, k.shape[1], 1, 1}, {0, 1, 0, 0}};
    return all;
  }
};

RecurrentRequest ReadCommon(const RequestReader& reader) {
  RecurrentRequest r;
  r.q = reader.RequiredTensor("q");
  r.k = reader.RequiredTensor("k");
  r.v = reader.RequiredTensor("v");
  r.options.scale = reader.Number("scale");
  r.options.key_lengths = reader.Ints("key_lengths");
  const AnyTensor* lengths = reader.Input("key_lengths");
  if (lengths != nullptr && lengths->rank != 1) {
    Fail(ErrorCode::kShape, "key_lengths must have the shape [batch], here [{}]", {r.q.shape[0]});
  }
  r.options.initial_state = reader.FloatTensor("initial_state");
  if (const auto count = reader.Count("chunk_len")) r.options.chunk_len = *count;
  r.return_state = reader.Flag("return_state");
  return r;
}

// [batch, num_kv_heads, kv_len] becomes [batch, num_kv_heads, kv_len, 1].
TensorView<const float> ReadPerToken(const RequestReader& reader, const char* name,
                                     const TensorView<const float>& k) {
  const TensorView<const float> view = reader.FloatTensor(name);
  const AnyTensor* given = reader.Input(name);
  if (given == nullptr) return view;
  if (given->rank != 3 || given->shape[0] != k.shape[0] || given->shape[1] != k.shape[1] ||
      given->shape[2] != k.shape[2]) {
    Fail(ErrorCode::kShape,
         "{} must have the shape [batch, num_kv_heads, kv_len], here [{}, {}, {}]",
         {name, k.shape[0], k.shape[1], k.shape[2]});
  }
  return {view.data,
          {view.shape[1], view.shape[2], view.shape[3], 1},
          {view.strides[1], view.strides[2], view.strides[3], 0}};
}

TensorView<const float> ReadPerChannel(const RequestReader& reader, const char* name,
                                       const TensorView<const float>& k) {
  const TensorView<const float> view = reader.RequiredTensor(name);
  if (view.shape != k.shape) {
    Fail(ErrorCode::kShape, "{} must have the shape of k, {}", {name, k.shape});
  }
  return view;
}

constexpr Choice<FeatureMap> kFeatureMaps[] = {{"elu_plus_one", FeatureMap::kEluPlusOne},
                                               {"relu", FeatureMap::kRelu},
                                               {"softmax", FeatureMap::kSoftmax},
                                               {"identity", FeatureMap::kIdentity}};
constexpr Choice<bool> kWeightSums[] = {{"one", true}, {"free", false}};
constexpr Choice<FeatureMap> kKeyNorms[] = {{"unit", FeatureMap::kUnit},
                                            {"none", FeatureMap::kIdentity}};

// Head h forgets 2^(-5 - h) of its state a token, as in the paper.
float DefaultRate(int64_t head) {
  return static_cast<float>(std::log1p(-std::exp2(-5.0 - static_cast<double>(head))));
}

RecurrentRequest ReadLinearAttention(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  r.options.feature_map =
      ReadChoice(reader, "feature_map", kFeatureMaps).value_or(FeatureMap::kEluPlusOne);
  r.options.normalize = ReadChoice(reader, "weight_sum", kWeightSums).value_or(true);
  r.options.causal = reader.Flag("causal");
  if (!r.options.scale) r.options.scale = 1.0;
  return r;
}

RecurrentRequest ReadRetention(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  const int64_t heads = r.k.shape[1];
  const std::span<const float> given = reader.Floats("head_log_decay");
  r.rates.assign(given.begin(), given.end());
  if (reader.Input("head_log_decay") == nullptr) {
    for (int64_t h = 0; h < heads; ++h) r.rates.push_back(DefaultRate(h));
  }
  if (r.rates.size() != static_cast<size_t>(heads)) {
    Fail(ErrorCode::kShape, "head_log_decay has {} values; expected one per KV head ({})",
         {r.rates.size(), heads});
  }
  return r;
}

RecurrentRequest ReadGatedLinear(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  r.options.log_decay = ReadPerChannel(reader, "channel_log_decay", r.k);
  return r;
}

RecurrentRequest ReadMamba2(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  r.options.log_decay = ReadPerToken(reader, "log_decay", r.k);
  r.options.beta = ReadPerToken(reader, "beta", r.k);
  r.options.skip = reader.Floats("skip");
  if (!r.options.scale) r.options.scale = 1.0;
  return r;
}

RecurrentRequest ReadDeltaRule(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  r.options.delta = true;
  r.options.feature_map = ReadChoice(reader, "key_norm", kKeyNorms).value_or(FeatureMap::kUnit);
  r.options.beta = ReadPerToken(reader, "beta", r.k);
  if (reader.Takes("channel_log_decay")) {
    r.options.log_decay = ReadPerChannel(reader, "channel_log_decay", r.k);
  } else if (reader.Takes("log_decay")) {
    r.options.log_decay = ReadPerToken(reader, "log_decay", r.k);
  }
  return r;
}

std::vector<OutputSpec> Plan(const RecurrentRequest& r) {
  const RecurrentProblem p = ValidateRecurrent(r.q, r.k, r.v, r.Options());
  std::vector<OutputSpec> specs;
  specs.push_back({"output", 4, {p.batch, p.num_heads, p.q_len, p.head_dim_v}});
  if (r.return_state) specs.push_back({"state", 4, StateShape(p)});
  return specs;
}

void Run(const RecurrentRequest& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  RecurrentOutputs out;
  out.output = OutputView(outputs, "output");
  if (r.return_state) out.final_state = OutputView(outputs, "state");
  RecurrentAttention(r.q, r.k, r.v, r.Options(), out, pool);
}

}  // namespace

#define HEED_RECURRENT(Name)                                                        \
  std::vector<OutputSpec> Plan##Name(const RequestReader& reader) {                 \
    return Plan(Read##Name(reader));                                                \
  }                                                                                 \
  void Run##Name(const RequestReader& reader, std::span<const NamedTensor> outputs, \
                 ThreadPool* pool) {                                                \
    Run(Read##Name(reader), outputs, pool);                                         \
  }

HEED_RECURRENT(LinearAttention)
HEED_RECURRENT(Retention)
HEED_RECURRENT(GatedLinear)
HEED_RECURRENT(Mamba2)
HEED_RECURRENT(DeltaRule)

#undef HEED_RECURRENT

}  // namespace heed
