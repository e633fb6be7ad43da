// RecurrentAttention and RecurrentStep: the forms agree, states carry over, gates and poison stay
// where they belong, and bad arguments are named.
#include "heed/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "allocations.h"
#include "heed/error.h"
#include "heed/thread_pool.h"
#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Tensors of a call with everything switched on; [batch, heads, len, dim] without gaps.
struct Call {
  int64_t batch = 2, heads = 4, kv_heads = 2, len = 100, dim = 12, dim_v = 10;
  std::vector<float> q, k, v, gates, betas, state, output;
  RecurrentOptions options;

  Call() {
    q = LogDecays(batch * heads * len * dim, 1);
    k = LogDecays(batch * kv_heads * len * dim, 2);
    v = Betas(batch * kv_heads * len * dim_v, 3);
    gates = LogDecays(batch * kv_heads * len * dim, 4);
    betas = Betas(batch * kv_heads * len, 5);
    state.assign(static_cast<size_t>(batch * kv_heads * dim * dim_v), 0.0f);
    output.assign(static_cast<size_t>(batch * heads * len * dim_v), kNan);
    options.feature_map = FeatureMap::kUnit;
  }

  template <class T>
  static TensorView<T> View(T* data, int64_t b, int64_t h, int64_t len, int64_t dim) {
    return {data, {b, h, len, dim}, {h * len * dim, len * dim, dim, 1}};
  }
  TensorView<const float> Q() const { return View(q.data(), batch, heads, len, dim); }
  TensorView<const float> K() const { return View(k.data(), batch, kv_heads, len, dim); }
  TensorView<const float> V() const { return View(v.data(), batch, kv_heads, len, dim_v); }
  TensorView<const float> Gates() const { return View(gates.data(), batch, kv_heads, len, dim); }
  TensorView<const float> Beta() const {
    return View(betas.data(), batch, kv_heads, len, int64_t{1});
  }
  TensorView<float> State() { return View(state.data(), batch, kv_heads, dim, dim_v); }
  TensorView<float> Output() { return View(output.data(), batch, heads, len, dim_v); }

  void Run(ThreadPool* pool = nullptr) {
    RecurrentAttention(Q(), K(), V(), options, {Output(), State()}, pool);
  }
};

// Tokens [from, to) of a view.
template <class T>
TensorView<T> Tokens(TensorView<T> view, int64_t from, int64_t to) {
  view.data += from * view.strides[2];
  view.shape[2] = to - from;
  return view;
}

std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

class Recurrent : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Recurrent);

// Every kind of decay, with and without erasing.
std::vector<Call> Kinds() {
  std::vector<Call> calls(6);
  for (size_t n = 0; n < calls.size(); ++n) calls[n].options.delta = n % 2 == 1;
  return calls;
}
void SetGates(Call& call, size_t kind) {
  call.options.beta = call.Beta();
  if (kind / 2 == 1) {
    call.options.log_decay = call.Gates();
    call.options.log_decay.shape[3] = 1;
  }
  if (kind / 2 == 2) call.options.log_decay = call.Gates();
}

TEST_P(Recurrent, StepsAgreeWithTheSequence) {
  std::vector<Call> calls = Kinds();
  for (size_t n = 0; n < calls.size(); ++n) {
    Call& call = calls[n];
    SetGates(call, n);
    call.Run();
    const std::vector<double> expected = Doubles(call.output), last = Doubles(call.state);
    std::fill(call.state.begin(), call.state.end(), 0.0f);
    std::fill(call.output.begin(), call.output.end(), kNan);
    for (int64_t t = 0; t < call.len; ++t) {
      RecurrentOptions options = call.options;
      options.beta = Tokens(call.options.beta, t, t + 1);
      if (options.log_decay.has_value()) {
        options.log_decay = Tokens(call.options.log_decay, t, t + 1);
      }
      RecurrentStep(Tokens(call.Q(), t, t + 1), Tokens(call.K(), t, t + 1),
                    Tokens(call.V(), t, t + 1), options, call.State(),
                    Tokens(call.Output(), t, t + 1));
    }
    const std::string what = "kind " + std::to_string(n);
    ExpectResultsNear(Doubles(call.output), expected, 2 * kRecurrentMaxError, what);
    ExpectResultsNear(Doubles(call.state), last, 2 * kRecurrentMaxError, what + ", state");
  }
}

TEST_P(Recurrent, StatesCarryOverAtAnyToken) {
  std::vector<Call> calls = Kinds();
  for (size_t n = 0; n < calls.size(); ++n) {
    Call& call = calls[n];
    SetGates(call, n);
    call.Run();
    const std::vector<double> expected = Doubles(call.output);
    for (const int64_t cut : {1, 50, 64, 99}) {
      std::fill(call.state.begin(), call.state.end(), 0.0f);
      for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, cut}, {cut, call.len}}) {
        RecurrentOptions options = call.options;
        options.initial_state = call.State();
        options.beta = Tokens(options.beta, from, to);
        if (options.log_decay.has_value()) options.log_decay = Tokens(options.log_decay, from, to);
        RecurrentAttention(Tokens(call.Q(), from, to), Tokens(call.K(), from, to),
                           Tokens(call.V(), from, to), options,
                           {Tokens(call.Output(), from, to), call.State()});
      }
      ExpectResultsNear(Doubles(call.output), expected, 2 * kRecurrentMaxError,
                        "cut at " + std::to_string(cut));
    }
  }
}

TEST_P(Recurrent, SameBitsForAnyNumberOfThreads) {
  Call call;
  SetGates(call, 5);
  call.options.delta = true;
  call.Run();
  const std::vector<float> expected = call.output;
  for (const int threads : {1, 2, 3}) {
    const auto pool = MakeThreadPool(threads);
    std::fill(call.output.begin(), call.output.end(), kNan);
    call.Run(pool.get());
    EXPECT_EQ(call.output, expected) << threads;
  }
}

TEST_P(Recurrent, PoisonReachesLaterTokensOfItsHeadOnly) {
  for (size_t n = 0; n < 6; ++n) {
    std::vector<Call> calls = Kinds();
    Call& call = calls[n];
    SetGates(call, n);
    call.Run();
    const std::vector<float> clean = call.output;
    // Value 3 of token 70, KV head 1 of batch entry 0.
    call.v[static_cast<size_t>((1 * call.len + 70) * call.dim_v + 3)] = kNan;
    call.Run();
    for (int64_t b = 0; b < call.batch; ++b) {
      for (int64_t h = 0; h < call.heads; ++h) {
        for (int64_t t = 0; t < call.len; ++t) {
          for (int64_t e = 0; e < call.dim_v; ++e) {
            const size_t at =
                static_cast<size_t>(((b * call.heads + h) * call.len + t) * call.dim_v + e);
            const bool reached = b == 0 && h >= 2 && t >= 70 && e == 3;
            ASSERT_EQ(std::isnan(call.output[at]), reached)
                << b << " " << h << " " << t << " " << e;
            if (!reached) {
              ASSERT_NEAR(call.output[at], clean[at], 1e-4);
            }
          }
        }
      }
    }
  }
}

TEST_P(Recurrent, TokensBeyondTheLengthAreNeverRead) {
  Call call;
  SetGates(call, 5);
  call.options.delta = true;
  const std::vector<int32_t> lengths = {100, 37};
  call.options.key_lengths = lengths;
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
  call.Run();
  EXPECT_EQ(call.output, expected);
}

TEST_P(Recurrent, AGateOfMinusInfinityForgetsEverything) {
  Call call;
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
  ExpectError(ErrorCode::kShape, "initial_state", [](Call& c) {
    c.options.initial_state = c.State();
    c.options.initial_state.shape[3] = 2;
  });
  static const std::vector<int32_t> too_long = {3, 101};
  ExpectError(ErrorCode::kRange, "key_lengths holds 101",
              [](Call& c) { c.options.key_lengths = too_long; });
  ExpectError(ErrorCode::kShape, "not a multiple", [](Call& c) { c.heads = 3; });
}

TEST(RecurrentErrors, AStepIsOneToken) {
  Call call;
  EXPECT_THROW(
      RecurrentStep(call.Q(), call.K(), call.V(), call.options, call.State(), call.Output()),
      Error);
}

}  // namespace
}  // namespace heed::testing
