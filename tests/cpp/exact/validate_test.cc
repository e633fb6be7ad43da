// Bad input: a clear Error that names the argument, nothing written, and the next call works.
#include <cmath>
#include <functional>
#include <limits>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/attention.h"

namespace heed::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kHuge = int64_t{1} << 40;

// The arguments of a valid call, for a test to spoil.
struct Call {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = 5,
                              .kv_len = 5,
                              .head_dim = 8,
                              .head_dim_v = 6});
  Buffer<float> output = Buffer<float>({2, 4, 5, 6}, Layout::kDense, kNan);
  Buffer<float> lse = Buffer<float>({2, 4, 5, 1}, Layout::kDense, kNan);
  Buffer<float> pairs = Buffer<float>({2, 4, 5, 5}, Layout::kDense, kNan);
  TensorView<const float> q = c.q.view(), k = c.k.view(), v = c.v.view();
  AttentionOptions options;
  AttentionOutputs outputs{.output = output.view()};
  std::vector<float> floats;  // for spans
  std::vector<int32_t> lengths;

  void Run() { Attention(q, k, v, options, outputs); }
  const float* Written() { return output.view().data; }
};

using Spoil = std::function<void(Call&)>;

// Runs a spoiled call and returns its message; the outputs must keep their NaN, and an unspoiled
// call afterwards must work.
std::string ExpectError(ErrorCode code, const Spoil& spoil) {
  Call call;
  spoil(call);
  std::string message;
  try {
    call.Run();
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
    message = error.what();
  }
  for (const Buffer<float>* buffer : {&call.output, &call.lse, &call.pairs}) {
    for (const float x : buffer->Elements()) EXPECT_TRUE(std::isnan(x)) << message;
  }
  Call next;
  next.Run();
  for (const float x : next.output.Elements()) EXPECT_TRUE(std::isfinite(x)) << message;
  return message;
}

TEST(AttentionErrors, MissingTensorsAreNamed) {
  EXPECT_THAT(ExpectError(ErrorCode::kOption, [](Call& c) { c.q.data = nullptr; }), HasSubstr("q"));
  EXPECT_THAT(ExpectError(ErrorCode::kOption, [](Call& c) { c.k.data = nullptr; }), HasSubstr("k"));
  EXPECT_THAT(ExpectError(ErrorCode::kOption, [](Call& c) { c.v.data = nullptr; }), HasSubstr("v"));
  EXPECT_THAT(ExpectError(ErrorCode::kOption, [](Call& c) { c.outputs.output.data = nullptr; }),
              HasSubstr("output"));
}

TEST(AttentionErrors, SizesThatDoNotFitNameTensorAndSizes) {
  const auto shape = [](const Spoil& spoil) { return ExpectError(ErrorCode::kShape, spoil); };
  EXPECT_THAT(shape([](Call& c) { c.k.shape[0] = 1; }), AllOf(HasSubstr("k"), HasSubstr("batch")));
  EXPECT_THAT(shape([](Call& c) { c.k.shape[3] = 7; }), HasSubstr("head_dim"));
  EXPECT_THAT(shape([](Call& c) { c.v.shape[2] = 4; }), HasSubstr("v"));
  EXPECT_THAT(shape([](Call& c) { c.v.shape[1] = 1; }), HasSubstr("v"));
  EXPECT_THAT(shape([](Call& c) { c.q.shape[1] = 3; }), HasSubstr("heads"));
  EXPECT_THAT(shape([](Call& c) { c.k.shape[1] = c.v.shape[1] = 0; }), HasSubstr("heads"));
  EXPECT_THAT(shape([](Call& c) { c.outputs.output.shape[3] = 5; }), HasSubstr("output"));
  EXPECT_THAT(shape([](Call& c) { c.outputs.output.shape[2] = 4; }), HasSubstr("output"));
}

TEST(AttentionErrors, NegativeAndOverflowingExtentsAreRefused) {
  const auto shape = [](const Spoil& spoil) { return ExpectError(ErrorCode::kShape, spoil); };
  EXPECT_THAT(shape([](Call& c) { c.q.shape[2] = -1; }), HasSubstr("q"));
  EXPECT_THAT(shape([](Call& c) { c.q.shape = {kHuge, kHuge, kHuge, 8}; }), HasSubstr("q"));
  EXPECT_THAT(shape([](Call& c) { c.k.shape[2] = c.v.shape[2] = int64_t{1} << 61; }),
              HasSubstr("k"));
  EXPECT_THAT(shape([](Call& c) { c.v.strides[2] = std::numeric_limits<int64_t>::max(); }),
              HasSubstr("v"));
  for (const size_t axis : {0, 2}) {
    EXPECT_THAT(shape([=](Call& c) { c.v.strides[axis] = std::numeric_limits<int64_t>::min(); }),
                HasSubstr("v"));
  }
}

TEST(AttentionErrors, LastDimensionMustBeContiguous) {
  const auto stride = [](const Spoil& spoil) {
    EXPECT_THAT(ExpectError(ErrorCode::kShape, spoil), HasSubstr("stride"));
  };
  stride([](Call& c) { c.q.strides[3] = 2; });
  stride([](Call& c) { c.k.strides[3] = 0; });
  stride([](Call& c) { c.v.strides[3] = -1; });
  stride([](Call& c) { c.outputs.output.strides[3] = 2; });
}

TEST(AttentionErrors, OutputsMayNotOverlapThemselvesOrOthers) {
  const auto overlap = [](const char* name, const Spoil& spoil) {
    EXPECT_THAT(ExpectError(ErrorCode::kShape, spoil),
                AllOf(HasSubstr(name), HasSubstr("overlap")));
  };
  overlap("output", [](Call& c) { c.outputs.output.strides[0] = 0; });
  overlap("output", [](Call& c) { c.outputs.output.strides[2] = 5; });
  overlap("output", [](Call& c) {
    c.q = {c.output.view().data, c.q.shape, c.q.strides};  // reads what it writes
  });
  overlap("weights", [](Call& c) { c.outputs.weights = c.outputs.scores = c.pairs.view(); });
}

TEST(AttentionErrors, OutputsMayNotOverlapWhatOptionsRead) {
  const auto overlap = [](const char* name, const Spoil& spoil) {
    EXPECT_THAT(ExpectError(ErrorCode::kShape, spoil), HasSubstr(std::string("overlaps ") + name));
  };
  overlap("keep", [](Call& c) {
    c.options.keep = Contiguous(reinterpret_cast<const uint8_t*>(c.output.view().data), 1, 1, 5, 5);
  });
  overlap("bias", [](Call& c) { c.options.bias = Contiguous(c.Written(), 1, 1, 5, 5); });
  overlap("distance_bias",
          [](Call& c) { c.options.distance_bias = Contiguous(c.Written(), 1, 1, 1, 9); });
  // Their values are read before memory is compared: numbers, not the NaN of the outputs.
  const auto vector = [&](const char* name, auto set) {
    Call call;
    call.output.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = 1; });
    set(call, std::span<const float>(call.Written() + 3, 4));
    try {
      call.Run();
      ADD_FAILURE() << "accepted: " << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("overlaps ") + name));
    }
  };
  vector("sinks", [](Call& c, std::span<const float> x) { c.options.sinks = x; });
  vector("alibi_slopes", [](Call& c, std::span<const float> x) { c.options.alibi_slopes = x; });
  vector("temperature", [](Call& c, std::span<const float> x) {
    c.options.score = Score::kCosine;
    c.options.temperature = x;
  });
}

TEST(AttentionErrors, RowsShiftedIntoThemselvesOverlap) {
  std::vector<float> memory(2 * 4 * 5 * 16 + 16, 0.5f);
  Call call;
  call.q = {memory.data(), {2, 4, 5, 8}, {320, 80, 16, 1}};
  call.outputs.output = {memory.data() + 16, {2, 4, 5, 6}, {320, 80, 16, 1}};
  EXPECT_THROW(call.Run(), Error);
  call.outputs.output.data = memory.data() + 8;  // beside the queries
  call.Run();
}

TEST(AttentionErrors, ValuesBeyondEnumsAreNamed) {
  const auto option = [](const Spoil& spoil) { return ExpectError(ErrorCode::kOption, spoil); };
  EXPECT_THAT(option([](Call& c) { c.options.score = static_cast<Score>(99); }),
              HasSubstr("score = 99"));
  EXPECT_THAT(option([](Call& c) { c.options.normalize = static_cast<Normalize>(-1); }),
              HasSubstr("normalize = -1"));
  EXPECT_THAT(option([](Call& c) { c.options.kernel = static_cast<Kernel>(99); }),
              HasSubstr("kernel = 99"));
  EXPECT_THAT(option([](Call& c) { c.options.relative_rows = static_cast<RelativeRows>(9); }),
              HasSubstr("relative_rows = 9"));
  EXPECT_THAT(option([](Call& c) { c.outputs.score_stage = static_cast<ScoreStage>(3); }),
              HasSubstr("score_stage = 3"));
  EXPECT_THAT(option([](Call& c) {
                c.floats.assign(32 * 4, 0.0f);
                c.options.bucket_bias = Contiguous(c.floats.data(), 1, 1, 32, 4);
                c.options.bucket_direction = static_cast<T5Direction>(2);
              }),
              HasSubstr("bucket_direction = 2"));
}

TEST(AttentionErrors, OptionalOutputsMustHaveTheirShapes) {
  const auto shape = [](const Spoil& spoil) { return ExpectError(ErrorCode::kShape, spoil); };
  EXPECT_THAT(shape([](Call& c) { c.outputs.lse = c.pairs.view(); }), HasSubstr("lse"));
  EXPECT_THAT(shape([](Call& c) { c.outputs.weights = c.lse.view(); }), HasSubstr("weights"));
  EXPECT_THAT(shape([](Call& c) { c.outputs.scores = c.lse.view(); }), HasSubstr("scores"));
}

TEST(AttentionErrors, NumbersOutOfRangeAreNamedWithTheirValue) {
  const auto range = [](const Spoil& spoil) { return ExpectError(ErrorCode::kRange, spoil); };
  for (const double bad : {static_cast<double>(kNan), static_cast<double>(kInf), 1e300}) {
    EXPECT_THAT(range([=](Call& c) { c.options.scale = bad; }), HasSubstr("scale"));
    EXPECT_THAT(range([=](Call& c) { c.options.softcap = bad; }), HasSubstr("softcap"));
  }
  EXPECT_THAT(range([](Call& c) { c.options.scale = 1e-300; }),
              AllOf(HasSubstr("scale = 1e-300"), HasSubstr("float32")));
  EXPECT_THAT(range([](Call& c) { c.options.softcap = 0.0; }), HasSubstr("softcap = 0"));
  EXPECT_THAT(range([](Call& c) { c.options.softcap = -3.0; }), HasSubstr("softcap = -3"));
  EXPECT_THAT(range([](Call& c) { c.options.softcap = 1e-39; }), HasSubstr("softcap = 1e-39"));
  EXPECT_THAT(range([](Call& c) {
                c.options.window = Window{-1, 0};
              }),
              AllOf(HasSubstr("window"), HasSubstr("-1")));
  EXPECT_THAT(range([](Call& c) { c.options.window = Window{0, -7}; }), HasSubstr("-7"));
  EXPECT_THAT(range([](Call& c) {
                c.options.causal = true;
                c.options.query_offset = QueryOffset::At(std::numeric_limits<int64_t>::max());
              }),
              HasSubstr("query_offset"));
}

TEST(AttentionErrors, KeyLengthsMustFitTheKeys) {
  const auto lengths = [](ErrorCode code, std::vector<int32_t> values) {
    return ExpectError(code, [&](Call& c) {
      c.lengths = values;
      c.options.key_lengths = c.lengths;
    });
  };
  EXPECT_THAT(lengths(ErrorCode::kRange, {5, 6}), AllOf(HasSubstr("key_lengths"), HasSubstr("6")));
  EXPECT_THAT(lengths(ErrorCode::kRange, {-1, 5}), HasSubstr("-1"));
  EXPECT_THAT(lengths(ErrorCode::kShape, {1, 2, 3}), HasSubstr("key_lengths"));
}

TEST(AttentionErrors, ListsPerHeadMustHaveOneFiniteNumberPerHead) {
  const auto list = [](ErrorCode code, std::vector<float> values, bool sinks) {
    return ExpectError(code, [&](Call& c) {
      c.floats = values;
      (sinks ? c.options.sinks : c.options.alibi_slopes) = c.floats;
    });
  };
  EXPECT_THAT(list(ErrorCode::kShape, {1, 2}, false), HasSubstr("alibi_slopes"));
  EXPECT_THAT(list(ErrorCode::kShape, {1, 2, 3, 4, 5}, true), HasSubstr("sinks"));
  EXPECT_THAT(list(ErrorCode::kRange, {1, 2, 3, kInf}, false), HasSubstr("alibi_slopes"));
  EXPECT_THAT(list(ErrorCode::kRange, {1, -kInf, 3, 4}, false), HasSubstr("alibi_slopes"));
  EXPECT_THAT(list(ErrorCode::kRange, {1, 2, 3, kNan}, true), HasSubstr("sinks"));
  EXPECT_THAT(list(ErrorCode::kRange, {1, 2, 3, kInf}, true), HasSubstr("sinks"));
}

TEST(AttentionErrors, BiasAndKeepMustBroadcast) {
  Buffer<float> bias({2, 2, 5, 5}, Layout::kDense, 0);
  Buffer<uint8_t> keep({3, 1, 5, 5}, Layout::kDense, 1);
  EXPECT_THAT(ExpectError(ErrorCode::kShape, [&](Call& c) { c.options.bias = bias.view(); }),
              AllOf(HasSubstr("bias"), HasSubstr("[2, 2, 5, 5]"), HasSubstr("[2, 4, 5, 5]")));
  EXPECT_THAT(ExpectError(ErrorCode::kShape, [&](Call& c) { c.options.keep = keep.view(); }),
              HasSubstr("keep"));
}

TEST(AttentionErrors, PositionsWithDifferentLengthsNeedAnOffset) {
  const auto missing = [](const char* option, const Spoil& spoil) {
    const std::string message = ExpectError(ErrorCode::kOption, [&](Call& c) {
      c.k.shape[2] = c.v.shape[2] = 4;
      spoil(c);
    });
    EXPECT_THAT(message, AllOf(HasSubstr("query_offset"), HasSubstr(option), HasSubstr("0"),
                               HasSubstr("\"end\"")));
  };
  missing("causal", [](Call& c) { c.options.causal = true; });
  missing("window", [](Call& c) { c.options.window = Window{1, std::nullopt}; });
  missing("alibi_slopes", [](Call& c) {
    c.floats = {1, 1, 1, 1};
    c.options.alibi_slopes = c.floats;
  });
}

TEST(AttentionErrors, OffsetsPerBatchEntryMustBeAsManyAsEntries) {
  EXPECT_THAT(ExpectError(ErrorCode::kShape,
                          [](Call& c) { c.options.query_offset = QueryOffset::PerBatch({1}); }),
              HasSubstr("query_offset"));
}

TEST(AttentionErrors, EndContradictsLengthsPerQuery) {
  const std::string message = ExpectError(ErrorCode::kUnsupported, [](Call& c) {
    c.lengths.assign(10, 3);
    c.options.key_lengths = c.lengths;
    c.options.causal = true;
    c.options.query_offset = QueryOffset::End();
  });
  EXPECT_THAT(message, AllOf(HasSubstr("query_offset"), HasSubstr("key_lengths")));
}

TEST(AttentionErrors, HeadDimZeroNeedsAScale) {
  EXPECT_THAT(ExpectError(ErrorCode::kShape, [](Call& c) { c.q.shape[3] = c.k.shape[3] = 0; }),
              AllOf(HasSubstr("head_dim"), HasSubstr("scale")));
}

void MakeKernelSum(Call& c, Kernel kernel) {
  c.options.score = Score::kSquaredDistance;
  c.options.normalize = Normalize::kKernelSum;
  c.options.kernel = kernel;
}

TEST(AttentionErrors, KernelSumsRefuseWhatActsOnLogits) {
  const auto refused = [](const char* name, const Spoil& spoil) {
    EXPECT_THAT(ExpectError(ErrorCode::kUnsupported,
                            [&](Call& c) {
                              MakeKernelSum(c, Kernel::kBoxcar);
                              spoil(c);
                            }),
                HasSubstr(name));
  };
  refused("scale", [](Call& c) { c.options.scale = 2.0; });
  refused("softcap", [](Call& c) { c.options.softcap = 2.0; });
  refused("bias", [](Call& c) { c.options.bias = c.pairs.view(); });
  refused("lse", [](Call& c) { c.outputs.lse = c.lse.view(); });
  refused("kSquaredDistance", [](Call& c) { c.options.score = Score::kDot; });
  refused("sinks", [](Call& c) {
    c.floats = {0, 0, 0, 0};
    c.options.sinks = c.floats;
  });
}

TEST(AttentionErrors, WidthsMustBePositiveFiniteAndFit) {
  const auto width = [](ErrorCode code, std::vector<float> values) {
    EXPECT_THAT(ExpectError(code,
                            [&](Call& c) {
                              MakeKernelSum(c, Kernel::kGaussian);
                              c.floats = values;
                              c.options.width = c.floats;
                            }),
                HasSubstr("width"));
  };
  width(ErrorCode::kRange, {0});
  width(ErrorCode::kRange, {-1});
  width(ErrorCode::kRange, {kNan});
  width(ErrorCode::kRange, {kInf});
  width(ErrorCode::kRange, {1, 1, 1, 1, 1, 1, 1, 0});
  width(ErrorCode::kShape, {1, 1});
}

TEST(AttentionErrors, WindowOfTheLastNoneAndSlopesOfNoHeadsAreRefused) {
  for (const int64_t n : {0, -3}) EXPECT_THROW(Window::LastN(n), Error);
  EXPECT_EQ(Window::LastN(4).left, 3);
  EXPECT_EQ(Window::LastN(4).right, 0);
  for (const int64_t heads : {0, -1}) EXPECT_THROW(AlibiSlopes(heads), Error);
}

TEST(AttentionErrors, EveryCodeHasItsWord) {
  EXPECT_STREQ(ErrorCodeName(ErrorCode::kShape), "shape");
  EXPECT_STREQ(ErrorCodeName(ErrorCode::kDType), "dtype");
  EXPECT_STREQ(ErrorCodeName(ErrorCode::kRange), "range");
  EXPECT_STREQ(ErrorCodeName(ErrorCode::kOption), "option");
  EXPECT_STREQ(ErrorCodeName(ErrorCode::kUnsupported), "unsupported");
  EXPECT_STREQ(ErrorCodeName(ErrorCode::kMemory), "memory");
}

}  // namespace
}  // namespace heed::testing
