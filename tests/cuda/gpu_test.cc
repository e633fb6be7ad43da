// What only a GPU can show: real splits, graphs, streams, and the same bits run after run.
#include <cuda_runtime.h>

#include <string>
#include <thread>
#include <vector>

#include "device_case.h"
#include "device_gradient_case.h"
#include "gated_case.h"
#include "gpu_backend.h"
#include "gtest/gtest.h"
#include "src/cuda/device_pools.h"
#include "src/cuda/recurrent_launch.h"
#include "src/cuda/runtime.h"
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

TEST_P(OnGpu, GradientsOfTheSameInputsHaveTheSameBits) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 8,
                              .num_kv_heads = 2,
                              .q_len = 700,
                              .kv_len = 700,
                              .head_dim = 128,
                              .head_dim_v = 128});
  c.scalars.causal = true;
  Cotangents cotangents = MakeCotangents(c);
  const Values first = RunDeviceBackward(c, cotangents, GetParam());
  for (int run = 0; run < 3; ++run) {
    EXPECT_EQ(RunDeviceBackward(c, cotangents, GetParam()), first);
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

// Segments of gated chunks, one of which is prepared while another is read, and those of a captured
// call, one after the other.
TEST(GatedSegments, OfACapturedCallHaveTheSameBits) {
  if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  for (const GatedRule& rule : {kGated, kKimiDelta}) {
    GatedCall c;
    c.rule = rule;
    c.len = 40 * 64;
    c.Draw();
    const StoredBuffer q(c.q, DType::kBFloat16, Layout::kDense),
        k(c.k, DType::kBFloat16, Layout::kDense), v(c.v, DType::kBFloat16, Layout::kDense);
    Buffer<float> output({c.batch, c.heads, c.len, c.dim_v}, Layout::kDense, 0);
    DeviceCopies copies;
    cuda::StoredRecurrentOutputs outputs;
    outputs.output = copies.Copy(output.view());
    const cuda::StoredRecurrentProblem call = cuda::ValidateStoredRecurrentForDevice(
        copies.Copy(q.view()), copies.Copy(k.view()), copies.Copy(v.view()),
        CopiedOptions(c.Options(), copies), outputs);
    const int64_t bytes =
        6 * c.batch * c.kv_heads * PlanOf(c).Params(0, nullptr, nullptr).place.bytes;
    cudaStream_t stream;
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    cuda::LaunchGatedChunks(call, stream, bytes);
    cuda::Check(stream);
    copies.Fetch();
    const auto expected = Bits(output);
    const size_t output_bytes = expected.size() * sizeof(float);
    ASSERT_EQ(cudaMemset(call.output.data, 0xff, output_bytes), cudaSuccess);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    cuda::LaunchGatedChunks(call, stream, bytes);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    cuda::Check(stream);
    copies.Fetch();
    EXPECT_EQ(Bits(output), expected);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

// A call whose tensors lie on the device, to be made many times.
class Prepared {
 public:
  Prepared(AttentionCase& c, DType dtype)
      : case_(c),
        q_(c.q, dtype, Layout::kDense),
        k_(c.k, dtype, Layout::kDense),
        v_(c.v, dtype, Layout::kDense),
        output_({c.sizes.batch, c.sizes.num_heads, c.sizes.q_len, c.sizes.head_dim_v},
                Layout::kDense, 0),
        dq_(copies_.Copy(q_.view())),
        dk_(copies_.Copy(k_.view())),
        dv_(copies_.Copy(v_.view())) {
    outputs_.output = copies_.Copy(output_.view());
  }

  void Run(cudaStream_t stream) const {
    cuda::Attention(dq_, dk_, dv_, case_.options(), outputs_, stream);
  }
  auto Fetch() {
    copies_.Fetch();
    return Bits(output_);
  }
  // Forgets the result of the last call.
  void Clear() {
    const size_t bytes = Bits(output_).size() * sizeof(float);
    ASSERT_EQ(cudaMemset(outputs_.output.data, 0xff, bytes), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

 private:
  AttentionCase& case_;
  StoredBuffer q_, k_, v_;
  Buffer<float> output_;
  DeviceCopies copies_;
  StoredTensor dq_, dk_, dv_;
  AttentionOutputs outputs_;
};

// What one call alone gives.
auto BitsAlone(AttentionCase& c, DType dtype) {
  Prepared call(c, dtype);
  call.Run(nullptr);
  cuda::Check(nullptr);
  return call.Fetch();
}

// What a pool has mapped.
uint64_t Reserved(cudaMemPool_t pool) {
  uint64_t bytes = 0;
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes), cudaSuccess);
  return bytes;
}

TEST_P(OnGpu, ScratchStaysMappedOverAWaitUntilItIsReleased) {
  AttentionCase c = Decoding();
  int device = 0;
  cudaMemPool_t of_all = nullptr;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&of_all, device), cudaSuccess);
  const uint64_t before = Reserved(of_all);
  BitsAlone(c, GetParam());
  const uint64_t kept = Reserved(cuda::ScratchPool());
  EXPECT_GT(kept, 0u);
  EXPECT_LE(kept, cuda::kKeptScratchBytes);
  EXPECT_EQ(Reserved(of_all), before);
  cuda::ReleaseMemory();
  EXPECT_EQ(Reserved(cuda::ScratchPool()), 0u);
}

TEST_P(OnGpu, CallsAfterAResetOfTheDeviceComputeTheSame) {
  AttentionCase c = Decoding();
  const auto expected = BitsAlone(c, GetParam());
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(BitsAlone(c, GetParam()), expected);
  cuda::ReleaseMemory();
  EXPECT_EQ(BitsAlone(c, GetParam()), expected);
}

// The runtime keeps an error until somebody asks for the last one, which launches do.
TEST_P(OnGpu, AnErrorThatWasToldIsNotFoundAgain) {
  constexpr size_t kMore = size_t{1} << 50;
  void* none = nullptr;
  const cudaError_t error = cudaMallocAsync(&none, kMore, nullptr);
  ASSERT_EQ(error, cudaErrorMemoryAllocation);
  EXPECT_THROW(cuda::ThrowOnError(error, "taking too much"), Error);
  AttentionCase c = Decoding();
  BitsAlone(c, GetParam());  // throws if it finds an error
}

class Streams : public OnGpu {
 protected:
  cudaStream_t Make() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
  }
};
HEED_IN_EVERY_TYPE(Streams);

// Between the runs calls beside the graph take scratch of their own.
TEST_P(Streams, AGraphRunsAgainAndAgain) {
  AttentionCase c = Decoding();
  Prepared call(c, GetParam()), other(c, GetParam());
  other.Run(nullptr);
  cuda::Check(nullptr);
  cudaStream_t stream = Make();
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  call.Run(stream);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  std::vector<decltype(call.Fetch())> runs;
  for (int n = 0; n < 3; ++n) {
    call.Clear();
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    other.Run(stream);
    cuda::Check(stream);
    runs.push_back(call.Fetch());
  }
  EXPECT_EQ(runs[1], runs[0]);
  EXPECT_EQ(runs[2], runs[0]);
  if (GetParam() == DType::kFloat32) {
    EXPECT_EQ(runs[0], other.Fetch());
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_P(Streams, TwoThatDecodeAtOnceDoNotMeet) {
  AttentionCase c = Decoding();
  const auto expected = BitsAlone(c, GetParam());
  Prepared first(c, GetParam()), second(c, GetParam());
  cudaStream_t streams[] = {Make(), Make()};
  for (int n = 0; n < 50; ++n) {
    first.Run(streams[0]);
    second.Run(streams[1]);
  }
  for (cudaStream_t stream : streams) cuda::Check(stream);
  EXPECT_EQ(first.Fetch(), expected);
  EXPECT_EQ(second.Fetch(), expected);
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
}

// More than have counters of their own: the last ones merge by the second kernel.
TEST_P(Streams, ThoseThatAreMadeAnewDecodeTheSame) {
  AttentionCase c = Decoding();
  const auto expected = BitsAlone(c, GetParam());
  Prepared call(c, GetParam());
  for (int n = 0; n < 300; ++n) {
    call.Clear();
    cudaStream_t stream = Make();
    call.Run(stream);
    cuda::Check(stream);
    ASSERT_EQ(call.Fetch(), expected) << "stream " << n;
    cudaStreamDestroy(stream);
  }
}

TEST_P(Streams, TwoThreadsMayShareOne) {
  AttentionCase c = Decoding();
  const auto expected = BitsAlone(c, GetParam());
  Prepared first(c, GetParam()), second(c, GetParam());
  cudaStream_t stream = Make();
  const auto decode = [stream](const Prepared& call) {
    for (int n = 0; n < 50; ++n) call.Run(stream);
  };
  std::thread other([&] { decode(first); });
  decode(second);
  other.join();
  cuda::Check(stream);
  EXPECT_EQ(first.Fetch(), expected);
  EXPECT_EQ(second.Fetch(), expected);
  cudaStreamDestroy(stream);
}

// One long entry is split, and 1200 short ones, of a KV head each, have a counter too.
TEST_P(OnGpu, MoreRowsThanCountersMatchTheReference) {
  AttentionCase c = MakeCase({.batch = 1200,
                              .num_heads = 1,
                              .num_kv_heads = 1,
                              .q_len = 1,
                              .kv_len = 1000,
                              .head_dim = 8,
                              .head_dim_v = 8});
  c.key_lengths.assign(1200, 3);
  c.key_lengths[7] = 1000;
  ExpectDeviceMatches(c, GetParam());
}

}  // namespace
}  // namespace heed::testing
