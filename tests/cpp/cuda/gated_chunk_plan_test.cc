// Which calls take gated chunks, and how they fill a GPU.
#include <vector>

#include "gated_case.h"
#include "host_block.h"
#include "src/cuda/device_pools.h"
#include "src/cuda/gated_chunk_kernels.h"
#include "src/cuda/gated_chunk_tokens.h"

namespace heed::testing {
namespace {

TEST(DeviceGatedChunkPlan, TakesWhatGatedChunksCompute) {
  GatedCall c;
  c.rule = kKimiDelta;
  c.Draw();
  const auto takes = [&](const RecurrentOptions& options, DType dtype = DType::kBFloat16) {
    return cuda::TakesGatedChunks(Checked(c, options, dtype));
  };
  const RecurrentOptions plain = c.Options();
  EXPECT_TRUE(takes(plain));
  EXPECT_FALSE(takes(plain, DType::kFloat16));
  EXPECT_FALSE(takes(plain, DType::kFloat32));
  RecurrentOptions other = plain;
  other.delta = false;
  EXPECT_TRUE(takes(other));
  other.normalize = true;
  EXPECT_FALSE(takes(other));
  other = plain, other.delta = false, other.feature_map = FeatureMap::kIdentity;
  other.erase_key = c.erase_key.view();
  other.erase_rate = c.erase_rate.view();
  EXPECT_TRUE(takes(other));
  EXPECT_FALSE(takes(other, DType::kFloat16));
  other = plain, other.feature_map = FeatureMap::kSoftmax;
  EXPECT_FALSE(takes(other));
  other = plain, other.causal = false;
  EXPECT_FALSE(takes(other));
  // Decays of heads alone are simpler chunks.
  other = plain, other.delta = false, other.feature_map = FeatureMap::kIdentity;
  other.log_decay = Contiguous(c.gates.data(), c.batch, c.kv_heads, c.len, 1);
  EXPECT_FALSE(takes(other));
  EXPECT_TRUE(cuda::TakesChunks(Checked(c, other)));
  c.dim = 129;
  other = plain, other.log_decay = {};
  EXPECT_FALSE(takes(other));
  c.dim = 128;
  EXPECT_TRUE(takes(other));
  c.len = 63;
  other.beta = {};
  EXPECT_FALSE(takes(other));
}

// A block may have 99 KiB of shared memory on GPUs of compute capability 8.6 and 8.9.
TEST(DeviceGatedChunkPlan, BlocksFitEveryGpu) {
  constexpr int kLeast = 99 << 10;
  EXPECT_LE((cuda::GatedChunkTokens<HostBlock, 128, true, true>::kSharedBytes), kLeast);
  EXPECT_LE((cuda::GatedChunkTokens<HostBlock, 128, true, false>::kSharedBytes), kLeast);
  EXPECT_LE((cuda::GatedChunkTokens<HostBlock, 128, false, true>::kSharedBytes), kLeast);
  EXPECT_LE((cuda::GatedSums<HostBlock, 128>::kSharedBytes), kLeast);
  EXPECT_LE((cuda::GatedReads<HostBlock, 128>::kSharedBytes), kLeast);
}

TEST(DeviceGatedChunkPlan, SpansFillTheGpuWhereTheyPay) {
  GatedCall c;
  c.batch = 1, c.heads = c.kv_heads = 8, c.len = 2048, c.dim = c.dim_v = 128;
  c.chunks.processors = 132;
  c.rule = kKimiDelta;
  c.rule.betas = false, c.rule.decay = GatedDecay::kNone;
  // 8 heads, 2 slices of values and 2 of a model, on 264 places.
  EXPECT_EQ(SpansOf(c), 8);
  EXPECT_EQ(cuda::NumSumBlocks(PlanOf(c).Params(0, nullptr, nullptr)), 8 * 4 * 7);
  EXPECT_EQ(cuda::NumReadBlocks(PlanOf(c).Params(0, nullptr, nullptr)), 8 * 2 * 8);
  // With 32 heads two spans would fit, whose models cost more than they gain.
  c.heads = c.kv_heads = 32;
  EXPECT_EQ(SpansOf(c), 1);
  EXPECT_EQ(cuda::NumSumBlocks(PlanOf(c).Params(0, nullptr, nullptr)), 0);
}

// A span that is alone begins with the caller's state, unless that is memory which a block of
// another head may have overwritten by then.
TEST(DeviceGatedChunkPlan, StatesAreCopiedWhereTheyMustBe) {
  GatedCall c;
  c.batch = 2, c.heads = c.kv_heads = 32, c.len = 256, c.dim = c.dim_v = 64;
  c.chunks.processors = 1;
  c.rule = kKimiDelta;
  c.rule.betas = false, c.rule.decay = GatedDecay::kNone;
  cuda::StoredRecurrentProblem call = Checked(c, c.Options());
  const auto scan_blocks = [&] {
    const cuda::GatedChunkPlan plan(call, c.chunks.processors, c.chunks.prepared_bytes);
    const cuda::GatedChunkParams params = plan.Params(0, nullptr, nullptr);
    EXPECT_EQ(params.spans, 1);
    return cuda::NumScanBlocks(params);
  };
  EXPECT_EQ(scan_blocks(), 0);
  std::vector<float> states(static_cast<size_t>(c.batch * c.kv_heads * c.dim * c.dim_v));
  const TensorView<float> end = Contiguous(states.data(), c.batch, c.kv_heads, c.dim, c.dim_v);
  call.problem.outputs.final_state = end;
  EXPECT_EQ(scan_blocks(), 0);
  TensorView<const float>& begin = call.problem.options.initial_state;
  begin = {end.data, end.shape, end.strides};
  EXPECT_EQ(scan_blocks(), 0);
  begin.strides[0] = 0;
  EXPECT_GT(scan_blocks(), 0);
  begin.data = states.data() + 1;
  EXPECT_EQ(scan_blocks(), 0);
}

TEST(DeviceGatedChunkPlan, ScratchStaysMappedFromCallToCall) {
  GatedCall c;
  c.batch = 4, c.heads = c.kv_heads = 32, c.len = 512, c.dim = c.dim_v = 128;
  c.chunks.processors = 132;
  c.chunks.prepared_bytes = cuda::kMaxPreparedBytes;
  c.erase_key = c.erase_rate = {{c.batch, c.kv_heads, c.len, c.dim}, Layout::kDense, 0};
  for (GatedRule rule : {kKimiDelta, kRwkv7}) {
    rule.betas = false, rule.decay = GatedDecay::kNone;
    c.rule = rule;
    const int64_t bytes = PlanOf(c).scratch_bytes();
    EXPECT_GT(bytes, cuda::kMaxPreparedBytes / 2);
    EXPECT_LE(bytes, static_cast<int64_t>(cuda::kKeptScratchBytes));
  }
}

}  // namespace
}  // namespace heed::testing
