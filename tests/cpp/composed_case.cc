#include "composed_case.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/reference.h"
#include "heed/registry.h"

namespace heed::testing {
namespace {

AnyTensor ToTensor(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  return ContiguousTensor(DType::kFloat32, const_cast<float*>(values.data()), shape);
}

bool Lists(std::string_view list, const std::string& name) {
  std::istringstream stream{std::string(list)};
  for (std::string word; stream >> word;) {
    if (word == name) return true;
  }
  return false;
}

std::vector<double> Spread(const std::vector<RowBound>& rows, size_t count, double factor,
                           double (RowBound::*bound)() const) {
  std::vector<double> bounds;
  for (const RowBound& row : rows) {
    bounds.insert(bounds.end(), count, factor * (row.*bound)());
  }
  return bounds;
}

std::vector<float> ToFloats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

void ComposedCase::AddNormal(const std::string& name, const std::vector<int64_t>& shape,
                             uint64_t seed) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<float> values(static_cast<size_t>(count));
  Random random(seed);
  for (float& x : values) x = random.Normal();
  extras.push_back({name, shape, std::move(values)});
}

ComposedCase::Extra& ComposedCase::extra(const std::string& name) {
  return *std::ranges::find(extras, name, &Extra::name);
}

Request ComposedCase::request() const {
  Request request = inner.request();
  request.id = id;
  for (const Extra& extra : extras) {
    request.inputs.push_back({extra.name, ToTensor(extra.shape, extra.values)});
  }
  request.params.insert(request.params.end(), params.begin(), params.end());
  return request;
}

std::vector<AttentionCase> PassThroughCases(int64_t head_dim) {
  Random random(5);
  const auto sizes = [&](int64_t heads, int64_t kv_heads, int64_t q_len, int64_t kv_len) {
    return Sizes{.batch = 2,
                 .num_heads = heads,
                 .num_kv_heads = kv_heads,
                 .q_len = q_len,
                 .kv_len = kv_len,
                 .head_dim = head_dim,
                 .head_dim_v = 17};
  };
  std::vector<AttentionCase> cases;
  cases.push_back(MakeCase(sizes(1, 1, 1, 1), 1));
  cases.push_back(MakeCase(sizes(4, 2, 37, 300), 2, Layout::kPadded));
  cases.push_back(MakeCase(sizes(3, 3, 70, 70), 3, Layout::kBlhd));
  cases.back().scalars.causal = true;
  cases.back().alibi_slopes = AlibiSlopes(3);
  cases.push_back(MakeCase(sizes(2, 1, 20, 530), 4, Layout::kReversed));
  cases.back().scalars.window = Window{40, 3};
  cases.back().scalars.query_offset = QueryOffset::End();
  cases.back().key_lengths = {530, 290};
  cases.back().sinks = {0.5f, -1.0f};
  cases.push_back(MakeCase(sizes(4, 4, 9, 64), 5));
  cases.back().keep = MakeKeep({2, 4, 9, 64}, random, 0.4);
  cases.back().bias = MakeBias({1, 4, 9, 64}, random, 0.3);
  cases.back().scalars.softcap = 3.0;
  cases.push_back(MakeCase(sizes(7, 1, 13, 257), 6));
  cases.back().keep = MakeKeep({2, 1, 13, 257}, random, 0.02);  // some rows are empty
  return cases;
}

void ExpectComposedMatches(const ComposedCase& c, double output_factor, double weight_factor) {
  Request request = c.request();
  const Mechanism& row = *FindMechanism(c.id);
  for (const char* flag : {"return_weights", "return_lse"}) {
    std::erase_if(request.params, [&](const NamedParam& param) { return param.name == flag; });
    if (Lists(row.params, flag)) request.params.push_back({flag, true});
  }
  const Values expected = RunOracle(request);
  const Values actual = RunByName(request);
  const std::vector<RowBound> rows = RowBounds(c.inner, RunOracle(c.inner));
  const size_t width = static_cast<size_t>(c.inner.sizes.head_dim_v);
  const size_t keys = static_cast<size_t>(c.inner.sizes.kv_len);
  const std::string text = " of " + c.Describe();
  ExpectWithin(ToFloats(actual.at("output")), expected.at("output"),
               Spread(rows, width, output_factor, &RowBound::Output), "output" + text);
  if (expected.count("weights") != 0) {
    ExpectWithin(ToFloats(actual.at("weights")), expected.at("weights"),
                 Spread(rows, keys, weight_factor, &RowBound::Weight), "weights" + text);
  }
  if (expected.count("lse") != 0) {
    const std::vector<double>& lse = expected.at("lse");
    std::vector<double> bounds;
    for (size_t r = 0; r < rows.size(); ++r) bounds.push_back(weight_factor * rows[r].Lse(lse[r]));
    ExpectWithin(ToFloats(actual.at("lse")), lse, bounds, "lse" + text);
  }
}

void ExpectAllNear(const std::vector<double>& actual, const std::vector<double>& expected,
                   double error) {
  EXPECT_THAT(actual, ::testing::Pointwise(::testing::DoubleNear(error), expected));
}

void ExpectBothRefuse(const Request& request, ErrorCode code, const std::string& name) {
  for (const bool oracle : {false, true}) {
    const std::string who = oracle ? "the oracle" : "heed";
    try {
      if (oracle) {
        reference::Run(request);
      } else {
        PlanOutputs(request);
      }
      ADD_FAILURE() << name << ": no error was thrown by " << who;
    } catch (const Error& error) {
      EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << who << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr(name));
    }
  }
}

Values RunOnPool(const Request& request, ThreadPool* pool) {
  std::deque<std::vector<float>> storage;
  std::vector<NamedTensor> outputs;
  for (const OutputSpec& spec : PlanOutputs(request)) {
    const std::vector<int64_t> shape(spec.shape.begin(), spec.shape.begin() + spec.rank);
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    storage.emplace_back(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
    outputs.push_back({spec.name, ToTensor(shape, storage.back())});
  }
  Run(request, outputs, pool);
  Values values;
  for (size_t n = 0; n < outputs.size(); ++n) {
    values[outputs[n].name] = {storage[n].begin(), storage[n].end()};
  }
  return values;
}

void ExpectSameBitsForAnyThreads(const Request& request) {
  const auto one = MakeThreadPool(1);
  const Values expected = RunOnPool(request, one.get());
  for (const int threads : {2, 5}) {
    const auto pool = MakeThreadPool(threads);
    const Values actual = RunOnPool(request, pool.get());
    for (const auto& [name, values] : expected) {
      // Not a number never equals itself: none is expected here.
      EXPECT_EQ(values, actual.at(name)) << name << " with " << threads << " threads";
    }
  }
}

}  // namespace heed::testing
