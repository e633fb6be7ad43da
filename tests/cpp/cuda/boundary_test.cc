// The boundary of the device path: what it refuses and what it says, with and without CUDA.
#include <limits>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/cuda.h"
#include "refused.h"
#include "src/cuda/fault.h"
#include "src/cuda/plan.h"
#include "src/cuda/row_plan.h"

namespace heed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A call that is legal until a test changes it.
struct Call {
  AttentionCase c = MakeCase({.q_len = 5, .kv_len = 9, .head_dim = 8, .head_dim_v = 8});
  Buffer<float> output = Buffer<float>({1, 2, 5, 8}, Layout::kDense, 0);
  StoredTensor q{c.q.view()}, k{c.k.view()}, v{c.v.view()};
  AttentionOptions options;
  AttentionOutputs outputs{.output = output.view()};
  cuda::DeviceArrays arrays;

  void Validate() const { cuda::ValidateForDevice(q, k, v, options, outputs, arrays); }
};

template <class Change>
void ExpectRefused(ErrorCode code, const char* text, const Change& change) {
  Call call;
  change(call);
  ExpectRefusedCall(code, text, [&] { call.Validate(); });
}

// An address that must not be read: what lies in device memory.
template <class T>
TensorView<const T> OnDeviceOnly(const Extents& shape) {
  return {reinterpret_cast<const T*>(uintptr_t{64}), shape, {0, 0, 0, 1}};
}

TEST(DeviceBoundary, TakesWhatItOffers) { Call().Validate(); }

// q, k and v of float8_e4m3: 8 columns, and scales of their two heads.
void MakeFloat8(Call& c) {
  for (StoredTensor* t : {&c.q, &c.k, &c.v}) t->dtype = DType::kFloat8E4M3;
  c.arrays.q_scales = c.arrays.k_scales = c.arrays.v_scales = OnDeviceOnly<float>({1, 2, 1, 1});
}

TEST(DeviceBoundary, TakesFloat8WithScalesAndWithout) {
  Call call;
  MakeFloat8(call);
  call.Validate();
  call.arrays = {};
  call.Validate();
}

TEST(DeviceBoundary, ScalesBelongToFloat8Tensors) {
  ExpectRefused(ErrorCode::kOption, "k_scales is given: k has element type float32", [](Call& c) {
    MakeFloat8(c);
    c.k.dtype = DType::kFloat32;
  });
  ExpectRefused(ErrorCode::kShape, "v_scales", [](Call& c) {
    MakeFloat8(c);
    c.arrays.v_scales = OnDeviceOnly<float>({1, 1, 1, 1});
  });
  ExpectRefused(ErrorCode::kDType, "q has element type int8",
                [](Call& c) { c.q.dtype = DType::kInt8; });
}

TEST(DeviceBoundary, NamesTheOptionThatItLacks) {
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  ExpectRefused(kUnsupported, "prob_mod is not offered on the GPU yet", [](Call& c) {
    c.options.prob_mod = CompileExpression("prob_mod", "prob * 2", ExpressionValue::kProb);
  });
  ExpectRefused(kUnsupported, "running_max",
                [](Call& c) { c.outputs.running_max = c.output.view(); });
  ExpectRefused(kUnsupported, "dropout origin = [0, 0, 0, 4] on a GPU", [](Call& c) {
    c.options.dropout = {0.5, 1, {0, 0, 0, 4}};
  });
  ExpectRefused(kUnsupported, "keep patterns with query_offset", [](Call& c) {
    static const int32_t kLengths[] = {9};
    c.options.patterns.push_back(Strided{});
    c.options.query_offset = QueryOffset::End();
    c.arrays.key_lengths = kLengths;
  });
}

TEST(DeviceBoundary, RefusesWhatTheKernelsCannotHold) {
  ExpectRefused(ErrorCode::kUnsupported, "head_dim = 4097; on the GPU it is at most 4096",
                [](Call& c) {
                  c.q.shape[3] = c.k.shape[3] = 4097;
                  c.q.strides = c.k.strides = {0, 0, 0, 1};
                });
}

// What each kernel is for.
TEST(DeviceBoundary, TheRowKernelTakesWhatTheTileKernelCannot) {
  const auto needs_rows = [](const auto& change) {
    Call c;
    change(c);
    return cuda::NeedsRows(cuda::ValidateForDevice(c.q, c.k, c.v, c.options, c.outputs, c.arrays));
  };
  EXPECT_FALSE(needs_rows([](Call&) {}));
  EXPECT_FALSE(needs_rows([](Call& c) {
    c.options.patterns = {Strided{}};
    c.options.query_offset = QueryOffset::End();
  }));
  EXPECT_TRUE(needs_rows([](Call& c) { c.options.score = Score::kCosine; }));
  EXPECT_TRUE(needs_rows([](Call& c) { c.options.normalize = Normalize::kTopK; }));
  EXPECT_TRUE(needs_rows([](Call& c) { c.k.dtype = DType::kFloat16; }));
}

TEST(DeviceBoundary, HasTheChecksOfTheCpu) {
  ExpectRefused(ErrorCode::kShape, "v has shape", [](Call& c) { c.v.shape[2] = 8; });
  ExpectRefused(ErrorCode::kOption, "query_offset is needed",
                [](Call& c) { c.options.causal = true; });
  ExpectRefused(ErrorCode::kRange, "softcap = 0", [](Call& c) { c.options.softcap = 0.0; });
}

TEST(DeviceBoundary, AnArrayLiesInOnePlace) {
  static const int32_t kLengths[] = {9};
  ExpectRefused(ErrorCode::kOption, "key_lengths is given as a host array and as a device array",
                [](Call& c) { c.options.key_lengths = kLengths, c.arrays.key_lengths = kLengths; });
  ExpectRefused(ErrorCode::kOption, "go together",
                [](Call& c) { c.arrays.key_documents = kLengths; });
}

TEST(DeviceBoundary, TensorsOnTheDeviceAreNotRead) {
  Call call;
  call.options.bias = OnDeviceOnly<float>({1, 2, 5, 9});
  call.options.keep = OnDeviceOnly<uint8_t>({1, 1, 5, 9});
  call.options.causal = true;
  call.options.query_offset = QueryOffset::End();
  call.options.log_gates = OnDeviceOnly<float>({1, 2, 1, 9});
  call.options.relative_values = OnDeviceOnly<float>({1, 1, 3, 8});
  call.q.data = call.k.data = call.v.data = reinterpret_cast<const void*>(uintptr_t{128});
  call.Validate();
}

TEST(DeviceBoundary, PagesFitTogether) {
  const Call call;
  const auto refused = [&](cuda::PagedKeys keys) {
    try {
      cuda::ValidateForDevice(call.q, keys, call.options, call.outputs, {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  const int32_t table[] = {0, 0, 0};
  EXPECT_EQ(refused({call.k, call.v, table, 3}), "not refused");
  EXPECT_THAT(refused({call.k, call.v, nullptr, 3}), HasSubstr("table is missing"));
  EXPECT_THAT(refused({call.k, call.v, table, int64_t{1} << 40}), HasSubstr("table_width"));
  StoredTensor shorter = call.v;
  shorter.shape[2] = 8;
  EXPECT_THAT(refused({call.k, shorter, table, 3}), HasSubstr("v_pages has shape"));
}

TEST(DeviceBoundary, NoResultLiesOnPages) {
  Call call;
  const int32_t table[] = {0, 0, 0};
  float* const second_row = static_cast<float*>(const_cast<void*>(call.v.data)) + 8;
  call.outputs.lse = Contiguous(second_row, 1, 2, 5, 1);
  try {
    cuda::ValidateForDevice(call.q, cuda::PagedKeys{call.k, call.v, table, 3}, call.options,
                            call.outputs, {});
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShape);
    EXPECT_THAT(error.what(), HasSubstr("lse"));
    EXPECT_THAT(error.what(), HasSubstr("v_pages"));
  }
}

TEST(DeviceFaults, SayWhereAndWhat) {
  EXPECT_EQ(cuda::FaultText({}), "");
  EXPECT_THAT(cuda::FaultText({1, 3, 70}), HasSubstr("key_lengths holds 70 at [3]"));
}

TEST(DeviceAvailability, SaysWhatIsMissing) {
  const cuda::Availability state = cuda::Available();
  EXPECT_NE(state.found, "");
  if (state.usable) GTEST_SKIP() << "found " << state.found;
  EXPECT_THAT(state.needed, HasSubstr("compute capability 8.0"));
  const Call call;
  try {
    cuda::Attention(call.c.q.view(), call.c.k.view(), call.c.v.view(), call.options, call.outputs,
                    nullptr);
    ADD_FAILURE() << "ran without a device";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(state.found), HasSubstr("it needs")));
  }
  const int32_t table[] = {0, 0};
  EXPECT_THROW(cuda::Attention(call.q, cuda::PagedKeys{call.k, call.v, table, 2}, call.options,
                               call.outputs, nullptr),
               Error);
  EXPECT_THROW(cuda::Check(nullptr), Error);
  EXPECT_THROW(cuda::ReleaseMemory(), Error);
}

}  // namespace
}  // namespace heed::testing
