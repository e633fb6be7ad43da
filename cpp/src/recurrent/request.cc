#include "src/recurrent/request.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "heed/attention.h"
#include "heed/linear.h"
#include "heed/registry.h"
#include "src/choice.h"
#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/recurrent/problem.h"

namespace heed {

RecurrentOptions RecurrentRequest::Options() const {
  RecurrentOptions all = options;
  if (!rates.empty()) all.log_decay = {rates.data(), {1, k.shape[1], 1, 1}, {0, 1, 0, 0}};
  all.position_offset = offsets;
  return all;
}

namespace {

void ReadTensors(const RequestReader& reader, const char* keys, RecurrentRequest& r) {
  r.q = reader.RequiredTensor("q");
  r.k = reader.RequiredTensor(keys);
  r.v = reader.RequiredTensor("v");
  r.options.key_lengths = reader.Ints("key_lengths");
  const AnyTensor* lengths = reader.Input("key_lengths");
  if (lengths != nullptr && lengths->rank != 1) {
    Fail(ErrorCode::kShape, "key_lengths must have the shape [batch], here [{}]", {r.q.shape[0]});
  }
  r.options.initial_state = reader.FloatTensor("initial_state");
  r.return_state = reader.Flag("return_state");
}

RecurrentRequest ReadCommon(const RequestReader& reader, const char* keys = "k") {
  RecurrentRequest r;
  ReadTensors(reader, keys, r);
  r.options.scale = reader.Number("scale");
  if (const auto count = reader.Count("chunk_len")) r.options.chunk_len = *count;
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
                                               {"identity", FeatureMap::kIdentity},
                                               {"user", FeatureMap::kUser}};
constexpr Choice<bool> kWeightSums[] = {{"one", true}, {"free", false}};
constexpr Choice<FeatureMap> kKeyNorms[] = {{"unit", FeatureMap::kUnit},
                                            {"none", FeatureMap::kIdentity}};

constexpr int64_t kDefaultRandomFeatures = 256;

// Head h forgets 2^(-5 - h) of its state a token, as in the paper.
float DefaultRate(int64_t head) {
  return static_cast<float>(std::log1p(-std::exp2(-5.0 - static_cast<double>(head))));
}

RecurrentRequest ReadLinearAttention(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  const auto text = reader.Word("feature_mod");
  if (text)
    r.options.feature_mod = CompileFeatureMap("feature_mod", *text, reader.Named("captured"));
  const auto word = reader.Word("feature_map");
  if (text && word && *word != "user") {
    Fail(ErrorCode::kOption,
         "feature_mod is given beside feature_map = {}; expected feature_map user, or one of the "
         "two",
         {*word});
  }
  r.options.feature_map = ReadChoice(reader, "feature_map", kFeatureMaps)
                              .value_or(text ? FeatureMap::kUser : FeatureMap::kEluPlusOne);
  r.options.normalize = ReadChoice(reader, "weight_sum", kWeightSums).value_or(true);
  r.options.causal = reader.Flag("causal");
  if (!r.options.scale) r.options.scale = 1.0;
  return r;
}

// One rate per KV head: the given ones, or rate(head).
template <class Rate>
void ReadRates(const RequestReader& reader, RecurrentRequest& r, const Rate& rate) {
  const int64_t heads = r.k.shape[1];
  const std::span<const float> given = reader.Floats("head_log_decay");
  r.rates.assign(given.begin(), given.end());
  if (reader.Input("head_log_decay") == nullptr) {
    for (int64_t h = 0; h < heads; ++h) r.rates.push_back(rate(h));
  }
  if (r.rates.size() != static_cast<size_t>(heads)) {
    Fail(ErrorCode::kShape, "head_log_decay has {} values; expected one per KV head ({})",
         {r.rates.size(), heads});
  }
}

RecurrentRequest ReadRetention(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  ReadRates(reader, r, DefaultRate);
  return r;
}

RecurrentRequest ReadLightning(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  const double depth = reader.Number("layer_depth").value_or(0);
  if (depth < 0 || depth > 1) {
    Fail(ErrorCode::kRange, "layer_depth = {}; it lies in [0, 1]", {depth});
  }
  const std::vector<float> slopes = AlibiSlopes(r.k.shape[1]);
  ReadRates(reader, r, [&](int64_t h) {
    return static_cast<float>(-double{slopes[static_cast<size_t>(h)]} * (1 - depth));
  });
  if (!r.options.scale) r.options.scale = 1.0;
  return r;
}

// What estimates of softmax attention have in common: weights that sum to 1.
RecurrentRequest ReadEstimate(const RequestReader& reader, FeatureMap map) {
  RecurrentRequest r = ReadCommon(reader);
  r.options.feature_map = map;
  r.options.normalize = true;
  r.options.causal = reader.Flag("causal");
  return r;
}

RecurrentRequest ReadBased(const RequestReader& reader) {
  return ReadEstimate(reader, FeatureMap::kTaylor);
}

RecurrentRequest ReadPerformer(const RequestReader& reader) {
  RecurrentRequest r = ReadEstimate(reader, FeatureMap::kRandom);
  r.return_projection = reader.Flag("return_projection");
  const std::optional<int64_t> features = reader.Count("num_features");
  const std::optional<uint64_t> seed = reader.Seed("feature_seed");
  const AnyTensor* given = reader.Input("projection");
  if (given == nullptr) {
    // Enough for shapes; Run() draws the numbers.
    static const float kNothing = 0;
    r.seed = seed.value_or(0);
    r.options.projection = {
        &kNothing, {1, 1, features.value_or(kDefaultRandomFeatures), r.q.shape[3]}, {0, 0, 0, 1}};
    return r;
  }
  if (features || seed) {
    Fail(ErrorCode::kOption,
         "projection is given: num_features and feature_seed would draw another one");
  }
  if (given->rank != 2) {
    Fail(ErrorCode::kShape, "projection has rank {}; expected [num_features, head_dim]",
         {given->rank});
  }
  r.options.projection = reader.FloatTensor("projection");
  return r;
}

std::vector<int64_t> ReadOffsets(const RequestReader& reader) {
  std::vector<int64_t> offsets;
  for (const double number : reader.Numbers("position_offset")) {
    offsets.push_back(WholeNumber("position_offset", number));
  }
  if (reader.Param("position_offset") != nullptr && offsets.empty()) {
    Fail(ErrorCode::kShape, "position_offset is an empty list; expected 1 or batch values");
  }
  return offsets;
}

RecurrentRequest ReadCosformer(const RequestReader& reader) {
  RecurrentRequest r = ReadEstimate(reader, FeatureMap::kCosine);
  r.offsets = ReadOffsets(reader);
  int64_t last = 0;
  for (const int64_t offset : r.offsets) last = std::max(last, offset);
  const int64_t len = std::max<int64_t>({r.q.shape[2], r.k.shape[2], 1});
  r.options.period = reader.Count("period").value_or(last + len);
  return r;
}

RecurrentRequest ReadHgrn2(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader, "channel_log_decay");
  r.options.feature_map = FeatureMap::kComplement;
  r.options.log_decay = r.k;
  if (!r.options.scale) r.options.scale = 1.0;
  return r;
}

RecurrentRequest ReadRwkv6(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  r.options.log_decay = ReadPerChannel(reader, "channel_log_decay", r.k);
  const AnyTensor* bonus = reader.Input("bonus");
  if (bonus->rank != 2 || bonus->shape[0] != r.q.shape[1] || bonus->shape[1] != r.q.shape[3]) {
    Fail(ErrorCode::kShape, "bonus must have the shape [num_heads, head_dim], here [{}, {}]",
         {r.q.shape[1], r.q.shape[3]});
  }
  const TensorView<const float> view = reader.FloatTensor("bonus");
  r.options.bonus = {view.data, {1, view.shape[2], 1, view.shape[3]}, {0, view.strides[2], 0, 1}};
  if (!r.options.scale) r.options.scale = 1.0;
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
  r.options.feature_map = ReadChoice(reader, "qk_norm", kKeyNorms).value_or(FeatureMap::kUnit);
  r.options.beta = ReadPerToken(reader, "beta", r.k);
  if (reader.Takes("channel_log_decay")) {
    r.options.log_decay = ReadPerChannel(reader, "channel_log_decay", r.k);
  } else if (reader.Takes("log_decay")) {
    r.options.log_decay = ReadPerToken(reader, "log_decay", r.k);
  }
  return r;
}

RecurrentRequest ReadRwkv7(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  r.options.log_decay = ReadPerChannel(reader, "channel_log_decay", r.k);
  r.options.erase_key = ReadPerChannel(reader, "erase_key", r.k);
  r.options.erase_rate = ReadPerChannel(reader, "erase_rate", r.k);
  if (!r.options.scale) r.options.scale = 1.0;
  return r;
}

RecurrentRequest ReadLogLinear(const RequestReader& reader) {
  RecurrentRequest r = ReadCommon(reader);
  r.options.log_decay = ReadPerToken(reader, "log_decay", r.k);
  r.options.beta = ReadPerToken(reader, "beta", r.k);
  r.options.level_weights = reader.RequiredTensor("level_weights");
  r.offsets = ReadOffsets(reader);
  if (!r.options.scale) r.options.scale = 1.0;
  return r;
}

// [num_kv_heads, head_dim] values.
std::span<const float> ReadInnerNorm(const RequestReader& reader, const char* name,
                                     const TensorView<const float>& k) {
  const AnyTensor* given = reader.Input(name);
  if (given == nullptr) return {};
  if (given->rank != 2 || given->shape[0] != k.shape[1] || given->shape[1] != k.shape[3]) {
    Fail(ErrorCode::kShape, "{} must have the shape [num_kv_heads, head_dim], here [{}, {}]",
         {name, k.shape[1], k.shape[3]});
  }
  return reader.Floats(name);
}

RecurrentRequest ReadTttLinear(const RequestReader& reader) {
  RecurrentRequest r;
  ReadTensors(reader, "k", r);
  r.options.beta = ReadPerToken(reader, "beta", r.k);
  r.options.norm_weight = ReadInnerNorm(reader, "inner_norm_weight", r.k);
  r.options.norm_bias = ReadInnerNorm(reader, "inner_norm_bias", r.k);
  r.options.mini_batch = reader.Count("mini_batch").value_or(16);
  if (r.options.mini_batch < 1) {
    Fail(ErrorCode::kRange, "mini_batch = {}; it must be at least 1", {r.options.mini_batch});
  }
  if (const AnyTensor* rates = reader.Input("position_rate")) {
    if (rates->rank != 1 || rates->shape[0] != r.options.mini_batch) {
      Fail(ErrorCode::kShape, "position_rate must have the shape [mini_batch], here [{}]",
           {r.options.mini_batch});
    }
    r.options.position_rate = reader.Floats("position_rate");
  }
  r.offsets = ReadOffsets(reader);
  return r;
}

constexpr struct {
  std::string_view id;
  RecurrentRequest (*read)(const RequestReader&);
} kReaders[] = {{"linear", ReadLinearAttention},
                {"retention", ReadRetention},
                {"gated_linear", ReadGatedLinear},
                {"mamba2", ReadMamba2},
                {"delta_rule", ReadDeltaRule},
                {"gated_delta_rule", ReadDeltaRule},
                {"kimi_delta", ReadDeltaRule},
                {"performer", ReadPerformer},
                {"cosformer", ReadCosformer},
                {"based", ReadBased},
                {"lightning", ReadLightning},
                {"hgrn2", ReadHgrn2},
                {"rwkv6", ReadRwkv6},
                {"rwkv7", ReadRwkv7},
                {"log_linear", ReadLogLinear},
                {"ttt_linear", ReadTttLinear}};

std::vector<OutputSpec> Plan(const RecurrentRequest& r) {
  return ListOutputs(r, ValidateRecurrent(r.q, r.k, r.v, r.Options()));
}

void Run(const RecurrentRequest& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  RecurrentOutputs out;
  out.output = OutputView(outputs, "output");
  if (r.return_state) out.final_state = OutputView(outputs, "state");
  RecurrentOptions options = r.Options();
  ScratchVector<float> drawn;
  const TensorView<const float>& directions = options.projection;
  const int64_t features = directions.shape[2], dim = directions.shape[3];
  if (r.seed) {
    ValidateRecurrent(r.q, r.k, r.v, options);
    drawn.resize(static_cast<size_t>(features * dim));
    if (DryRun::Current() == nullptr)
      DrawRandomFeatures(*r.seed, MatrixView(drawn.data(), features, dim));
    options.projection = MatrixView<const float>(drawn.data(), features, dim);
  }
  if (r.return_projection && DryRun::Current() == nullptr) {
    const TensorView<float> to = OutputView(outputs, "projection");
    for (int64_t f = 0; f < features; ++f) {
      for (int64_t c = 0; c < dim; ++c) to(f, c, 0, 0) = options.projection(0, 0, f, c);
    }
  }
  RecurrentAttention(r.q, r.k, r.v, options, out, pool);
}

}  // namespace

std::vector<OutputSpec> ListOutputs(const RecurrentRequest& r, const RecurrentProblem& p) {
  std::vector<OutputSpec> specs;
  specs.push_back({"output", 4, {p.batch, p.num_heads, p.q_len, p.head_dim_v}});
  if (r.return_state) specs.push_back({"state", 4, StateShape(p)});
  if (r.return_projection) specs.push_back({"projection", 2, {p.feature_dim, p.head_dim}});
  return specs;
}

std::optional<RecurrentRequest> ReadRecurrentRequest(const Request& request) {
  for (const auto& [id, read] : kReaders) {
    if (id == request.id) return read(RequestReader(*FindMechanism(request.id), request));
  }
  return std::nullopt;
}

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
HEED_RECURRENT(Performer)
HEED_RECURRENT(Cosformer)
HEED_RECURRENT(Based)
HEED_RECURRENT(Lightning)
HEED_RECURRENT(Hgrn2)
HEED_RECURRENT(Rwkv6)
HEED_RECURRENT(Rwkv7)
HEED_RECURRENT(LogLinear)
HEED_RECURRENT(TttLinear)

#undef HEED_RECURRENT

}  // namespace heed
