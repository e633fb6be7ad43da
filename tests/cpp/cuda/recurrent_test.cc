// Recurrent attention on the device path against that of the CPU, which tests/cpp/recurrent
// compares with the oracle: two results within kRecurrentMaxError of it are within twice as much of
// each other.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "device_backend.h"
#include "gtest/gtest.h"
#include "recurrent/recurrent_call.h"
#include "refused.h"
#include "src/cuda/recurrent_plan.h"

namespace heed::testing {
namespace {

class DeviceRecurrent : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

constexpr std::array<Kind, 17> kOffered = {
    Kind::kPlain,         Kind::kPlainDelta,  Kind::kDecay,         Kind::kDecayDelta,
    Kind::kChannels,      Kind::kComplement,  Kind::kBonus,         Kind::kErasing,
    Kind::kErasingShared, Kind::kBonusShared, Kind::kChannelsDelta, Kind::kTaylor,
    Kind::kCosine,        Kind::kRandom,      Kind::kLevels,        Kind::kLearning,
    Kind::kLearningInPart};

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected,
                const std::string& what) {
  float largest = 0;
  for (const float x : expected) largest = std::max(largest, std::abs(x));
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t n = 0; n < expected.size(); ++n) {
    ASSERT_NEAR(actual[n], expected[n], 2 * kRecurrentMaxError * double{largest})
        << what << " [" << n << "]";
  }
}

// The call on the CPU and on the device: outputs and states.
void ExpectMatchesCpu(Call& c, const std::string& what) {
  c.state.assign(static_cast<size_t>(c.batch * c.kv_heads * c.features * c.cols), 0.0f);
  c.output.assign(static_cast<size_t>(c.batch * c.heads * c.len * c.dim_v), kNan);
  c.Run();
  const std::vector<float> output = c.output, state = c.state;
  std::fill(c.output.begin(), c.output.end(), kNan);
  std::fill(c.state.begin(), c.state.end(), kNan);
  RunRecurrentOnDevice(c.Q(), c.K(), c.V(), c.options, {c.Output(), c.State()});
  ExpectNear(c.output, output, what + ", output");
  ExpectNear(c.state, state, what + ", state");
}

std::string Text(Kind kind) { return "kind " + std::to_string(static_cast<int>(kind)); }

TEST_F(DeviceRecurrent, EveryRuleMatchesTheCpu) {
  for (const Kind kind : kOffered) {
    Call c(kind);
    ExpectMatchesCpu(c, Text(kind));
    if (HasFatalFailure()) return;
  }
}

TEST_F(DeviceRecurrent, EveryFeatureMapMatchesTheCpuWithSumsAndWithout) {
  for (const FeatureMap map : {FeatureMap::kIdentity, FeatureMap::kEluPlusOne, FeatureMap::kRelu,
                               FeatureMap::kSoftmax, FeatureMap::kUnit}) {
    for (const bool normalize : {false, true}) {
      Call c(Kind::kDecay);
      c.options.feature_map = map;
      // Sums of weights away from 0: numbers between 0 and 1, and below 0 where e^x takes them.
      if (normalize && map != FeatureMap::kEluPlusOne) {
        for (float& x : c.q) x = std::exp(x);
        for (float& x : c.k) x = std::exp(x);
      }
      c.options.normalize = normalize;
      c.cols = c.dim_v + (normalize ? 1 : 0);
      ExpectMatchesCpu(c, "map " + std::to_string(static_cast<int>(map)));
      if (HasFatalFailure()) return;
    }
  }
}

// Heads of 64, 65, 128 and 200 features have 4, 8, 8 and 16 threads a column.
TEST_F(DeviceRecurrent, EveryWidthMatchesTheCpu) {
  for (const int64_t dim : {1, 64, 65, 128, 200, 256}) {
    Call c;
    c.batch = 1, c.heads = 2, c.kv_heads = 1, c.len = 9;
    c.dim = c.features = dim;
    c.dim_v = c.cols = 70;
    c.q = LogDecays(c.heads * c.len * dim, 1);
    c.k = LogDecays(c.len * dim, 2);
    c.v = Betas(c.len * c.dim_v, 3);
    c.options.beta = c.Beta();
    c.options.delta = dim % 2 == 0;
    ExpectMatchesCpu(c, "head_dim " + std::to_string(dim));
    if (HasFatalFailure()) return;
  }
}

TEST_F(DeviceRecurrent, CosinesCountFromThePositionsOfTheirSequences) {
  Call c(Kind::kCosine);
  const std::array<int64_t, 2> positions = {3, 80};
  c.options.position_offset = positions;
  ExpectMatchesCpu(c, "cosine with offsets");
}

TEST_F(DeviceRecurrent, LengthsSkipAndBothForms) {
  for (const bool causal : {true, false}) {
    Call c(Kind::kChannels);
    const std::array<int32_t, 2> lengths = {0, 70};
    c.options.key_lengths = lengths;
    c.options.causal = causal;
    if (causal) c.options.skip = c.skip;
    ExpectMatchesCpu(c, causal ? "causal" : "not causal");
  }
}

TEST_F(DeviceRecurrent, AGateThatForgetsAllIsExact) {
  Call c(Kind::kChannels);
  for (size_t n = 0; n < c.gates.size(); n += 5) c.gates[n] = -INFINITY;
  ExpectMatchesCpu(c, "gates of 0");
}

// Token by token, in place, equals all at once; with sums of keys the columns that other blocks
// write must not be read.
TEST_F(DeviceRecurrent, StepsAndStatesInPlaceContinueACall) {
  for (const bool normalize : {false, true}) {
    Call c(Kind::kDecay);
    if (normalize) {
      for (float& x : c.q) x = -x;
      for (float& x : c.k) x = -x;
    }
    c.options.normalize = normalize;
    c.cols = c.dim_v + (normalize ? 1 : 0);
    c.state.assign(static_cast<size_t>(c.batch * c.kv_heads * c.features * c.cols), 0.0f);
    c.Run();
    const std::vector<float> output = c.output, state = c.state;
    std::fill(c.output.begin(), c.output.end(), kNan);
    RecurrentOptions first = c.OptionsOf(0, 60);
    RunRecurrentOnDevice(Tokens(c.Q(), 0, 60), Tokens(c.K(), 0, 60), Tokens(c.V(), 0, 60), first,
                         {Tokens(c.Output(), 0, 60), c.State()});
    RecurrentOptions next = c.OptionsOf(60, 95);
    next.initial_state = c.State();
    RunRecurrentOnDevice(Tokens(c.Q(), 60, 95), Tokens(c.K(), 60, 95), Tokens(c.V(), 60, 95), next,
                         {Tokens(c.Output(), 60, 95), c.State()});
    for (int64_t t = 95; t < 100; ++t) {
      RunStepOnDevice(Tokens(c.Q(), t, t + 1), Tokens(c.K(), t, t + 1), Tokens(c.V(), t, t + 1),
                      c.OptionsOf(t, t + 1), c.State(), Tokens(c.Output(), t, t + 1));
    }
    ExpectNear(c.output, output, "output");
    ExpectNear(c.state, state, "state");
  }
}

// The same of states that are kept in other forms.
TEST_F(DeviceRecurrent, StatesOfEveryFormContinueACall) {
  for (const Kind kind : {Kind::kRandom, Kind::kLevels, Kind::kLearning, Kind::kLearningInPart}) {
    Call c(kind);
    c.Run();
    const std::vector<float> output = c.output, state = c.state;
    std::fill(c.output.begin(), c.output.end(), kNan);
    std::fill(c.state.begin(), c.state.end(), kNan);
    for (int64_t t = 0; t < 100;) {
      const int64_t end = t < 95 ? std::min<int64_t>(t + 57, 95) : t + 1;
      RecurrentOptions part = c.OptionsOf(t, end);
      const auto q = Tokens(c.Q(), t, end), k = Tokens(c.K(), t, end), v = Tokens(c.V(), t, end);
      const TensorView<float> out = Tokens(c.Output(), t, end);
      if (t >= 95) {
        RunStepOnDevice(q, k, v, part, c.State(), out);
      } else {
        if (t > 0) part.initial_state = c.State();
        RunRecurrentOnDevice(q, k, v, part, {out, c.State()});
      }
      t = end;
    }
    ExpectNear(c.output, output, Text(kind) + ", output");
    ExpectNear(c.state, state, Text(kind) + ", state");
  }
}

TEST(DeviceRecurrentBoundary, NamesWhatItLacks) {
  for (const Kind kind : {Kind::kUser}) {
    Call c(kind);
    ExpectRefusedCall(ErrorCode::kUnsupported, "is not offered on the GPU yet", [&] {
      cuda::ValidateRecurrentForDevice(c.Q(), c.K(), c.V(), c.options, {c.Output(), c.State()});
    });
  }
}

TEST(DeviceRecurrentBoundary, SaysHowManyFeaturesItTakes) {
  Call c(Kind::kRandom);
  std::vector<float> projection(257 * 12, 1.0f);
  c.options.projection = {projection.data(), {1, 1, 257, 12}, {0, 0, 12, 1}};
  ExpectRefusedCall(ErrorCode::kUnsupported, "257 features", [&] {
    cuda::ValidateRecurrentForDevice(c.Q(), c.K(), c.V(), c.options, {c.Output(), {}});
  });
}

TEST(DeviceRecurrentBoundary, SaysHowManyTokensItCounts) {
  const auto check = [](int64_t len) {
    const auto at = [&](uintptr_t address) {
      return Contiguous(reinterpret_cast<float*>(address), 1, 1, len, 4);
    };
    const TensorView<const float> x = at(64);
    cuda::ValidateRecurrentForDevice(x, x, x, {}, {at(uintptr_t{1} << 40), {}});
  };
  check((1 << 23) - 1);
  for (const int64_t len : {int64_t{1} << 23, (int64_t{1} << 32) + 128}) {
    ExpectRefusedCall(ErrorCode::kUnsupported, "on the GPU it is at most 8388607",
                      [&] { check(len); });
  }
}

TEST(DeviceRecurrentBoundary, DoesNotReadTensors) {
  for (const Kind kind : {Kind::kRandom, Kind::kLevels}) {
    Call c(kind);
    for (TensorView<const float>* tensor : {&c.options.projection, &c.options.level_weights}) {
      if (tensor->has_value()) tensor->data = reinterpret_cast<const float*>(uintptr_t{64});
    }
    cuda::ValidateRecurrentForDevice(c.Q(), c.K(), c.V(), c.options, {c.Output(), c.State()});
  }
  Call c(Kind::kChannels);
  const auto unreadable = [](TensorView<const float> view) {
    view.data = reinterpret_cast<const float*>(uintptr_t{64});
    return view;
  };
  c.options.log_decay = unreadable(c.options.log_decay);
  c.options.beta = unreadable(c.options.beta);
  cuda::ValidateRecurrentForDevice(unreadable(c.Q()), unreadable(c.K()), unreadable(c.V()),
                                   c.options, {c.Output(), c.State()});
}

TEST(DeviceRecurrentBoundary, WithoutADeviceItSaysWhatIsMissing) {
  const cuda::Availability state = cuda::Available();
  if (state.usable) GTEST_SKIP() << "found " << state.found;
  Call c;
  ExpectRefusedCall(ErrorCode::kUnsupported, state.found, [&] {
    cuda::RecurrentAttention(c.Q(), c.K(), c.V(), c.options, {c.Output(), c.State()}, nullptr);
  });
}

}  // namespace
}  // namespace heed::testing
