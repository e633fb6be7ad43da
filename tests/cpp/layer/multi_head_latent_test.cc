// Multi-head latent attention: both forms against the reference and each other, hand-computed
// numbers, its limit, and decoding from a cache of latent rows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/latent.h"
#include "heed/registry.h"
#include "layer_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kBatch = 2, kLen = 45, kDim = 32, kHeads = 4;

class MultiHeadLatentLayer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(MultiHeadLatentLayer);

LayerCase MakeLatent(int64_t rope_dim = 6) {
  LayerCase c = {
      "multi_head_latent", {.batch = kBatch, .q_len = kLen, .kv_len = kLen}, {}, {}, {}, {}};
  Random random(1);
  const auto draw = [&](const std::string& name, const std::vector<int64_t>& shape) {
    const double fan_in = static_cast<double>(name == "w_o" ? kHeads * 9 : shape.back());
    c.tensors[name] = DrawFloats(random, shape, 1 / std::sqrt(fan_in));
  };
  c.tensors["x"] = DrawFloats(random, {kBatch, kLen, kDim}, 1);
  draw("w_dq", {20, kDim});
  draw("w_uq", {kHeads, 8, 20});
  draw("w_qr", {kHeads, rope_dim, 20});
  draw("w_dkv", {12, kDim});
  draw("w_kr", {rope_dim, kDim});
  draw("w_uk", {kHeads, 8, 12});
  draw("w_uv", {kHeads, 9, 12});
  draw("w_o", {kDim, kHeads, 9});
  return c;
}

void ExpectLatentMatchesReference(const LayerCase& c) {
  const RequestBuilder builder = c.Build();
  const Values expected = RunOracle(builder.request());
  const Values actual = RunByName(builder.request());
  for (const auto& [name, values] : expected) {
    double largest = 1;
    for (const double x : values) {
      if (std::isfinite(x) && name != "weights") largest = std::max(largest, std::abs(x));
    }
    const std::vector<double>& got = actual.at(name);
    ExpectWithin(std::vector<float>(got.begin(), got.end()), values,
                 std::vector<double>(values.size(), kLatentMaxError * largest), name);
  }
}

TEST_P(MultiHeadLatentLayer, BothFormsMatchReference) {
  for (const char* form : {"naive", "absorbed"}) {
    for (const char* rope : {"none", "half", "interleaved"}) {
      LayerCase c = MakeLatent();
      c.params["form"] = std::string(form);
      c.params["rope"] = std::string(rope);
      c.params["return_weights"] = true;
      c.params["return_lse"] = true;
      ExpectLatentMatchesReference(c);
      Random random(2);
      c.tensors["norm_q_weight"] = DrawFloats(random, {20}, 1);
      c.tensors["norm_kv_weight"] = DrawFloats(random, {12}, 1);
      c.tensors["alibi_slopes"] = {{kHeads}, {0.5f, 0.25f, 0.125f, 0.0625f}};
      c.key_lengths = {kLen, 7};
      c.params["causal"] = true;
      c.params["softcap"] = 3.0;
      c.params["rope_base"] = 100.0;
      ExpectLatentMatchesReference(c);
    }
  }
}

TEST_P(MultiHeadLatentLayer, StretchedContextsAndUncompressedQueriesMatchReference) {
  for (const char* form : {"naive", "absorbed"}) {
    for (const char* scaling : {"linear", "dynamic_ntk", "yarn", "llama3"}) {
      LayerCase c = MakeLatent();
      c.params = {{"form", std::string(form)}, {"rope", std::string("interleaved")}};
      c.params["scaling"] = std::string(scaling);
      c.params["scaling_factor"] = 8.0;
      c.params["rope_base"] = 100.0;
      if (std::string_view(scaling) != "linear") c.params["original_len"] = 20.0;
      if (std::string_view(scaling) == "yarn") c.params["attention_factor"] = 0.7;
      ExpectLatentMatchesReference(c);
      Random random(6);
      c.tensors.erase("w_dq");
      c.tensors["w_uq"] = DrawFloats(random, {kHeads, 8, kDim}, 0.2);
      c.tensors["w_qr"] = DrawFloats(random, {kHeads, 6, kDim}, 0.2);
      ExpectLatentMatchesReference(c);
    }
  }
}

// One head, one number everywhere: latent rows 0 and ln 3, keys alike, queries 1 and 1; scale 1 /
// sqrt(1 + 1) is overridden. Weights 1/4, 3/4; values are the latent rows times 4.
TEST_P(MultiHeadLatentLayer, GivesHandComputedNumbers) {
  const float log3 = static_cast<float>(std::log(3.0));
  for (const char* form : {"naive", "absorbed"}) {
    RequestBuilder builder("multi_head_latent");
    builder.Floats("x", {1, 2, 2}, {1, 0, 1, log3})
        .Floats("w_dq", {1, 2}, {1, 0})
        .Floats("w_uq", {1, 1, 1}, {1})
        .Floats("w_qr", {1, 1, 1}, {5})
        .Floats("w_dkv", {1, 2}, {0, 1})
        .Floats("w_kr", {1, 2}, {1, 0})
        .Floats("w_uk", {1, 1, 1}, {1})
        .Floats("w_uv", {1, 1, 1}, {4})
        .Floats("w_o", {2, 1, 1}, {1, -1})
        .Param("scale", 1.0)
        .Param("form", form);
    const std::vector<double> output = RunByName(builder.request()).at("output");
    for (size_t n = 0; n < 4; ++n) {
      EXPECT_NEAR(output[n], (n % 2 == 0 ? 3 : -3) * std::log(3.0), 1e-5) << form;
    }
  }
}

// With w_uk and w_uv of full rank and no position part it is multi-head attention.
TEST_P(MultiHeadLatentLayer, ReducesToMultiHeadWithIdentityCompression) {
  LayerCase c = MakeLatent(1);
  Random random(5);
  std::vector<float> identity(kDim * kDim);
  for (size_t i = 0; i < kDim; ++i) identity[i * (kDim + 1)] = 1;
  c.tensors["w_dq"] = c.tensors["w_dkv"] = {{kDim, kDim}, identity};
  c.tensors["w_uq"] = DrawFloats(random, {kHeads, 8, kDim}, 0.2);
  c.tensors["w_uk"] = DrawFloats(random, {kHeads, 8, kDim}, 0.2);
  c.tensors["w_uv"] = DrawFloats(random, {kHeads, 9, kDim}, 0.2);
  c.tensors["w_qr"] = {{kHeads, 1, kDim}, std::vector<float>(kHeads * kDim)};
  c.params["scale"] = 1 / std::sqrt(8.0);
  RequestBuilder plain("multi_head");
  for (const char* name : {"query", "key", "value"}) {
    plain.Floats(name, c.tensors["x"].shape, c.tensors["x"].values);
  }
  plain.Floats("w_q", {kHeads, 8, kDim}, c.tensors["w_uq"].values)
      .Floats("w_k", {kHeads, 8, kDim}, c.tensors["w_uk"].values)
      .Floats("w_v", {kHeads, 9, kDim}, c.tensors["w_uv"].values)
      .Floats("w_o", {kDim, kHeads, 9}, c.tensors["w_o"].values);
  const std::vector<double> expected = RunByName(plain.request()).at("output");
  for (const char* form : {"naive", "absorbed"}) {
    c.params["form"] = std::string(form);
    const std::vector<double> got = RunByName(c.Build().request()).at("output");
    ExpectWithin(std::vector<float>(got.begin(), got.end()), expected,
                 std::vector<double>(expected.size(), 2 * kLatentMaxError), form);
  }
}

TEST_P(MultiHeadLatentLayer, EmptyRowIsZeroAndMinusInf) {
  for (const char* form : {"naive", "absorbed"}) {
    LayerCase c = MakeLatent();
    c.key_lengths = {0, kLen};
    c.params["form"] = std::string(form);
    c.params["return_lse"] = true;
    ExpectLatentMatchesReference(c);
    const Values r = RunByName(c.Build().request());
    EXPECT_EQ(r.at("output")[0], 0);
    EXPECT_EQ(r.at("lse")[0], -std::numeric_limits<double>::infinity());
  }
}

TEST_P(MultiHeadLatentLayer, NanReachesOnlyTheRowsThatSeeIt) {
  for (const char* form : {"naive", "absorbed"}) {
    LayerCase c = MakeLatent();
    c.params["causal"] = true;
    c.params["rope"] = std::string("half");
    c.params["form"] = std::string(form);
    const std::vector<double> clean = RunByName(c.Build().request()).at("output");
    c.tensors["x"].values[20 * kDim + 1] = kNan;
    const std::vector<double> spoilt = RunByName(c.Build().request()).at("output");
    for (size_t n = 0; n < clean.size(); ++n) {
      const size_t row = n / kDim;
      const bool lost = row >= 20 && row < kLen;
      EXPECT_EQ(std::isnan(spoilt[n]), lost) << form << row;
      if (!lost) {
        EXPECT_EQ(spoilt[n], clean[n]) << form << row;
      }
    }
  }
}

// A cache of latent rows and rotated keys: one query at a time in the absorbed form finds what the
// naive form finds for all queries at once.
TEST_P(MultiHeadLatentLayer, DecodingFromTheLatentCacheEqualsPrefill) {
  Random random(4);
  const auto draw = [&](const Extents& shape, float size) {
    Buffer<float> buffer(shape, Layout::kPadded, kNan);
    buffer.ForEach(
        [&](int64_t, int64_t, int64_t, int64_t, float& x) { x = size * random.Normal(); });
    return buffer;
  };
  const Buffer<float> q = draw({2, 4, 30, 14}, 1), latent = draw({2, 1, 30, 12}, 1);
  const Buffer<float> k_rope = draw({2, 1, 30, 6}, 1);
  const Buffer<float> w_uk = draw({1, 4, 8, 12}, 0.3f), w_uv = draw({1, 4, 9, 12}, 0.3f);
  Buffer<float> all({2, 4, 30, 9}, Layout::kDense, kNan), one({2, 4, 1, 9}, Layout::kDense, kNan);
  LatentOptions options;
  options.attention.causal = true;
  LatentAttention(q.view(), latent.view(), k_rope.view(), w_uk.view(), w_uv.view(), options,
                  {.output = all.view()});
  options.form = LatentForm::kAbsorbed;
  options.attention.query_offset = QueryOffset::End();
  for (int64_t i = 0; i < 30; ++i) {
    const auto first = [&](TensorView<const float> view) {
      view.shape[2] = i + 1;
      return view;
    };
    TensorView<const float> query = q.view();
    query.data += i * query.strides[2];
    query.shape[2] = 1;
    LatentAttention(query, first(latent.view()), first(k_rope.view()), w_uk.view(), w_uv.view(),
                    options, {.output = one.view()});
    one.ForEach([&](int64_t b, int64_t h, int64_t, int64_t d, float& x) {
      EXPECT_NEAR(x, all(b, h, i, d), 2 * kLatentMaxError) << i;
    });
  }
}

TEST_P(MultiHeadLatentLayer, SameBitsForAnyThreadCount) {
  for (const char* form : {"naive", "absorbed"}) {
    LayerCase c = MakeLatent();
    c.params["form"] = std::string(form);
    const RequestBuilder builder = c.Build();
    const auto run = [&](int threads) {
      std::vector<float> values(static_cast<size_t>(kBatch * kLen * kDim), kNan);
      const NamedTensor output = {"output", StateTensor(values, {kBatch, kLen, kDim})};
      heed::Run(builder.request(), std::span(&output, 1), MakeThreadPool(threads).get());
      return values;
    };
    const std::vector<float> one = run(1);
    for (const int threads : {2, 7}) EXPECT_EQ(one, run(threads)) << form << threads;
  }
}

TEST(MultiHeadLatentBoundary, RefusesWhatDoesNotFit) {
  const auto refused = [](ErrorCode code, const std::string& text, auto change) {
    LayerCase c = MakeLatent();
    change(c);
    const RequestBuilder builder = c.Build();
    for (const bool oracle : {false, true}) {
      try {
        oracle ? static_cast<void>(reference::Run(builder.request()))
               : static_cast<void>(PlanOutputs(builder.request()));
        ADD_FAILURE() << text << ": no error from " << (oracle ? "the oracle" : "heed");
      } catch (const Error& error) {
        EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
        EXPECT_THAT(error.what(), HasSubstr(text));
      }
    }
  };
  refused(ErrorCode::kShape, "w_uk", [](LayerCase& c) { c.tensors["w_uk"].shape = {8, 4, 12}; });
  refused(ErrorCode::kShape, "w_o", [](LayerCase& c) { c.tensors["w_o"].shape = {36, 4, 8}; });
  refused(ErrorCode::kOption, "form", [](LayerCase& c) { c.params["form"] = std::string("both"); });
  refused(ErrorCode::kOption, "w_kr", [](LayerCase& c) { c.tensors.erase("w_kr"); });
  refused(ErrorCode::kOption, "scaling", [](LayerCase& c) {
    c.params["scaling"] = std::string("linear");  // without rope
    c.params["scaling_factor"] = 2.0;
  });
  refused(ErrorCode::kOption, "original_len", [](LayerCase& c) {
    c.params = {{"rope", std::string("half")}, {"scaling", std::string("yarn")}};
    c.params["scaling_factor"] = 2.0;
  });
  refused(ErrorCode::kOption, "norm_q_weight", [](LayerCase& c) {
    c.tensors.erase("w_dq");
    c.tensors["w_uq"] = {{kHeads, 8, kDim}, std::vector<float>(kHeads * 8 * kDim)};
    c.tensors["w_qr"] = {{kHeads, 6, kDim}, std::vector<float>(kHeads * 6 * kDim)};
    c.tensors["norm_q_weight"] = {{kDim}, std::vector<float>(kDim)};
  });
  refused(ErrorCode::kRange, "epsilon", [](LayerCase& c) {
    c.tensors["norm_q_weight"] = {{20}, std::vector<float>(20)};
    c.params["epsilon"] = -1.0;
  });
}

}  // namespace
}  // namespace heed::testing
