// The short causal convolution: against the oracle, cut anywhere, with lengths, and numbers by
// hand.
#include "heed/causal_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "allocations.h"
#include "heed/error.h"
#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct ConvSizes {
  int64_t batch, len, channels, width;
};

RequestBuilder ConvRequest(const ConvSizes& s, bool bias, bool state, const char* activation) {
  RequestBuilder builder("causal_conv");
  builder.Floats("signal", {s.batch, s.len, s.channels}, LogDecays(s.batch * s.len * s.channels, 1))
      .Floats("conv_weight", {s.channels, s.width}, Betas(s.channels * s.width, 2));
  if (bias) builder.Floats("conv_bias", {s.channels}, LogDecays(s.channels, 3));
  if (state) {
    builder.Floats("conv_state", {s.batch, s.width - 1, s.channels},
                   LogDecays(s.batch * (s.width - 1) * s.channels, 4));
  }
  builder.Param("conv_activation", activation).Param("return_state", true);
  return builder;
}

class CausalConvolution : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(CausalConvolution);

TEST_P(CausalConvolution, MatchesReference) {
  for (const ConvSizes& s : {ConvSizes{1, 1, 1, 1},
                             {2, 3, 5, 4},
                             {1, 64, 17, 3},
                             {3, 65, 33, 4},
                             {1, 200, 8, 64},
                             {2, 130, 40, 2},
                             {1, 2, 9, 7}}) {
    for (const bool more : {false, true}) {
      // All terms have one sign: the sum of their absolute values is that of the sum.
      const Values sums = RunOracle(ConvRequest(s, more, more, "none").request());
      for (const char* activation : {"none", "silu"}) {
        const RequestBuilder builder = ConvRequest(s, more, more, activation);
        const Values actual = RunByName(builder.request()), expected = RunOracle(builder.request());
        EXPECT_EQ(actual.at("state"), expected.at("state"));
        for (size_t n = 0; n < sums.at("output").size(); ++n) {
          ASSERT_NEAR(actual.at("output")[n], expected.at("output")[n],
                      kCausalConvMaxError * std::abs(sums.at("output")[n]))
              << "length " << s.len << ", " << activation << ", element " << n;
        }
      }
    }
  }
}

TEST_P(CausalConvolution, LengthsMatchReference) {
  RequestBuilder builder = ConvRequest({4, 70, 6, 4}, true, true, "silu");
  builder.Integers("key_lengths", {4}, {0, 2, 65, 70});
  ExpectMatchesOracle(builder.request(), "lengths 0, 2, 65 and 70");
}

TEST_P(CausalConvolution, GivesTheNumbersOfItsDefinition) {
  RequestBuilder builder("causal_conv");
  builder.Floats("signal", {1, 3, 1}, {1, 10, 100})
      .Floats("conv_weight", {1, 3}, {2, 3, 5})
      .Floats("conv_state", {1, 2, 1}, {7, 11})
      .Floats("conv_bias", {1}, {1})
      .Param("return_state", true);
  const Values results = RunByName(builder.request());
  EXPECT_EQ(results.at("output"), (std::vector<double>{53, 76, 533}));
  EXPECT_EQ(results.at("state"), (std::vector<double>{10, 100}));
}

TEST_P(CausalConvolution, OfOneTapOfOneIsTheSignal) {
  const std::vector<float> x = LogDecays(12, 1);
  RequestBuilder builder("causal_conv");
  builder.Floats("signal", {1, 4, 3}, x).Floats("conv_weight", {3, 1}, {1, 1, 1});
  EXPECT_EQ(RunByName(builder.request()).at("output"), std::vector<double>(x.begin(), x.end()));
}

// Tokens of four heads of which two share filters, one by one and all at once.
struct Call {
  static constexpr int64_t kBatch = 2, kHeads = 4, kLen = 90, kDim = 19, kWidth = 4;
  std::vector<float> x = LogDecays(kBatch * kHeads * kLen * kDim, 1);
  std::vector<float> weight = Betas(kHeads * kDim * kWidth, 2);
  std::vector<float> state = std::vector<float>(kBatch * kHeads * (kWidth - 1) * kDim);
  std::vector<float> output = std::vector<float>(x.size(), kNan);
  CausalConvOptions options;

  TensorView<float> State() { return Contiguous(state.data(), kBatch, kHeads, kWidth - 1, kDim); }
  // Tokens [from, to), from the state and into it.
  void Run(int64_t from, int64_t to) {
    auto in = Contiguous<const float>(x.data(), kBatch, kHeads, kLen, kDim);
    auto out = Contiguous(output.data(), kBatch, kHeads, kLen, kDim);
    in.data += from * kDim;
    out.data += from * kDim;
    in.shape[2] = out.shape[2] = to - from;
    options.initial_state = State();
    CausalConv(in, Contiguous<const float>(weight.data(), 1, kHeads, kDim, kWidth), options,
               {out, State()});
  }
};

TEST_P(CausalConvolution, SameBitsWhereverItIsCut) {
  Call whole;
  whole.options.activation = ConvActivation::kSilu;
  whole.Run(0, Call::kLen);
  for (const int64_t step : {1, 2, 7, 64}) {
    Call cut;
    cut.options.activation = ConvActivation::kSilu;
    for (int64_t t = 0; t < Call::kLen; t += step) cut.Run(t, std::min(Call::kLen, t + step));
    EXPECT_EQ(cut.output, whole.output) << step;
    EXPECT_EQ(cut.state, whole.state) << step;
  }
}

TEST_P(CausalConvolution, PoisonReachesItsChannelAndAsManyTokensAsTaps) {
  Call call;
  call.x[static_cast<size_t>((5 * Call::kLen + 62) * Call::kDim + 3)] = kNan;
  call.Run(0, Call::kLen);
  for (int64_t head = 0; head < 8; ++head) {
    for (int64_t t = 0; t < Call::kLen; ++t) {
      for (int64_t c = 0; c < Call::kDim; ++c) {
        const bool reached = head == 5 && c == 3 && t >= 62 && t < 66;
        const size_t at = static_cast<size_t>((head * Call::kLen + t) * Call::kDim + c);
        ASSERT_EQ(std::isnan(call.output[at]), reached) << head << " " << t << " " << c;
      }
    }
  }
}

TEST_P(CausalConvolution, TokensBeyondTheLengthAreNeverRead) {
  Call call;
  const std::vector<int32_t> lengths = {90, 37};
  call.options.lengths = lengths;
  call.Run(0, Call::kLen);
  const std::vector<float> expected = call.output;
  for (int64_t head = 4; head < 8; ++head) {
    const auto first = call.x.begin() + head * Call::kLen * Call::kDim;
    std::fill(first + 37 * Call::kDim, first + Call::kLen * Call::kDim, kNan);
  }
  std::fill(call.state.begin(), call.state.end(), 0.0f);
  call.Run(0, Call::kLen);
  EXPECT_EQ(call.output, expected);
  for (const float s : call.state) ASSERT_TRUE(std::isfinite(s));
}

TEST(CausalConvolutionSteps, AllocateNothing) {
  Call call;
  call.Run(0, 1);
  const int64_t before = Allocations();
  for (int64_t t = 1; t < Call::kLen; ++t) call.Run(t, t + 1);
  EXPECT_EQ(Allocations(), before);
}

template <class Change>
void ExpectError(ErrorCode code, const std::string& part, const Change& change) {
  Call call;
  change(call);
  try {
    call.Run(0, Call::kLen);
    FAIL() << "accepted: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  for (const float x : call.output) ASSERT_TRUE(std::isnan(x)) << "written before the error";
}

TEST(CausalConvolutionErrors, NameTheArgument) {
  static const std::vector<int32_t> too_long = {3, 91};
  ExpectError(ErrorCode::kRange, "key_lengths holds 91",
              [](Call& c) { c.options.lengths = too_long; });
  static const std::vector<float> bias(7);
  ExpectError(ErrorCode::kShape, "bias has 7", [](Call& c) { c.options.bias = bias; });
  float x[4] = {}, out[4];
  const auto conv = [&](int64_t width, TensorView<float> to) {
    CausalConv(Contiguous<const float>(x, 1, 1, 1, 4), {x, {1, 1, 4, width}, {0, 0, 0, 0}}, {},
               {to});
  };
  EXPECT_THROW(conv(0, Contiguous(out, 1, 1, 1, 4)), Error);
  EXPECT_THROW(conv(65, Contiguous(out, 1, 1, 1, 4)), Error);
  EXPECT_THROW(conv(1, Contiguous(x, 1, 1, 1, 4)), Error);
  EXPECT_THROW(conv(1, Contiguous(out, 1, 1, 4, 1)), Error);
  EXPECT_NO_THROW(conv(1, Contiguous(out, 1, 1, 1, 4)));
}

}  // namespace
}  // namespace heed::testing
