#include "attention_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <sstream>

#include "gtest/gtest.h"
#include "pattern_request.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr const char* kKernelNames[] = {"gaussian", "boxcar", "triangular", "epanechnikov",
                                        "constant"};

constexpr const char* kNormalizeNames[] = {
    "softmax", "kernel_sum", "softmax1",  "sigmoid",  "relu",           "relu_squared", "average",
    "hard",    "top_k",      "sparsemax", "entmax15", "stick_breaking", "cope"};

template <typename T>
AnyTensor Vector(const std::vector<T>& values, DType dtype) {
  const int64_t count = static_cast<int64_t>(values.size());
  return {dtype, const_cast<T*>(values.data()), 1, {count}, {1}};
}

AnyTensor Lengths(const AttentionCase& c) {
  AnyTensor tensor = Vector(c.key_lengths, DType::kInt32);
  if (static_cast<int64_t>(c.key_lengths.size()) == c.sizes.batch) return tensor;
  tensor.rank = 2;
  tensor.shape = {c.sizes.batch, c.sizes.q_len};
  tensor.strides = {c.sizes.q_len, 1};
  return tensor;
}

constexpr const char* kScoreNames[] = {"dot", "squared_distance", "cosine", "bilinear", "additive"};

// Where the options keep a tensor: as a list or as a view.
std::span<const float> AttentionOptions::*SpanOf(const std::string& name) {
  if (name == "temperature") return &AttentionOptions::temperature;
  if (name == "score_bias") return &AttentionOptions::score_bias;
  return nullptr;
}
TensorView<const float> AttentionOptions::*ViewOf(const std::string& name) {
  if (name == "cope_table") return &AttentionOptions::cope_table;
  if (name == "score_matrix") return &AttentionOptions::score_matrix;
  if (name == "query_weight") return &AttentionOptions::query_weight;
  if (name == "key_weight") return &AttentionOptions::key_weight;
  if (name == "score_vector") return &AttentionOptions::score_vector;
  if (name == "relative_keys") return &AttentionOptions::relative_keys;
  if (name == "relative_queries") return &AttentionOptions::relative_queries;
  if (name == "relative_values") return &AttentionOptions::relative_values;
  if (name == "content_bias") return &AttentionOptions::content_bias;
  if (name == "position_bias") return &AttentionOptions::position_bias;
  if (name == "distance_bias") return &AttentionOptions::distance_bias;
  if (name == "bucket_bias") return &AttentionOptions::bucket_bias;
  if (name == "log_gates") return &AttentionOptions::log_gates;
  throw Error(ErrorCode::kOption, "no option is called " + name);
}

// Gates [1, batch, heads, kv_len] as the options take them, [batch, heads, 1, kv_len].
TensorView<const float> GateView(const TensorView<const float>& view) {
  return {view.data,
          {view.shape[1], view.shape[2], 1, view.shape[3]},
          {view.strides[1], view.strides[2], 0, view.strides[3]}};
}

constexpr const char* kRowNames[] = {"clip", "span", "log_span"};

void AddDistanceParams(const AttentionCase& c, Request& request) {
  const AttentionOptions& o = c.scalars;
  const auto has = [&](const char* name) { return c.tensors.count(name) > 0; };
  if (has("relative_keys") || has("relative_queries") || has("relative_values")) {
    request.params.push_back({"relative_rows", kRowNames[static_cast<int>(o.relative_rows)]});
    if (o.relative_rows == RelativeRows::kLogSpan) {
      request.params.push_back(
          {"relative_max_distance", static_cast<double>(o.relative_max_distance)});
    }
  }
  if (!has("bucket_bias")) return;
  const bool both = o.bucket_direction == T5Direction::kBidirectional;
  request.params.push_back({"bucket_direction", std::string(both ? "bidirectional" : "causal")});
  request.params.push_back({"bucket_max_distance", static_cast<double>(o.bucket_max_distance)});
}

// The last `rank` extents.
AnyTensor LastExtents(const NamedBuffer& named) {
  AnyTensor tensor = named.buffer.any(DType::kFloat32, named.rank);
  const size_t rank = static_cast<size_t>(named.rank);
  const AnyTensor all = tensor;
  for (size_t axis = 0; axis < rank; ++axis) {
    tensor.shape[axis] = all.shape[4 - rank + axis];
    tensor.strides[axis] = all.strides[4 - rank + axis];
  }
  return tensor;
}

void AddInputs(const AttentionCase& c, Request& request) {
  request.inputs = {{"q", c.q.any(DType::kFloat32)},
                    {"k", c.k.any(DType::kFloat32)},
                    {"v", c.v.any(DType::kFloat32)}};
  if (c.bias.has_value()) request.inputs.push_back({"bias", c.bias.any(DType::kFloat32)});
  if (c.keep.has_value()) request.inputs.push_back({"keep", c.keep.any(DType::kUint8)});
  if (!c.key_lengths.empty()) request.inputs.push_back({"key_lengths", Lengths(c)});
  for (const auto& [name, named] : c.tensors) {
    request.inputs.push_back({name, LastExtents(named)});
  }
  for (const auto& [name, values] : {std::pair{"alibi_slopes", &c.alibi_slopes},
                                     std::pair{"sinks", &c.sinks}, std::pair{"width", &c.width}}) {
    if (!values->empty()) request.inputs.push_back({name, Vector(*values, DType::kFloat32)});
  }
}

void AddOffset(const QueryOffset& offset, Request& request) {
  switch (offset.kind()) {
    case QueryOffset::Kind::kUnset:
      return;
    case QueryOffset::Kind::kNumber:
      request.params.push_back({"query_offset", static_cast<double>(offset.positions()[0])});
      return;
    case QueryOffset::Kind::kPerBatch:
      request.params.push_back({"query_offset", std::vector<double>(offset.positions().begin(),
                                                                    offset.positions().end())});
      return;
    case QueryOffset::Kind::kEnd:
      request.params.push_back({"query_offset", std::string("end")});
  }
}

// The parameters of the normaliser and of dropout.
void AddNormalize(const AttentionOptions& o, Request& request) {
  if (o.normalize == Normalize::kTopK) {
    request.params.push_back({"top_k", static_cast<double>(o.top_k)});
  }
  if (o.normalize == Normalize::kSigmoid && o.sigmoid_bias) {
    request.params.push_back({"sigmoid_bias", *o.sigmoid_bias});
  }
  if (o.normalize == Normalize::kRelu || o.normalize == Normalize::kReluSquared) {
    request.params.push_back({"length_power", o.length_power});
  }
  if (o.dropout.p > 0) {
    request.params.push_back({"dropout_p", o.dropout.p});
    request.params.push_back({"dropout_seed", std::to_string(o.dropout.seed)});
  }
}

void DescribeShape(std::ostream& out, const char* name, const Extents& shape) {
  out << ", " << name << " [" << shape[0] << "," << shape[1] << "," << shape[2] << "," << shape[3]
      << "]";
}

}  // namespace

AttentionOptions AttentionCase::options() const {
  AttentionOptions o = scalars;
  if (bias.has_value()) o.bias = bias.view();
  if (keep.has_value()) o.keep = keep.view();
  o.alibi_slopes = alibi_slopes;
  o.sinks = sinks;
  o.width = width;
  o.key_lengths = key_lengths;
  for (const auto& [name, named] : tensors) {
    if (const auto span = SpanOf(name)) {
      o.*span = {named.buffer.view().data, static_cast<size_t>(named.buffer.size())};
    } else {
      o.*ViewOf(name) = name == "log_gates" ? GateView(named.buffer.view()) : named.buffer.view();
    }
  }
  o.prefix_lengths = prefix_lengths;
  o.query_documents = query_documents;
  o.key_documents = key_documents;
  for (KeepPattern& pattern : o.patterns) {
    if (auto* rule = std::get_if<Longformer>(&pattern)) {
      rule->global_tokens.assign(global_tokens.begin(), global_tokens.end());
    }
  }
  AppendLists(lists, o.patterns);
  if (!score_mod.empty()) {
    o.score_mod = CompileExpression("score_mod", score_mod, ExpressionValue::kScore);
  }
  if (!prob_mod.empty()) {
    o.prob_mod = CompileExpression("prob_mod", prob_mod, ExpressionValue::kProb);
  }
  return o;
}

void AttentionCase::AddTensor(const std::string& name, std::vector<int64_t> shape, Random& random,
                              double size, Layout layout) {
  Extents extents = {1, 1, 1, 1};
  std::copy(shape.begin(), shape.end(), extents.end() - static_cast<ptrdiff_t>(shape.size()));
  NamedBuffer& named = tensors[name];
  named.rank = static_cast<int>(shape.size());
  named.buffer = Buffer<float>(extents, layout, kNan);
  named.buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) {
    x = static_cast<float>(size) * random.Normal();
  });
}

Request AttentionCase::request() const {
  Request request;
  const bool kernel_sum = scalars.normalize == Normalize::kKernelSum;
  const bool dot = scalars.score == Score::kDot && tensors.empty();
  const bool softmax = scalars.normalize == Normalize::kSoftmax;
  request.id = kernel_sum       ? "kernel_regression"
               : dot && softmax ? "scaled_dot_product"
                                : "attention";
  AddInputs(*this, request);
  if (HasPatterns(*this)) {
    request.id = "attention";
    AddPatterns(*this, request);
    if (kernel_sum) {
      request.params.push_back({"score", std::string("squared_distance")});
      request.params.push_back({"normalize", std::string("kernel_sum")});
    }
  }
  AddOffset(scalars.query_offset, request);
  AddNormalize(scalars, request);
  if (kernel_sum) {
    request.params.push_back({"kernel", kKernelNames[static_cast<int>(scalars.kernel)]});
  } else if (request.id == "attention") {
    request.params.push_back({"score", kScoreNames[static_cast<int>(scalars.score)]});
    request.params.push_back({"normalize", NormalizeName(scalars.normalize)});
  }
  AddDistanceParams(*this, request);
  if (scalars.min_temperature) {
    request.params.push_back({"min_temperature", *scalars.min_temperature});
  }
  if (!score_mod.empty()) request.params.push_back({"score_mod", score_mod});
  if (!prob_mod.empty()) request.params.push_back({"prob_mod", prob_mod});
  if (scalars.scale) request.params.push_back({"scale", *scalars.scale});
  if (scalars.softcap) request.params.push_back({"softcap", *scalars.softcap});
  if (scalars.causal) request.params.push_back({"causal", true});
  if (scalars.window && scalars.window->left) {
    request.params.push_back({"window_left", static_cast<double>(*scalars.window->left)});
  }
  if (scalars.window && scalars.window->right) {
    request.params.push_back({"window_right", static_cast<double>(*scalars.window->right)});
  }
  return request;
}

int64_t AttentionCase::Position(int64_t b, int64_t i) const {
  const QueryOffset& offset = scalars.query_offset;
  const size_t n = static_cast<size_t>(b);
  switch (offset.kind()) {
    case QueryOffset::Kind::kUnset:
      return i;
    case QueryOffset::Kind::kNumber:
      return i + offset.positions()[0];
    case QueryOffset::Kind::kPerBatch:
      return i + offset.positions()[n];
    case QueryOffset::Kind::kEnd:
      return i + (key_lengths.empty() ? sizes.kv_len : key_lengths[n]) - sizes.q_len;
  }
  return i;
}

std::string AttentionCase::Describe() const {
  std::ostringstream out;
  out << "batch " << sizes.batch << ", heads " << sizes.num_heads << "/" << sizes.num_kv_heads
      << ", len " << sizes.q_len << "x" << sizes.kv_len << ", dim " << sizes.head_dim << "/"
      << sizes.head_dim_v;
  for (const NamedParam& param : request().params) {
    out << ", " << param.name << " ";
    if (const auto* number = std::get_if<double>(&param.value)) out << *number;
    if (const auto* word = std::get_if<std::string>(&param.value)) out << *word;
    if (const auto* flag = std::get_if<bool>(&param.value)) out << *flag;
    if (const auto* list = std::get_if<std::vector<double>>(&param.value)) {
      for (const double number : *list) out << number << " ";
    }
  }
  if (bias.has_value()) DescribeShape(out, "bias", bias.shape());
  if (keep.has_value()) DescribeShape(out, "keep", keep.shape());
  if (!alibi_slopes.empty()) out << ", alibi";
  if (!sinks.empty()) out << ", sinks";
  if (!width.empty()) out << ", " << width.size() << " width";
  for (const auto& [name, named] : tensors) DescribeShape(out, name.c_str(), named.buffer.shape());
  if (!prefix_lengths.empty()) out << ", prefix_lengths";
  if (!query_documents.empty()) out << ", documents";
  if (lists.block_keep.has_value()) DescribeShape(out, "block_keep", lists.block_keep.shape());
  if (!lists.block_indptr.empty()) out << ", " << lists.block_indices.size() << " blocks";
  if (lists.pairs) out << ", " << lists.pairs->size() / 2 << " pairs";
  if (!key_lengths.empty()) {
    out << ", key_lengths";
    for (size_t n = 0; n < key_lengths.size() && n < 8; ++n) out << " " << key_lengths[n];
  }
  return out.str();
}

AttentionCase MakeCase(const Sizes& sizes, uint64_t seed, Layout layout) {
  const auto [batch, num_heads, num_kv_heads, q_len, kv_len, head_dim, head_dim_v] = sizes;
  AttentionCase c;
  c.sizes = sizes;
  c.q = Buffer<float>({batch, num_heads, q_len, head_dim}, layout, kNan);
  c.k = Buffer<float>({batch, num_kv_heads, kv_len, head_dim}, layout, kNan);
  c.v = Buffer<float>({batch, num_kv_heads, kv_len, head_dim_v}, layout, kNan);
  Random random(seed);
  for (Buffer<float>* buffer : {&c.q, &c.k, &c.v}) {
    buffer->ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
  }
  return c;
}

Buffer<float> MakeBias(const Extents& shape, Random& random, double hidden, Layout layout) {
  Buffer<float> bias(shape, layout, kNan);
  bias.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) {
    x = random.Normal();
    if (random.Chance(hidden)) x = -std::numeric_limits<float>::infinity();
  });
  return bias;
}

Buffer<uint8_t> MakeKeep(const Extents& shape, Random& random, double kept, Layout layout) {
  Buffer<uint8_t> keep(shape, layout, 0);
  keep.ForEach([&](int64_t, int64_t, int64_t, int64_t, uint8_t& x) {
    // Any nonzero byte means true.
    x = random.Chance(kept) ? static_cast<uint8_t>(random.Integer(1, 255)) : 0;
  });
  return keep;
}

void AddCopeTable(AttentionCase& c, int64_t heads, int64_t num_positions, Random& random) {
  const double size = 1 / std::sqrt(static_cast<double>(c.sizes.head_dim));
  std::vector<int64_t> shape = {num_positions, c.sizes.head_dim};
  if (heads > 1) shape.insert(shape.begin(), heads);
  c.AddTensor("cope_table", shape, random, size, Layout::kPadded);
}

void MakeScoresExact(AttentionCase& c) {
  const auto round = [](Buffer<float>& buffer) {
    buffer.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = std::round(4 * x) / 4; });
  };
  round(c.q);
  round(c.k);
  if (c.bias.has_value()) round(c.bias);
  for (float& slope : c.alibi_slopes) slope = std::round(64 * slope) / 64;
  c.scalars.softcap.reset();
  c.scalars.scale = 0.25;
}

const char* NormalizeName(Normalize normalize) {
  return kNormalizeNames[static_cast<int>(normalize)];
}

bool HasLse(const AttentionCase& c) {
  switch (c.scalars.normalize) {
    case Normalize::kSoftmax:
    case Normalize::kSoftmax1:
    case Normalize::kTopK:
    case Normalize::kCope:
      return true;
    case Normalize::kKernelSum:
      return c.scalars.kernel == Kernel::kGaussian;
    default:
      return false;
  }
}

Results RunAttention(const AttentionCase& c, const Asked& asked, ThreadPool* pool) {
  const auto [batch, num_heads, num_kv_heads, q_len, kv_len, head_dim, head_dim_v] = c.sizes;
  Results r;
  AttentionOutputs outputs;
  r.output = Buffer<float>({batch, num_heads, q_len, head_dim_v}, c.output_layout, kNan);
  outputs.output = r.output.view();
  if (asked.lse) {
    r.lse = Buffer<float>({batch, num_heads, q_len, 1}, c.output_layout, kNan);
    outputs.lse = r.lse.view();
  }
  if (asked.weights) {
    r.weights = Buffer<float>({batch, num_heads, q_len, kv_len}, c.output_layout, kNan);
    outputs.weights = r.weights.view();
  }
  if (asked.scores) {
    r.scores = Buffer<float>({batch, num_heads, q_len, kv_len}, c.output_layout, kNan);
    outputs.scores = r.scores.view();
    outputs.score_stage = *asked.scores;
  }
  Attention(c.q.view(), c.k.view(), c.v.view(), c.options(), outputs, pool);
  for (const Buffer<float>* buffer : {&r.output, &r.lse, &r.weights, &r.scores}) {
    EXPECT_TRUE(!buffer->has_value() || buffer->GapsAreUntouched()) << c.Describe();
  }
  return r;
}

std::vector<uint32_t> Bits(const Buffer<float>& buffer) {
  std::vector<uint32_t> bits;
  for (const float x : buffer.Elements()) bits.push_back(std::bit_cast<uint32_t>(x));
  return bits;
}

}  // namespace heed::testing
