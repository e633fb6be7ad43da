// Attention pooling: the same queries for every batch entry, otherwise exact attention.
#include <cmath>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/compose.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class AttentionPools : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionPools);

// The case's queries of batch entry 0, for every entry.
AttentionCase WithSharedQueries(AttentionCase c) {
  c.q.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
    if (b > 0) x = c.q(0, h, i, d);
  });
  return c;
}

// The request with `queries` of rank 3 instead of q.
Request ToPooling(const AttentionCase& c) {
  Request request = c.request();
  request.id = "attention_pooling";
  AnyTensor& q = request.inputs[0].tensor;
  request.inputs[0].name = "queries";
  q.rank = 3;
  for (size_t axis = 0; axis < 3; ++axis) {
    q.shape[axis] = q.shape[axis + 1];
    q.strides[axis] = q.strides[axis + 1];
  }
  return request;
}

TEST_P(AttentionPools, ReducesToScaledDotProductWithRepeatedQueries) {
  for (const AttentionCase& given : PassThroughCases()) {
    const AttentionCase c = WithSharedQueries(given);
    Request pooling = ToPooling(c), repeated = c.request();
    for (Request* request : {&pooling, &repeated}) {
      request->params.push_back({"return_weights", true});
      request->params.push_back({"return_lse", true});
      request->params.push_back({"return_scores", std::string("biased")});
    }
    EXPECT_EQ(RunByName(pooling), RunByName(repeated));
  }
}

TEST_P(AttentionPools, MatchesReference) {
  for (const AttentionCase& given : PassThroughCases()) {
    const AttentionCase c = WithSharedQueries(given);
    const std::vector<RowBound> bounds = RowBounds(c, RunOracle(c));
    const std::vector<double> expected = RunOracle(ToPooling(c)).at("output");
    const std::vector<double> actual = RunByName(ToPooling(c)).at("output");
    for (size_t n = 0; n < expected.size(); ++n) {
      EXPECT_NEAR(actual[n], expected[n], bounds[n / 17].Output()) << c.Describe();
    }
  }
}

TEST_P(AttentionPools, ReducesToAverageWithZeroQueries) {
  // One seed of zeros: the mean of each set, whatever its size.
  RequestBuilder builder("attention_pooling");
  builder.Floats("queries", {1, 1, 2}, {0, 0})
      .Floats("k", {2, 1, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3})
      .Floats("v", {2, 1, 3, 1}, {1, 2, 6, 10, 20, 500})
      .Integers("key_lengths", {2}, {3, 2})
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  ExpectAllNear(values.at("output"), {3, 15}, 1e-6);
  ExpectAllNear(values.at("weights"), {1 / 3.0, 1 / 3.0, 1 / 3.0, 0.5, 0.5, 0}, 1e-7);
}

TEST_P(AttentionPools, OrderOfTheSetDoesNotMatter) {
  // Permutation invariance: proposition 1 of Lee et al. 2019.
  const AttentionCase c = WithSharedQueries(MakeCase({.batch = 2, .q_len = 4, .kv_len = 100}));
  AttentionCase turned = c;
  for (Buffer<float>* buffer : {&turned.k, &turned.v}) {
    const Buffer<float>& from = buffer == &turned.k ? c.k : c.v;
    buffer->ForEach([&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) {
      x = from(b, h, (j * 37 + 11) % 100, d);
    });
  }
  ExpectAllNear(RunByName(ToPooling(turned)).at("output"), RunByName(ToPooling(c)).at("output"),
                2e-6);
}

TEST_P(AttentionPools, EmptySetIsZeroAndWhatIsMaskedCannotMatter) {
  AttentionCase c = WithSharedQueries(MakeCase({.batch = 2, .q_len = 4, .kv_len = 30}));
  c.key_lengths = {0, 20};
  const Values clean = RunByName(ToPooling(c));
  for (size_t n = 0; n < 2 * 4 * 64; ++n) EXPECT_EQ(clean.at("output")[n], 0.0);
  for (int64_t j = 20; j < 30; ++j) c.k(1, 0, j, 0) = c.v(1, 1, j, 0) = NAN;
  EXPECT_EQ(RunByName(ToPooling(c)), clean);
}

TEST_P(AttentionPools, BadQueriesAreRefused) {
  const AttentionCase c = MakeCase({.q_len = 4, .kv_len = 3});
  Request four = ToPooling(c);
  four.inputs[0].tensor = c.request().inputs[0].tensor;
  ExpectBothRefuse(four, ErrorCode::kShape, "queries");
  Request none = ToPooling(c);
  none.inputs.erase(none.inputs.begin());
  ExpectBothRefuse(none, ErrorCode::kOption, "queries");
  const AttentionCase batch = MakeCase({.batch = 2, .q_len = 4, .kv_len = 3});
  Buffer<float> output({2, 2, 4, 64}, Layout::kDense, 0);
  EXPECT_THROW(AttentionPooling(batch.q.view(), batch.k.view(), batch.v.view(), {},
                                {.output = output.view()}),
               Error);
}

}  // namespace
}  // namespace heed::testing
