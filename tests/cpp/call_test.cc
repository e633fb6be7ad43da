// Call: one reading of a request, any number of runs.
#include "heed/call.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/registry.h"
#include "request_builder.h"
#include "request_tensors.h"

namespace heed::testing {
namespace {

// Of the exact family, which keeps its options, and of another, which reads the request again.
RequestBuilder Small(const std::string& id) {
  RequestBuilder builder(id);
  builder.Floats("q", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Floats("k", {1, 1, 2, 2}, {1, 0, 1, 1})
      .Floats("v", {1, 1, 2, 2}, {1, 0, 0, 2})
      .Param("causal", true);
  return builder;
}

class CallById : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, CallById, ::testing::Values("scaled_dot_product", "linear"));

TEST_P(CallById, PlansAndRunsAsOftenAsIsAsked) {
  const RequestBuilder builder = Small(GetParam());
  const Call call(builder.request());
  ASSERT_EQ(call.outputs().size(), PlanOutputs(builder.request()).size());
  const Values expected = RunByName(builder.request());
  for (int run = 0; run < 2; ++run) {
    const Tensors tensors(call.outputs());
    call.Run(tensors.named());
    EXPECT_EQ(tensors.ByName(), expected) << run;
  }
}

TEST_P(CallById, RefusesTensorsOtherThanThePlanned) {
  const RequestBuilder builder = Small(GetParam());
  const Call call(builder.request());
  Tensors tensors(call.outputs());
  std::vector<NamedTensor> named(tensors.named().begin(), tensors.named().end());
  named.push_back({"weights", named.front().tensor});
  EXPECT_THROW(call.Run(named), Error);
  EXPECT_THROW(call.Run({}), Error);
  call.Run(tensors.named());
}

}  // namespace
}  // namespace heed::testing
