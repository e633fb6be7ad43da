// The parts of --device cuda that need no GPU: cases, rows to look at, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/cuda.h"
#include "heed/error.h"
#include "heed/recurrent.h"
#include "heed/request.h"
#include "heed/thread_pool.h"
#include "native_bench/backward.h"
#include "native_bench/device_attention.h"
#include "native_bench/device_cases.h"
#include "native_bench/device_recurrence.h"
#include "native_bench/device_run.h"
#include "native_bench/problem.h"
#include "native_bench/verify.h"

namespace heed::bench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr const char* kRecurrences[] = {"linear",     "retention",        "lightning",
                                        "mamba2",     "gated_linear",     "delta_rule",
                                        "kimi_delta", "gated_delta_rule", "rwkv7"};

Case RecurrentCase(const char* mechanism, DType dtype) {
  const bool is_linear = std::string_view(mechanism) == "linear";
  return {.mechanism = mechanism,
          .batch = 2,
          .heads = {4, 2},
          .lengths = {70, 70},
          .head_dim = 16,
          .mask = is_linear ? Mask::kCausal : Mask::kFull,
          .dtype = dtype};
}

TensorView<const float> AsRankFour(const OwnedTensor& tensor) {
  Extents shape = {1, 1, 1, 1};
  std::copy_backward(tensor.shape().begin(), tensor.shape().end(), shape.end());
  return Contiguous<const float>(tensor.floats(), shape[0], shape[1], shape[2], shape[3]);
}

TEST(Device, OwnCasesHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Case& c : OwnDeviceCases()) {
    EXPECT_TRUE(names.insert(c.Name()).second) << c.Name();
    EXPECT_TRUE(c.Name().ends_with("/cuda")) << c.Name();
    EXPECT_EQ(c.device, Device::kCuda);
  }
}

TEST(Device, GradientsOnHopperHaveUpTo128Columns) {
  Case c;
  c.head_dim = 128;
  EXPECT_EQ(RefuseHopperGradients(c), "");
  c.head_dim = 192, c.head_dim_v = 128;
  EXPECT_NE(RefuseHopperGradients(c), "");
  c.head_dim = 64, c.head_dim_v = 136;
  EXPECT_NE(RefuseHopperGradients(c), "");
}

TEST(Device, GradientsAreOfPromptsOfTypesThatHaveThem) {
  std::set<DType> dtypes;
  for (const Case& c : OwnDeviceCases()) {
    if (!HasDeviceGradients(c)) continue;
    EXPECT_TRUE(IsPlainAttention(c) && c.lengths.q_len > 1) << c.Name();
    dtypes.insert(c.dtype);
  }
  EXPECT_THAT(dtypes, ElementsAre(DType::kFloat32, DType::kFloat16, DType::kBFloat16));
}

TEST(Device, TheKernelForHopperReads16BytesAtATime) {
  Case c = OwnDeviceCases().front();
  c.dtype = DType::kBFloat16;
  c.head_dim = 72;
  EXPECT_EQ(RefuseHopperCase(c), "");
  c.dtype = DType::kFloat8E4M3;
  EXPECT_THAT(RefuseHopperCase(c), HasSubstr("16, 32, ... 256"));
  c.head_dim = 80;
  EXPECT_EQ(RefuseHopperCase(c), "");
  c.head_dim_v = 264;
  EXPECT_NE(RefuseHopperCase(c), "");
  c.head_dim_v = 0;
  c.dtype = DType::kFloat32;
  EXPECT_THAT(RefuseHopperCase(c), HasSubstr("float8_e4m3"));
  c.dtype = DType::kFloat16;
  c.sinks = true;
  EXPECT_EQ(RefuseHopperCase(c), "");
  c.mechanism = "linear";
  EXPECT_NE(RefuseHopperCase(c), "");
}

TEST(Device, Float8HasPromptsOfEveryWidthAndMask) {
  std::set<std::pair<int64_t, int64_t>> columns;
  std::set<int64_t> lengths;
  size_t count = 0;
  for (const Case& c : OwnDeviceCases()) {
    if (c.dtype != DType::kFloat8E4M3) continue;
    columns.emplace(c.head_dim, c.ValueDim());
    lengths.insert(c.lengths.q_len);
    ++count;
    EXPECT_EQ(c.OutputDType(), DType::kBFloat16);
    EXPECT_TRUE(c.Name().ends_with("/float8_e4m3/cuda")) << c.Name();
  }
  EXPECT_THAT(columns, ElementsAre(Pair(64, 64), Pair(128, 128), Pair(192, 128), Pair(256, 256)));
  EXPECT_THAT(lengths, ElementsAre(512, 1024, 2048, 4096, 8192, 16384));
  EXPECT_EQ(count, columns.size() * lengths.size() * 2);
}

TEST(Device, PromptsHaveOneSizeOfWork) {
  std::set<std::pair<int64_t, int64_t>> columns;
  for (const Case& c : OwnDeviceCases()) {
    if (!IsPlainAttention(c) || c.lengths.q_len == 1) continue;
    columns.emplace(c.head_dim, c.ValueDim());
    EXPECT_EQ(c.batch * c.lengths.q_len, 16384) << c.Name();
    EXPECT_EQ(c.heads.num_heads * c.ValueDim(), 2048) << c.Name();
  }
  EXPECT_THAT(columns, ElementsAre(Pair(64, 64), Pair(128, 128), Pair(192, 128), Pair(256, 256)));
}

TEST(Device, EverySocketHasACaseBesideAPlainOne) {
  std::set<std::string> names;
  for (const Case& c : OwnDeviceCases()) names.insert(c.Name());
  for (const std::string heads_and_dim : {"h32:4/d64", "h32/d64", "h16:2/d128", "h16/d128"}) {
    const std::string prompt = "scaled_dot_product/b2/" + heads_and_dim + "/l8192/";
    EXPECT_TRUE(names.contains(prompt + "full/bfloat16/cuda")) << prompt;
    if (heads_and_dim.find(':') != std::string::npos) continue;
    for (const std::string socket : {"full/cap30", "full/sinks", "full/alibi", "full/keys8192",
                                     "full/device_keys8192", "causal", "causal/w1023"}) {
      const std::string name = prompt + socket + "/bfloat16/cuda";
      EXPECT_TRUE(names.contains(name)) << name;
    }
  }
}

TEST(Device, SocketsCountThePairsThatAreSeen) {
  size_t count = 0;
  for (Case c : OwnDeviceCases()) {
    if (!IsDeviceAttention(c) || IsPlainAttention(c)) continue;
    const int64_t length = c.lengths.q_len, all = length * length;
    const int64_t pairs = c.window_left ? length * 1024 - 1024 * 1023 / 2 : all;
    const int64_t flop_a_pair = 4 * c.batch * c.heads.num_heads * c.head_dim;
    EXPECT_EQ(CostOf(c).flops, static_cast<double>(flop_a_pair * pairs)) << c.Name();
    ++count;
    if (!c.key_length) continue;
    c.key_length = length / 2;
    EXPECT_EQ(CostOf(c).flops, static_cast<double>(flop_a_pair * pairs / 2)) << c.Name();
  }
  EXPECT_EQ(count, 12u);
}

TEST(Device, TheLineChoosesOtherCasesAndFilters) {
  Options options;
  options.own_cases = true;
  options.filter = "h32:8/d128/l1x65536";
  EXPECT_EQ(DeviceCases(options).size(), 4u);  // two batches, two types
  options.own_cases = false;
  options.filter = "";
  options.grid.mechanisms = {"scaled_dot_product"};
  options.grid.heads = {{4, 2}};
  options.grid.head_dims = {64};
  options.grid.lengths = {{128, 128}};
  options.grid.masks = {Mask::kCausal};
  options.grid.threads = {1};
  const std::vector<Case> cases = DeviceCases(options);
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].Name(), "scaled_dot_product/h4:2/d64/l128/causal/cuda");
}

TEST(Device, OnlyPlainAttentionIsForEveryPeer) {
  const Case c = OwnDeviceCases().front();
  EXPECT_TRUE(IsPlainAttention(c));
  const auto is_plain_with = [&](const auto& plug) {
    Case with = c;
    plug(with);
    return IsPlainAttention(with);
  };
  EXPECT_TRUE(is_plain_with([](Case& with) { with.heads = {4, 2}; }));
  EXPECT_FALSE(is_plain_with([](Case& with) { with.window_left = 3; }));
  EXPECT_FALSE(is_plain_with([](Case& with) { with.softcap = 30; }));
  EXPECT_FALSE(is_plain_with([](Case& with) { with.sinks = true; }));
  EXPECT_FALSE(is_plain_with([](Case& with) { with.alibi = true; }));
  EXPECT_FALSE(is_plain_with([](Case& with) { with.key_length = 9; }));
  EXPECT_FALSE(IsPlainAttention(OwnDeviceCases().back()));
}

TEST(Device, RecurrentPromptsOf16BitsFillTheGpuAndAreCounted) {
  std::set<std::string> mechanisms;
  for (const Case& c : OwnDeviceCases()) {
    if (!IsDeviceRecurrence(c) || c.dtype == DType::kFloat32) continue;
    mechanisms.insert(c.mechanism);
    EXPECT_EQ(c.batch * c.lengths.q_len, 16384) << c.Name();
    EXPECT_EQ(c.heads.num_heads * c.head_dim, 2048) << c.Name();
    EXPECT_EQ(c.mask == Mask::kCausal, c.mechanism == "linear") << c.Name();
  }
  EXPECT_THAT(mechanisms, ElementsAre("gated_delta_rule", "gated_linear", "kimi_delta", "linear",
                                      "mamba2", "retention", "rwkv7"));
}

TEST(Device, RecurrencesAreCountedAsOnTheCpu) {
  for (const char* mechanism : kRecurrences) {
    Case c = RecurrentCase(mechanism, DType::kBFloat16);
    c.lengths = {256, 256};
    const Problem problem(c, 1);
    const double at_least = 4.0 * static_cast<double>(c.heads.num_heads * 256 * 16 * 16 * c.batch);
    ASSERT_TRUE(problem.EstimateCost().flops.has_value()) << mechanism;
    EXPECT_GE(*problem.EstimateCost().flops, at_least) << mechanism;
    EXPECT_LE(*problem.EstimateCost().flops, 16 * at_least) << mechanism;
  }
}

// The options with which the benchmark calls the device, on the CPU's function.
TEST(Device, OptionsOfRecurrencesComputeTheRow) {
  for (const char* mechanism : kRecurrences) {
    const Case c = RecurrentCase(mechanism, DType::kFloat32);
    ASSERT_TRUE(IsDeviceRecurrence(c)) << mechanism;
    const Problem problem(c, 1);
    const auto pool = MakeThreadPool(1);
    heed::Run(problem.request(), problem.results(), pool.get());
    const std::vector<float> decays = HeadLogDecays(c);
    const OwnedTensor* skip = problem.input("skip");
    const RecurrenceInputs inputs = {
        .tensor = [&](std::string_view name) { return AsRankFour(*problem.input(name)); },
        .head_log_decays = decays.empty() ? nullptr : decays.data(),
        .skip = skip == nullptr ? std::span<const float>()
                                : std::span<const float>(skip->floats(), c.heads.num_heads)};
    std::vector<float> output(static_cast<size_t>(problem.output().size()), std::nanf(""));
    RecurrentOutputs outputs;
    outputs.output = {output.data(), problem.output().shape, problem.output().strides};
    RecurrentAttention(problem.q(), problem.k(), problem.v(), RecurrentOptionsOf(c, inputs),
                       outputs, pool.get());
    const float* expected = problem.output().data;
    EXPECT_THAT(output, ElementsAreArray(expected, output.size())) << mechanism;
  }
}

TEST(Device, OtherRowsAreNoRecurrencesOfTheDevice) {
  for (const char* mechanism : {"scaled_dot_product", "ttt_linear", "rwkv6"}) {
    EXPECT_FALSE(IsDeviceRecurrence(RecurrentCase(mechanism, DType::kFloat32))) << mechanism;
  }
}

TEST(Device, TheCostOfACaseNeedsNoMemory) {
  for (const Case& c : OwnDeviceCases()) {
    if (!IsPlainAttention(c)) continue;
    const Cost cost = CostOf(c);
    ASSERT_TRUE(cost.flops.has_value()) << c.Name();
    // FlopCount() leaves out half of the diagonal of a causal square.
    EXPECT_NEAR(*cost.flops / FlopCount(c), 1, c.mask == Mask::kCausal ? 2e-3 : 1e-9) << c.Name();
    const AttentionShapes shapes = ShapesOf(c);
    const auto count = [](const Extents& shape) {
      return shape[0] * shape[1] * shape[2] * shape[3];
    };
    const int64_t inputs = count(shapes.q) + count(shapes.k) + count(shapes.v);
    EXPECT_EQ(cost.bytes_read, inputs * ElementSize(c.dtype)) << c.Name();
    EXPECT_EQ(cost.bytes_written, count(shapes.output) * ElementSize(c.OutputDType())) << c.Name();
    EXPECT_FALSE(cost.scratch_bytes.has_value());
  }
}

TEST(Device, SampledRowsAreInsideAndReachBothEnds) {
  for (const Case& c : OwnDeviceCases()) {
    const std::vector<OutputRow> rows = SampledRows(c);
    EXPECT_GE(rows.size(), 8u) << c.Name();
    EXPECT_LE(rows.size(), 32u) << c.Name();
    for (const OutputRow& row : rows) {
      EXPECT_TRUE(row.batch >= 0 && row.batch < c.batch) << c.Name();
      EXPECT_TRUE(row.head >= 0 && row.head < c.heads.num_heads) << c.Name();
      EXPECT_TRUE(row.query >= 0 && row.query < c.lengths.q_len) << c.Name();
    }
    EXPECT_EQ(rows.front(), (OutputRow{0, 0, 0}));
    EXPECT_EQ(rows.back(), (OutputRow{c.batch - 1, c.heads.num_heads - 1, c.lengths.q_len - 1}));
  }
}

TEST(Device, AMachineWithoutAGpuSaysWhatItFoundAndNeeds) {
  const cuda::Availability state = cuda::Available();
  if (state.usable) GTEST_SKIP() << "there is a GPU: " << state.found;
  Options options;
  options.device = Device::kCuda;
  options.own_cases = true;
  const auto expect_refused = [&](const auto& run) {
    try {
      run();
      FAIL() << "ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("--device cuda"), HasSubstr(state.found),
                                      HasSubstr(state.needed)));
    }
  };
  expect_refused([&] { RunDeviceBenchmark(options, "heed-bench --device cuda", {}); });
  expect_refused([&] { MeasureDeviceBackward(options, {}, {}); });
}

}  // namespace
}  // namespace heed::bench
