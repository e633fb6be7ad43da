// RecurrentAttention and RecurrentStep: the forms agree, states carry over, gates and poison stay
// where they belong, and bad arguments are named.
#include "heed/recurrent.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "allocations.h"
#include "heed/error.h"
#include "heed/thread_pool.h"
#include "recurrent/recurrent_call.h"
#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

class Recurrent : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Recurrent);

// 8 tokens of 4 levels, whose state has no place for all of them; behind it lies other memory.
TEST_P(Recurrent, StepsReachTheLastTokenThatLevelsHold) {
  const int64_t len = 8, dim = 12, dim_v = 10, rows = 3 * dim;
  Call call(Kind::kLevels);
  call.options.level_weights.shape = {2, 4, len, 4};
  call.state.assign(static_cast<size_t>(4 * rows * dim_v), 0.0f);
  std::vector<float> output(static_cast<size_t>(2 * 4 * len * dim_v), kNan), state(call.state);
  state.resize(call.state.size() + static_cast<size_t>(dim * dim_v), 7.0f);
  RecurrentOptions options = call.OptionsOf(0, len);
  const auto to = Call::View(output.data(), 2, 4, len, dim_v);
  const auto first = [](const auto& view) { return Tokens(view, 0, len); };
  RecurrentAttention(first(call.Q()), first(call.K()), first(call.V()), options,
                     {to, Call::View(call.state.data(), 2, 2, rows, dim_v)});
  for (int64_t t = 0; t < len; ++t) {
    const auto one = [&](const auto& view) { return Tokens(view, t, t + 1); };
    RecurrentStep(one(call.Q()), one(call.K()), one(call.V()), call.OptionsOf(t, t + 1),
                  Call::View(state.data(), 2, 2, rows, dim_v), one(call.Output()));
  }
  for (int64_t n = 0; n < 2 * 4 * len * dim_v; ++n) {
    const size_t at = static_cast<size_t>(n / (len * dim_v) * call.len * dim_v + n % (len * dim_v));
    EXPECT_NEAR(call.output[at], output[static_cast<size_t>(n)], 2e-5) << n;
  }
  for (size_t n = 0; n < state.size(); ++n) {
    const bool inside = n < call.state.size();
    EXPECT_EQ(state[n], inside ? 0.0f : 7.0f);
    if (inside) {
      EXPECT_EQ(call.state[n], 0.0f);
    }
  }
  EXPECT_THROW(
      RecurrentStep(Tokens(call.Q(), 8, 9), Tokens(call.K(), 8, 9), Tokens(call.V(), 8, 9),
                    call.OptionsOf(len, len + 1), Call::View(state.data(), 2, 2, rows, dim_v),
                    Tokens(call.Output(), 8, 9)),
      Error);
}

TEST_P(Recurrent, StepsAgreeWithTheSequence) {
  for (const Kind kind : kKinds) {
    Call call(kind);
    call.Run();
    const std::vector<double> expected = Doubles(call.output), last = Doubles(call.state);
    std::fill(call.state.begin(), call.state.end(), 0.0f);
    std::fill(call.output.begin(), call.output.end(), kNan);
    for (int64_t t = 0; t < call.len; ++t) {
      RecurrentStep(Tokens(call.Q(), t, t + 1), Tokens(call.K(), t, t + 1),
                    Tokens(call.V(), t, t + 1), call.OptionsOf(t, t + 1), call.State(),
                    Tokens(call.Output(), t, t + 1));
    }
    const std::string what = "kind " + std::to_string(static_cast<int>(kind));
    ExpectResultsNear(Doubles(call.output), expected, 2 * kRecurrentMaxError, what);
    ExpectResultsNear(Doubles(call.state), last, 2 * kRecurrentMaxError, what + ", state");
  }
}

TEST_P(Recurrent, StatesCarryOverAtAnyToken) {
  for (const Kind kind : kKinds) {
    Call call(kind);
    call.Run();
    const std::vector<double> expected = Doubles(call.output);
    for (const int64_t cut : {1, 50, 64, 99}) {
      std::fill(call.state.begin(), call.state.end(), 0.0f);
      for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, cut}, {cut, call.len}}) {
        RecurrentOptions options = call.OptionsOf(from, to);
        options.initial_state = call.State();
        RecurrentAttention(Tokens(call.Q(), from, to), Tokens(call.K(), from, to),
                           Tokens(call.V(), from, to), options,
                           {Tokens(call.Output(), from, to), call.State()});
      }
      ExpectResultsNear(
          Doubles(call.output), expected, 2 * kRecurrentMaxError,
          "kind " + std::to_string(static_cast<int>(kind)) + ", cut at " + std::to_string(cut));
    }
  }
}

TEST_P(Recurrent, SameBitsForAnyNumberOfThreads) {
  for (const Kind kind : kKinds) {
    Call call(kind);
    call.Run();
    const std::vector<float> expected = call.output;
    for (const int threads : {1, 2, 3}) {
      const auto pool = MakeThreadPool(threads);
      std::fill(call.output.begin(), call.output.end(), kNan);
      call.Run(pool.get());
      EXPECT_EQ(call.output, expected) << threads;
    }
  }
}

// Where NaN of token 70, KV head 1 of batch entry 0 arrives; of the others `clean` is left.
void ExpectPoisoned(const Call& call, const std::vector<float>& clean, bool all_columns) {
  for (int64_t b = 0; b < call.batch; ++b) {
    for (int64_t h = 0; h < call.heads; ++h) {
      for (int64_t t = 0; t < call.len; ++t) {
        for (int64_t e = 0; e < call.dim_v; ++e) {
          const size_t at =
              static_cast<size_t>(((b * call.heads + h) * call.len + t) * call.dim_v + e);
          const bool reached = b == 0 && h >= 2 && t >= 70 && (e == 3 || all_columns);
          ASSERT_EQ(std::isnan(call.output[at]), reached) << b << " " << h << " " << t << " " << e;
          if (!reached) {
            ASSERT_NEAR(call.output[at], clean[at], 1e-4);
          }
        }
      }
    }
  }
}

TEST_P(Recurrent, PoisonReachesLaterTokensOfItsHeadOnly) {
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    Call call(kind);
    call.Run();
    const std::vector<float> clean = call.output;
    float& value = call.v[static_cast<size_t>((1 * call.len + 70) * call.dim_v + 3)];
    const float before = value;
    value = kNan;
    call.Run();
    ExpectPoisoned(call, clean, kind >= Kind::kLearning);  // its norm mixes columns
    value = before;
    std::vector<float>& keys = kind == Kind::kComplement ? call.gates : call.k;
    keys[static_cast<size_t>((1 * call.len + 70) * call.dim + 3)] = kNan;
    call.Run();
    ExpectPoisoned(call, clean, true);
  }
}

// The last positions that there are have their places in mini-batches too.
TEST_P(Recurrent, PlacesInMiniBatchesReachTheLastPosition) {
  Call near(Kind::kLearningInPart), far(Kind::kLearningInPart);
  const std::array<int64_t, 1> small = {10}, large = {std::numeric_limits<int64_t>::max() - 101};
  ASSERT_EQ(large[0] % 16, small[0]);
  near.options.position_offset = small;
  far.options.position_offset = large;
  near.Run();
  far.Run();
  EXPECT_EQ(far.output, near.output);
}

TEST_P(Recurrent, TokensBeyondTheLengthAreNeverRead) {
  const std::vector<int32_t> lengths = {100, 37};
  for (const Kind kind : kKinds) {
    Call call(kind);
    call.options.key_lengths = lengths;
    if (!call.options.normalize && kind < Kind::kLearning) call.options.skip = call.skip;
    call.Run();
    const std::vector<float> expected = call.output;
    const auto spoil = [&](std::vector<float>& values, int64_t dim) {
      for (int64_t h = 0; h < call.kv_heads; ++h) {
        const int64_t head = (call.kv_heads + h) * call.len * dim;
        std::fill(values.begin() + head + 37 * dim, values.begin() + head + call.len * dim, kNan);
      }
    };
    spoil(call.k, call.dim);
    spoil(call.v, call.dim_v);
    spoil(call.gates, call.dim);
    spoil(call.betas, 1);
    spoil(call.erase_keys, call.dim);
    spoil(call.erase_rates, call.dim);
    call.Run();
    EXPECT_EQ(call.output, expected) << static_cast<int>(kind);
  }
}

TEST_P(Recurrent, AGateOfMinusInfinityForgetsEverything) {
  Call call;
  call.options.feature_map = FeatureMap::kUnit;
  call.options.log_decay = call.Gates();
  for (int64_t head = 0; head < call.batch * call.kv_heads; ++head) {
    const auto token = call.gates.begin() + (head * call.len + 80) * call.dim;
    std::fill(token, token + call.dim, -std::numeric_limits<float>::infinity());
  }
  call.Run();
  const std::vector<double> expected = Doubles(call.output);
  // Without the first 80 tokens.
  for (float& value : call.v) value = std::abs(value);
  for (int64_t head = 0; head < call.batch * call.kv_heads; ++head) {
    const auto first = call.v.begin() + head * call.len * call.dim_v;
    std::fill(first, first + 80 * call.dim_v, 0.0f);
  }
  call.Run();
  for (int64_t head = 0; head < call.batch * call.heads; ++head) {
    for (int64_t n = 80 * call.dim_v; n < call.len * call.dim_v; ++n) {
      const size_t at = static_cast<size_t>(head * call.len * call.dim_v + n);
      ASSERT_NEAR(call.output[at], expected[at], 1e-5);
    }
  }
}

TEST_P(Recurrent, WithoutChannelsNothingIsRead) {
  for (const int64_t len : {1, 100}) {
    const std::vector<float> values(static_cast<size_t>(len), 3.0f), gates(values.size(), -1.0f);
    std::vector<float> output(values.size(), kNan);
    RecurrentOptions options;
    options.scale = 1;
    options.log_decay = Contiguous(gates.data(), 1, 1, len, 1);
    const float nothing = 0;
    const auto rows = Contiguous(&nothing, 1, 1, len, 0);
    RecurrentAttention(rows, rows, Contiguous(values.data(), 1, 1, len, 1), options,
                       {Contiguous(output.data(), 1, 1, len, 1)});
    EXPECT_EQ(output, std::vector<float>(values.size()));
  }
}

template <class Change>
void ExpectError(ErrorCode code, const std::string& part, const Change& change) {
  Call call;
  change(call);
  try {
    call.Run();
    FAIL() << "accepted: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  for (const float x : call.output) ASSERT_TRUE(std::isnan(x)) << "written before the error";
}

TEST(RecurrentSteps, AMillionAllocateNothing) {
  const float x[4] = {0.5f, -1, 2, 0.25f}, gate[4] = {-1, -0.5f, -0.25f, 0}, beta = 0.5f;
  float state[16] = {}, output[4];
  const TensorView<const float> row = Contiguous(x, 1, 1, 1, 4);
  RecurrentOptions options;
  options.delta = true;
  options.feature_map = FeatureMap::kUnit;
  options.log_decay = Contiguous(gate, 1, 1, 1, 4);
  options.beta = Contiguous(&beta, 1, 1, 1, 1);
  const int64_t before = Allocations();
  const std::vector<int> counted(1);
  ASSERT_EQ(Allocations(), before + 1) << "the counter sees nothing";
  for (int n = 0; n < 1'000'000; ++n) {
    RecurrentStep(row, row, row, options, Contiguous(state, 1, 1, 4, 4),
                  Contiguous(output, 1, 1, 1, 4));
  }
  EXPECT_EQ(Allocations(), before + 1);
  for (const float number : output) EXPECT_TRUE(std::isfinite(number));
}

TEST(RecurrentErrors, NameTheArgument) {
  ExpectError(ErrorCode::kRange, "chunk_len = 0", [](Call& c) { c.options.chunk_len = 0; });
  ExpectError(ErrorCode::kRange, "log_decay holds 0.5", [](Call& c) {
    c.gates[7] = 0.5f;
    c.options.log_decay = c.Gates();
  });
  ExpectError(ErrorCode::kUnsupported, "normalize",
              [](Call& c) { c.options.normalize = c.options.delta = true; });
  ExpectError(ErrorCode::kRange, "scale", [](Call& c) { c.options.scale = kNan; });
  ExpectError(ErrorCode::kRange, "scale = 1e-300", [](Call& c) { c.options.scale = 1e-300; });
  ExpectError(ErrorCode::kOption, "feature_map = 99",
              [](Call& c) { c.options.feature_map = static_cast<FeatureMap>(99); });
  ExpectError(ErrorCode::kShape, "initial_state", [](Call& c) {
    c.options.initial_state = c.State();
    c.options.initial_state.shape[3] = 2;
  });
  static const std::vector<int32_t> too_long = {3, 101};
  ExpectError(ErrorCode::kRange, "key_lengths holds 101",
              [](Call& c) { c.options.key_lengths = too_long; });
  ExpectError(ErrorCode::kShape, "not a multiple", [](Call& c) { c.heads = 3; });
}

// All but a state in place is read while results are written.
TEST(RecurrentErrors, ResultsShareNoMemoryWithOptions) {
  const auto expect = [](Kind kind, const std::string& name, auto RecurrentOptions::*option) {
    for (const bool in_state : {false, true}) {
      Call call(kind);
      std::vector<float>& result = in_state ? call.state : call.output;
      std::fill(result.begin(), result.end(), 0.0f);
      const auto before = result;
      auto& view = call.options.*option;
      ASSERT_TRUE(view.has_value()) << name;
      view.data = result.data();
      view.strides = {0, 0, 0, 1};
      try {
        call.Run();
        ADD_FAILURE() << "accepted: " << name;
      } catch (const Error& error) {
        const std::string what = error.what();
        EXPECT_NE(what.find((in_state ? "state overlaps " : "output overlaps ") + name),
                  std::string::npos)
            << what;
      }
      EXPECT_EQ(result, before);
    }
  };
  expect(Kind::kChannels, "log_decay", &RecurrentOptions::log_decay);
  expect(Kind::kDecayDelta, "beta", &RecurrentOptions::beta);
  expect(Kind::kBonus, "bonus", &RecurrentOptions::bonus);
  expect(Kind::kErasing, "erase_key", &RecurrentOptions::erase_key);
  expect(Kind::kErasing, "erase_rate", &RecurrentOptions::erase_rate);
  expect(Kind::kLevels, "level_weights", &RecurrentOptions::level_weights);
  expect(Kind::kRandom, "projection", &RecurrentOptions::projection);
}

TEST(RecurrentErrors, ResultsShareNoMemoryWithLists) {
  const auto expect = [](Kind kind, const std::string& name, const auto& give) {
    Call call(kind);
    std::fill(call.output.begin(), call.output.end(), 0.0f);
    give(call, call.output.data());
    try {
      call.Run();
      ADD_FAILURE() << "accepted: " << name;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("output overlaps " + name), std::string::npos) << what;
    }
  };
  expect(Kind::kDecay, "skip", [](Call& c, float* at) {
    c.options.skip = {at, static_cast<size_t>(c.heads)};
  });
  expect(Kind::kLearning, "norm_weight", [](Call& c, float* at) {
    c.options.norm_weight = {at, static_cast<size_t>(c.kv_heads * c.dim)};
  });
  expect(Kind::kLearning, "norm_bias", [](Call& c, float* at) {
    c.options.norm_bias = {at, static_cast<size_t>(c.kv_heads * c.dim)};
  });
  expect(Kind::kLearning, "position_rate", [](Call& c, float* at) {
    c.options.position_rate = {at, 16};
  });
}

TEST(RecurrentErrors, AStepIsOneToken) {
  Call call;
  EXPECT_THROW(
      RecurrentStep(call.Q(), call.K(), call.V(), call.options, call.State(), call.Output()),
      Error);
}

TEST(RecurrentErrors, OfFeaturesNameTheArgument) {
  const auto expect = [](Kind kind, ErrorCode code, const std::string& part, const auto& change) {
    Call call(kind);
    change(call);
    try {
      call.Run();
      FAIL() << "accepted: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect(Kind::kRandom, ErrorCode::kUnsupported, "normalize",
         [](Call& c) { c.options.normalize = false; });
  expect(Kind::kRandom, ErrorCode::kRange, "num_features = 0",
         [](Call& c) { c.options.projection.shape[2] = 0; });
  expect(Kind::kRandom, ErrorCode::kShape, "projection",
         [](Call& c) { c.options.projection.shape[3] = 5; });
  expect(Kind::kCosine, ErrorCode::kRange, "period = 0", [](Call& c) { c.options.period = 0; });
  expect(Kind::kCosine, ErrorCode::kRange, "positions reach from 0 to 99",
         [](Call& c) { c.options.period = 99; });
  static const std::vector<int64_t> last = {std::numeric_limits<int64_t>::max()};
  expect(Kind::kCosine, ErrorCode::kRange,
         "positions reach from 9223372036854775807 to 9223372036854775807",
         [](Call& c) { c.options.position_offset = last; });
  static const std::vector<int64_t> offsets = {0, 1, 2};
  expect(Kind::kCosine, ErrorCode::kShape, "position_offset has 3",
         [](Call& c) { c.options.position_offset = offsets; });
  expect(Kind::kBonus, ErrorCode::kUnsupported, "bonus", [](Call& c) { c.options.delta = true; });
  expect(Kind::kBonus, ErrorCode::kShape, "bonus", [](Call& c) { c.options.bonus.shape[1] = 2; });
  expect(Kind::kLevels, ErrorCode::kRange, "has 7 levels, for 64 tokens: expected 8 levels",
         [](Call& c) { c.options.level_weights.shape[3] = 7; });
  expect(Kind::kLevels, ErrorCode::kShape, "level_weights",
         [](Call& c) { c.options.level_weights.shape[1] = 3; });
  expect(Kind::kLevels, ErrorCode::kOption, "position_offset",
         [](Call& c) { c.options.initial_state = c.State(); });
  expect(Kind::kLevels, ErrorCode::kUnsupported, "level_weights",
         [](Call& c) { c.options.causal = false; });
  expect(Kind::kLearning, ErrorCode::kRange, "mini_batch = -1",
         [](Call& c) { c.options.mini_batch = -1; });
  expect(Kind::kLearning, ErrorCode::kUnsupported, "mini_batch",
         [](Call& c) { c.options.scale = 2; });
  static const std::vector<float> norm(7);
  expect(Kind::kLearning, ErrorCode::kShape, "norm_bias has 7",
         [](Call& c) { c.options.norm_bias = norm; });
  expect(Kind::kErasing, ErrorCode::kOption, "erase_rate",
         [](Call& c) { c.options.erase_rate = {}; });
  expect(Kind::kErasing, ErrorCode::kShape, "erase_key",
         [](Call& c) { c.options.erase_key.shape[3] = 2; });
  expect(Kind::kErasing, ErrorCode::kUnsupported, "erase_key",
         [](Call& c) { c.options.delta = true; });
  expect(Kind::kComplement, ErrorCode::kRange, "log_decay holds 1",
         [](Call& c) { c.gates[5] = 1; });
}

}  // namespace
}  // namespace heed::testing
