// What only a GPU can show: real splits, graphs, streams, and the same bits run after run.
#include <cuda_runtime.h>

#include "device_case.h"
#include "gpu_backend.h"
#include "gtest/gtest.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

class OnGpu : public OnDevice {};
HEED_IN_EVERY_TYPE(OnGpu);

AttentionCase Decoding() {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 8,
                              .num_kv_heads = 2,
                              .q_len = 1,
                              .kv_len = 5000,
                              .head_dim = 128,
                              .head_dim_v = 128});
  c.key_lengths = {5000, 1234};
  return c;
}

TEST_P(OnGpu, LongDecodingMatchesTheReference) { ExpectDeviceMatches(Decoding(), GetParam()); }

TEST_P(OnGpu, TheSameInputsGiveTheSameBits) {
  AttentionCase c = Decoding();
  const Results first = RunDevice(c, GetParam());
  for (int run = 0; run < 5; ++run) {
    const Results again = RunDevice(c, GetParam());
    EXPECT_EQ(Bits(first.output), Bits(again.output));
    EXPECT_EQ(Bits(first.lse), Bits(again.lse));
  }
}

TEST_P(OnGpu, ACapturedCallReplaysWithItsArrays) {
  AttentionCase c = Decoding();
  const Results expected = RunDevice(c, GetParam());
  const StoredBuffer q(c.q, GetParam(), Layout::kDense), k(c.k, GetParam(), Layout::kDense),
      v(c.v, GetParam(), Layout::kDense);
  Buffer<float> output({2, 8, 1, 128}, Layout::kDense, 0);
  DeviceCopies copies;
  AttentionOutputs outputs;
  outputs.output = copies.Copy(output.view());
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const StoredTensor dq = copies.Copy(q.view()), dk = copies.Copy(k.view()),
                     dv = copies.Copy(v.view());
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  cuda::Attention(dq, dk, dv, c.options(), outputs, stream);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  c.key_lengths = {1, 1};  // the graph has its own copy
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  cuda::Check(stream);
  copies.Fetch();
  if (GetParam() == DType::kFloat32) {
    EXPECT_EQ(Bits(output), Bits(expected.output));
  }
  for (const float x : output.Elements()) EXPECT_TRUE(std::isfinite(x));
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace heed::testing
