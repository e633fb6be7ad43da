// The boundary of cuda::AttentionBackward(): what it refuses, and what memory it asks for.
#include <cmath>

#include "attention_case.h"
#include "gtest/gtest.h"
#include "heed/cuda.h"
#include "refused.h"
#include "src/cuda/gradient_plan.h"

namespace heed::testing {
namespace {

// An address that must not be read: what lies in device memory.
void* OnDeviceOnly(uintptr_t at) { return reinterpret_cast<void*>(at << 32); }
StoredTensor Tensor(uintptr_t at, const Extents& shape) {
  const auto [batch, heads, len, dim] = shape;
  return {OnDeviceOnly(at), DType::kFloat32, shape, {heads * len * dim, len * dim, dim, 1}};
}
TensorView<float> View(uintptr_t at, const Extents& shape) {
  const StoredTensor t = Tensor(at, shape);
  return {static_cast<float*>(OnDeviceOnly(at)), t.shape, t.strides};
}

// A call that is legal until a test changes it; no tensor may be read on the host.
struct Call {
  StoredTensor q, k, v, out, d_out;
  TensorView<const float> lse;
  AttentionOptions options;
  AttentionGradients gradients;
  cuda::DeviceArrays arrays;

  explicit Call(int64_t len = 5)
      : q(Tensor(1, {2, 4, len, 8})),
        k(Tensor(2, {2, 2, len, 8})),
        v(Tensor(3, {2, 2, len, 6})),
        out(Tensor(4, {2, 4, len, 6})),
        d_out(Tensor(5, {2, 4, len, 6})),
        lse(View(6, {2, 4, len, 1})) {
    gradients.d_q = StoredOutput(View(7, q.shape));
    gradients.d_k = StoredOutput(View(8, k.shape));
    gradients.d_v = StoredOutput(View(9, v.shape));
  }

  cuda::DeviceGradient Validate() const {
    return cuda::ValidateGradientForDevice(q, k, v, out, lse, d_out, options, gradients, arrays);
  }
};

template <class Change>
void ExpectRefused(ErrorCode code, const char* text, const Change& change) {
  Call call;
  change(call);
  ExpectRefusedCall(code, text, [&] { call.Validate(); });
}

TEST(DeviceGradientBoundary, NamesTheOptionThatItLacks) {
  Call().Validate();
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  ExpectRefused(kUnsupported, "score other than dot is not offered on the GPU yet",
                [](Call& c) { c.options.score = Score::kCosine; });
  ExpectRefused(kUnsupported, "normalize other than softmax and softmax1",
                [](Call& c) { c.options.normalize = Normalize::kSigmoid; });
  ExpectRefused(kUnsupported, "relative_keys", [](Call& c) {
    c.options.relative_keys = View(10, {1, 1, 9, 8});
  });
  ExpectRefused(kUnsupported, "log_gates", [](Call& c) {
    c.options.log_gates = View(10, {2, 4, 1, 5});
  });
  ExpectRefused(kUnsupported, "score_mod", [](Call& c) {
    c.options.score_mod = CompileExpression("score_mod", "score * 2", ExpressionValue::kScore);
    c.gradients.score_mod_slope = CompileSlope("score_mod", "score * 2", ExpressionValue::kScore);
  });
}

TEST(DeviceGradientBoundary, NamesWhatIsWrong) {
  ExpectRefused(ErrorCode::kUnsupported, "float32, float16, float32 and float32",
                [](Call& c) { c.k.dtype = DType::kFloat16; });
  ExpectRefused(ErrorCode::kUnsupported, "d_out of element types",
                [](Call& c) { c.d_out.dtype = DType::kBFloat16; });
  ExpectRefused(ErrorCode::kUnsupported, "at most 256", [](Call& c) {
    c.v = Tensor(3, {2, 2, 5, 257});
    c.out = Tensor(4, {2, 4, 5, 257});
    c.d_out = Tensor(5, {2, 4, 5, 257});
    c.gradients.d_v = {};
  });
  ExpectRefused(ErrorCode::kShape, "d_out", [](Call& c) { c.d_out.shape[2] = 4; });
  ExpectRefused(ErrorCode::kShape, "lse", [](Call& c) { c.lse = {}; });
  ExpectRefused(ErrorCode::kShape, "d_q", [](Call& c) {
    c.gradients.d_q = StoredOutput(View(7, {2, 4, 5, 7}));
  });
  ExpectRefused(ErrorCode::kOption, "key_lengths is given as a host array and as a device array",
                [](Call& c) {
                  static const int32_t kLengths[] = {5, 5};
                  c.options.key_lengths = kLengths;
                  c.arrays.key_lengths = kLengths;
                });
}

TEST(DeviceGradientBoundary, ScratchGrowsWithRowsAlone) {
  for (const int64_t len : {64, 4096, 100000}) {
    Call call(len);
    const int64_t rows = 2 * 4 * len;
    EXPECT_EQ(cuda::GradientPlan(call.Validate()).scratch_floats(), rows);
    static const float kSlopes[4] = {};
    call.options.alibi_slopes = kSlopes;
    call.gradients.d_alibi_slopes = {static_cast<float*>(OnDeviceOnly(10)), 4};
    EXPECT_EQ(cuda::GradientPlan(call.Validate()).scratch_floats(), 2 * rows);
  }
}

TEST(DeviceGradientBoundary, BlocksAreThoseOfWhatIsWanted) {
  Call call(100);
  EXPECT_EQ(cuda::GradientPlan(call.Validate()).num_query_blocks(), 2 * 2 * 4);  // 200 rows
  EXPECT_EQ(cuda::GradientPlan(call.Validate()).num_key_blocks(), 2 * 2 * 2);
  EXPECT_EQ(cuda::GradientPlan(call.Validate()).num_bias_blocks(32), 0);
  EXPECT_EQ(cuda::GradientPlan(call.Validate()).num_head_blocks(), 0);
  call.gradients = {};
  call.options.bias = View(10, {1, 4, 1, 100});
  call.gradients.d_bias = View(11, {1, 4, 1, 100});
  EXPECT_EQ(cuda::GradientPlan(call.Validate()).num_query_blocks(), 0);
  EXPECT_EQ(cuda::GradientPlan(call.Validate()).num_key_blocks(), 0);
  EXPECT_EQ(cuda::GradientPlan(call.Validate()).num_bias_blocks(32), 4 * 4);
}

TEST(DeviceGradientBoundary, SaysWhatIsMissingWithoutADevice) {
  if (cuda::Available().usable) GTEST_SKIP() << "there is a GPU";
  const Call c;
  ExpectRefusedCall(ErrorCode::kUnsupported, "heed::cuda found", [&] {
    cuda::AttentionBackward(c.q, c.k, c.v, c.out, c.lse, c.d_out, c.options, c.gradients, nullptr);
  });
}

}  // namespace
}  // namespace heed::testing
