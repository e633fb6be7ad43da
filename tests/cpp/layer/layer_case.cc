#include "layer_case.h"

#include <algorithm>
#include <cmath>

#include "attention_accuracy.h"
#include "gtest/gtest.h"
#include "heed/layers.h"

namespace heed::testing {
namespace {

// The largest finite projected value of any key, the extra one included.
double LargestValue(const LayerCase& c) {
  const Floats& x = c.tensors.at("value");
  const Floats& w = c.tensors.at("w_v");
  const auto b = c.tensors.find("b_v");
  const size_t dim = static_cast<size_t>(x.shape.back());
  double largest = 0;
  for (size_t row = 0; row < x.values.size() / dim; ++row) {
    for (size_t o = 0; o < w.values.size() / dim; ++o) {
      double sum = b == c.tensors.end() ? 0 : b->second.values[o];
      for (size_t d = 0; d < dim; ++d) {
        sum += static_cast<double>(x.values[row * dim + d]) * w.values[o * dim + d];
      }
      if (std::isfinite(sum)) largest = std::max(largest, std::abs(sum));
    }
  }
  const auto extra = c.tensors.find("bias_v");
  if (extra == c.tensors.end()) return largest;
  for (const float v : extra->second.values) largest = std::max<double>(largest, std::abs(v));
  return largest;
}

// The bound of each output column.
std::vector<double> OutputBounds(const LayerCase& c) {
  const double largest = LargestValue(c);
  const size_t width = static_cast<size_t>(c.sizes.num_heads * c.sizes.head_dim_v);
  const auto w_o = c.tensors.find("w_o");
  const auto b_o = c.tensors.find("b_o");
  if (w_o == c.tensors.end()) return std::vector<double>(width, kMultiHeadMaxError * largest);
  std::vector<double> bounds;
  for (size_t o = 0; o < w_o->second.values.size() / width; ++o) {
    double sum = b_o == c.tensors.end() ? 0 : std::abs(b_o->second.values[o]);
    for (size_t n = 0; n < width; ++n) {
      sum += largest * std::abs(w_o->second.values[o * width + n]);
    }
    bounds.push_back(kMultiHeadMaxError * sum);
  }
  return bounds;
}

}  // namespace

Floats DrawFloats(Random& random, const std::vector<int64_t>& shape, double deviation) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  Floats tensor = {shape, {}};
  for (int64_t n = 0; n < count; ++n) {
    tensor.values.push_back(static_cast<float>(deviation) * random.Normal());
  }
  return tensor;
}

RequestBuilder LayerCase::Build() const {
  RequestBuilder builder(id);
  for (const auto& [name, tensor] : tensors) builder.Floats(name, tensor.shape, tensor.values);
  if (!keep.empty()) builder.Bytes("keep", {sizes.q_len, sizes.kv_len}, keep);
  if (!key_lengths.empty()) builder.Integers("key_lengths", {sizes.batch}, key_lengths);
  for (const auto& [name, value] : params) builder.Param(name, value);
  return builder;
}

LayerCase MakeLayerCase(const std::string& id, const LayerSizes& s, uint64_t seed) {
  LayerCase c = {id, s, {}, {}, {}, {}};
  Random random(seed);
  const auto draw = [&](const std::string& name, const std::vector<int64_t>& shape) {
    const bool weight = name.starts_with("w_");
    int64_t fan_in = weight ? shape.back() : 1;
    if (name == "w_o") fan_in = s.num_heads * s.head_dim_v;
    c.tensors[name] = DrawFloats(random, shape, 1 / std::sqrt(static_cast<double>(fan_in)));
  };
  draw("query", {s.batch, s.q_len, s.embed_dim});
  draw("key", {s.batch, s.kv_len, s.kdim});
  draw("value", {s.batch, s.kv_len, s.vdim});
  draw("w_q", {s.num_heads, s.head_dim, s.embed_dim});
  draw("b_q", {s.num_heads, s.head_dim});
  const int64_t num_kv_heads = id == "multi_query" ? 1 : s.num_kv_heads;
  draw("w_k", {num_kv_heads, s.head_dim, s.kdim});
  draw("w_v", {num_kv_heads, s.head_dim_v, s.vdim});
  draw("b_k", {num_kv_heads, s.head_dim});
  draw("b_v", {num_kv_heads, s.head_dim_v});
  draw("w_o", {s.out_dim, s.num_heads, s.head_dim_v});
  draw("b_o", {s.out_dim});
  return c;
}

void ExpectLayerMatchesReference(const LayerCase& c) {
  const RequestBuilder builder = c.Build();
  const Values expected = RunOracle(builder.request());
  const Values actual = RunByName(builder.request());
  const std::vector<double> columns = OutputBounds(c);
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.count(name)) << name;
    const std::vector<double>& got = actual.at(name);
    std::vector<double> bounds;
    for (size_t n = 0; n < values.size(); ++n) {
      bounds.push_back(name == "output" ? columns[n % columns.size()]
                       : name == "lse"  ? kMultiHeadMaxError * std::max(1.0, std::abs(values[n]))
                                        : kMultiHeadMaxError);
    }
    ExpectWithin(std::vector<float>(got.begin(), got.end()), values, bounds, c.id + " " + name);
  }
}

AnyTensor StateTensor(std::vector<float>& values, const std::vector<int64_t>& shape) {
  return ContiguousTensor(DType::kFloat32, values.data(), shape);
}

}  // namespace heed::testing
