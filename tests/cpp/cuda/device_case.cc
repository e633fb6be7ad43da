#include "device_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "quantised_buffer.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

// What the products, the output and the scores of a type add to the bound of float32.
struct TypeBound {
  double products = 0;
  double rounding = 0;
  double scores = 0;
};

TypeBound BoundOf(DType dtype) {
  if (dtype == DType::kFloat16) return {cuda::kFloat16Products, kFloat16Rounding};
  if (dtype == DType::kBFloat16) return {cuda::kBFloat16Products, kBFloat16Rounding};
  return {};
}

TypeBound Float8Bound(const AttentionCase& c, const DeviceChoices& choices) {
  TypeBound bound = {.products = cuda::kBFloat16Products};
  if (choices.on_hopper) {
    bound.products = cuda::kFloat8Products;
    bound.scores = cuda::kFloat8Scores;
  }
  if (choices.exact_weights) bound = {};
  if (choices.on_hopper) {
    bound.products += cuda::kFloat8Lost * static_cast<double>(c.sizes.kv_len);
    // Tensor cores keep 13 bits behind the leading one of a sum: each of the 32 products that they
    // add to it may lose the others. Of exact weights nothing else hides that.
    const double added = static_cast<double>(std::min<int64_t>(c.sizes.kv_len, 32));
    if (choices.exact_weights) bound.products += added * 0x1p-13;
  }
  bound.rounding = BoundOf(choices.output).rounding;
  return bound;
}

// Runs a call that has its tensors; `dtype` is that of the output.
Results RunTensors(const AttentionCase& c, DType dtype, const DeviceChoices& choices,
                   DeviceCall call) {
  const Extents shape = {c.sizes.batch, c.sizes.num_heads, c.sizes.q_len, c.sizes.head_dim_v};
  Buffer<float> blank(shape, c.output_layout, std::nanf(""));
  StoredBuffer output(blank, dtype, c.output_layout);
  Results results;
  call.options = c.options();
  call.outputs.stored_output = output.output();
  if (HasLse(c)) {
    results.lse = Buffer<float>({shape[0], shape[1], shape[2], 1}, c.output_layout, std::nanf(""));
    call.outputs.lse = results.lse.view();
  }
  if (choices.pairs) {
    const Extents pairs = {shape[0], shape[1], shape[2], c.sizes.kv_len};
    results.weights = Buffer<float>(pairs, c.output_layout, std::nanf(""));
    results.scores = Buffer<float>(pairs, c.output_layout, std::nanf(""));
    call.outputs.weights = results.weights.view();
    call.outputs.scores = results.scores.view();
  }
  call.processors = choices.processors;
  call.block_order = choices.block_order;
  call.merges_apart = choices.merges_apart;
  call.must_merge = choices.must_merge;
  call.on_hopper = choices.on_hopper;
  EXPECT_EQ(RunOnDevice(call), "") << c.Describe();
  EXPECT_TRUE(output.GapsAreUntouched()) << c.Describe();
  EXPECT_TRUE(!results.lse.has_value() || results.lse.GapsAreUntouched()) << c.Describe();
  results.output = output.Widened();
  return results;
}

Results RunFloat8(AttentionCase& c, const DeviceChoices& choices) {
  const auto quantised = [&](Buffer<float>& from, int64_t heads) {
    return QuantisedBuffer(from, DType::kFloat8E4M3, heads, 1, choices.layout);
  };
  const int64_t heads = c.sizes.num_kv_heads;
  const QuantisedBuffer q = quantised(c.q, heads), k = quantised(c.k, heads),
                        v = quantised(c.v, heads);
  DeviceCall call;
  call.q = q.view(), call.k = k.view(), call.v = v.view();
  call.q_scales = q.scales.view(), call.k_scales = k.scales.view();
  call.v_scales = v.scales.view();
  return RunTensors(c, choices.output, choices, call);
}

}  // namespace

Results RunDevice(AttentionCase& c, DType dtype, const DeviceChoices& choices) {
  if (dtype == DType::kFloat8E4M3) return RunFloat8(c, choices);
  const StoredBuffer q(c.q, dtype, choices.layout), k(c.k, dtype, choices.layout),
      v(c.v, dtype, choices.layout);
  DeviceCall call;
  call.q = q.view(), call.k = k.view(), call.v = v.view();
  return RunTensors(c, dtype, choices, call);
}

void ExpectWithinDeviceBounds(const AttentionCase& c, DType dtype, const Results& results,
                              const DeviceChoices& choices) {
  const Values expected = RunOracle(c);
  const std::vector<RowBound> rows = RowBounds(c, expected);
  const TypeBound type = dtype == DType::kFloat8E4M3 ? Float8Bound(c, choices) : BoundOf(dtype);
  const std::vector<double>& output = expected.at("output");
  const size_t width = static_cast<size_t>(c.sizes.head_dim_v);
  std::vector<double> bounds;
  for (size_t n = 0; n < output.size(); ++n) {
    const RowBound& row = rows[n / width];
    const double size = std::isfinite(output[n]) ? std::abs(output[n]) : 0;
    const double products = type.products + 2 * type.scores * row.max_logit;
    bounds.push_back(row.Output() + products * row.condition * row.max_v + type.rounding * size +
                     (type.rounding > 0 ? 0x1p-25 : 0));
  }
  const std::string text = std::string(" of ") + DTypeName(dtype) + " " + c.Describe();
  ExpectWithin(results.output.Elements(), output, bounds, "output" + text);
  for (const auto& [name, pairs] :
       {std::pair{"weights", &results.weights}, std::pair{"scores", &results.scores}}) {
    if (!pairs->has_value()) continue;
    std::vector<double> pair_bounds;
    for (const RowBound& row : rows) {
      const bool weights = pairs == &results.weights;
      pair_bounds.insert(pair_bounds.end(), static_cast<size_t>(c.sizes.kv_len),
                         weights ? row.Weight() : row.Score());
    }
    EXPECT_TRUE(pairs->GapsAreUntouched());
    ExpectWithin(pairs->Elements(), expected.at(name), pair_bounds, name + text);
  }
  if (!results.lse.has_value()) return;
  const std::vector<double>& lse = expected.at("lse");
  std::vector<double> lse_bounds;
  for (size_t r = 0; r < rows.size(); ++r) {
    lse_bounds.push_back(rows[r].Lse(lse[r]) + type.scores * rows[r].max_logit);
  }
  ExpectWithin(results.lse.Elements(), lse, lse_bounds, "lse" + text);
}

void ExpectDeviceMatches(AttentionCase c, DType dtype, const DeviceChoices& choices) {
  const Results results = RunDevice(c, dtype, choices);
  ExpectWithinDeviceBounds(c, dtype, results, choices);
}

}  // namespace heed::testing
