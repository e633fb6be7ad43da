// Where results of mechanisms by name lie on the device path: in place of an input where that is
// allowed, apart from them otherwise. In emulated blocks alone: on a GPU these tests would copy
// each tensor to a place of its own.
#include <string>
#include <vector>

#include "device_request.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "request_outcome.h"
#include "src/cuda/step_calls.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kBound = 1e-6;

std::vector<float> Numbers(int64_t count) {
  std::vector<float> values;
  for (int64_t n = 0; n < count; ++n) values.push_back(static_cast<float>(n % 7) / 8 - 0.5f);
  return values;
}

// As Run() of a request whose result lies where an input is.
std::string Refused(const Request& request, const std::string& result, const AnyTensor& where) {
  return Try([&] { RunRequestOnDevice(request, std::vector<NamedTensor>{{result, where}}); }).text;
}

TEST(DeviceRequestPlaces, RotatesInPlaceAndRefusesOtherOverlaps) {
  RequestBuilder r("rope");
  r.Floats("x", {1, 2, 5, 4}, Numbers(40)).Param("pairing", std::string("half"));
  const Request& request = r.request();
  const Values expected = RunByName(request);
  const AnyTensor& x = request.inputs[0].tensor;
  AnyTensor shifted = x;
  shifted.data = static_cast<float*>(x.data) + 1;
  EXPECT_THAT(Refused(request, "output", shifted), HasSubstr("output overlaps x"));
  std::vector<float> wide(80);
  AnyTensor apart = x;
  apart.data = wide.data();
  for (int64_t& stride : apart.strides) stride *= 2;
  EXPECT_THAT(Refused(request, "output", apart), HasSubstr("must be contiguous"));
  EXPECT_EQ(Refused(request, "output", x), "");
  for (size_t n = 0; n < 40; ++n) {
    EXPECT_NEAR(static_cast<const float*>(x.data)[n], expected.at("output")[n], kBound);
  }
  RequestBuilder gated("gated");
  gated.Floats("q", {1, 1, 2, 2}, Numbers(4)).Floats("k", {1, 1, 2, 2}, Numbers(4));
  gated.Floats("v", {1, 1, 2, 2}, Numbers(4)).Floats("output_gate", {1, 1, 1, 1}, {1});
  EXPECT_THAT(Refused(gated.request(), "output", gated.request().inputs[0].tensor),
              HasSubstr("output overlaps q"));
}

TEST(DeviceRequestPlaces, WritesRowsOfLayersSideBySideOnly) {
  RequestBuilder r("causal_conv");
  r.Floats("signal", {1, 2, 3}, Numbers(6)).Floats("conv_weight", {3, 2}, Numbers(6));
  std::vector<float> wide(12);
  AnyTensor apart = ContiguousTensor(DType::kFloat32, wide.data(), std::vector<int64_t>{1, 2, 3});
  for (int64_t& stride : apart.strides) stride *= 2;
  EXPECT_THAT(Refused(r.request(), "output", apart), HasSubstr("must be contiguous"));
}

TEST(DeviceRequestPlaces, ReplacesTheStateOfAConvolution) {
  constexpr int64_t kChannels = 3, kTokens = 2, kTaps = 4;
  RequestBuilder r("causal_conv");
  r.Floats("signal", {1, kTokens, kChannels}, Numbers(kTokens * kChannels));
  r.Floats("conv_weight", {kChannels, kTaps}, Numbers(kChannels * kTaps));
  r.Floats("conv_state", {1, kTaps - 1, kChannels}, Numbers((kTaps - 1) * kChannels));
  r.Param("return_state", true);
  const Values expected = RunByName(r.request());
  const AnyTensor& state = r.request().inputs[2].tensor;
  std::vector<float> output(kTokens * kChannels);
  const std::vector<int64_t> shape = {1, kTokens, kChannels};
  RunRequestOnDevice(
      r.request(),
      std::vector<NamedTensor>{{"output", ContiguousTensor(DType::kFloat32, output.data(), shape)},
                               {"state", state}});
  for (size_t n = 0; n < expected.at("state").size(); ++n) {
    EXPECT_EQ(static_cast<const float*>(state.data)[n], expected.at("state")[n]);
  }
  for (size_t n = 0; n < output.size(); ++n) {
    EXPECT_NEAR(output[n], expected.at("output")[n], kBound);
  }
}

// Blocks of later tokens would read a state that those of earlier ones have written over.
TEST(DeviceRequestPlaces, RefusesOtherResultsInPlaceOfTheState) {
  constexpr int64_t kTokens = 3;
  RequestBuilder r("causal_conv");
  r.Floats("signal", {1, kTokens, 2}, Numbers(2 * kTokens))
      .Floats("conv_weight", {2, 4}, Numbers(8));
  r.Floats("conv_state", {1, kTokens, 2}, Numbers(2 * kTokens));
  EXPECT_THAT(Refused(r.request(), "output", r.request().inputs[2].tensor),
              HasSubstr("output overlaps conv_state"));
}

TEST(DeviceRequestPlaces, RefusesExtentsThatKernelsCannotCount) {
  EXPECT_EQ(cuda::Narrow(2147483647), 2147483647);
  const Refusal refusal = Try([] { cuda::Narrow(int64_t{1} << 31); });
  EXPECT_EQ(refusal.code, ErrorCodeName(ErrorCode::kUnsupported));
  EXPECT_THAT(refusal.text, HasSubstr("2147483648"));
}

}  // namespace
}  // namespace heed::testing
