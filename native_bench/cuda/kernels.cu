#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>

#include "native_bench/cuda/device_memory.h"
#include "native_bench/cuda/kernels.h"

namespace heed::bench {
namespace {

constexpr int kThreads = 256;

__device__ void Store(float* to, float x) { *to = x; }
__device__ void Store(__half* to, float x) { *to = __float2half_rn(x); }
__device__ void Store(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }
__device__ void Store(Float8E4M3* to, float x) { *to = ToFloat8E4M3(x); }

// SplitMix64: a bijection whose outputs for n, n + 1, ... pass as random.
__device__ uint64_t Mix(uint64_t n) {
  n = (n + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
  return n ^ (n >> 31);
}

// Box and Muller: a pair of uniform numbers, the first of them in (0, 1], is a normal one.
template <class T>
__global__ void Normals(T* data, int64_t count, uint64_t seed, Scales scales) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint64_t bits = Mix(Mix(seed) ^ static_cast<uint64_t>(i));
    const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;
    const float turn = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
    const float normal = sqrtf(-2 * logf(u)) * cospif(2 * turn);
    Store(data + i, scales.each == nullptr ? normal : normal / scales.each[i / scales.numbers]);
  }
}

// The maximum, or the sum, over the threads of a block, in every thread.
template <class Join>
__device__ float Reduce(float mine, const Join& join) {
  __shared__ float parts[kThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2) {
    mine = join(mine, __shfl_xor_sync(0xffffffffu, mine, lane));
  }
  __syncthreads();  // of an earlier call, everyone has read the parts
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  float all = parts[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) all = join(all, parts[warp]);
  return all;
}

// One block a row.
template <class T>
__global__ void SoftmaxBlocks(SoftmaxRows call) {
  const int64_t row = blockIdx.x;
  const float* scores = call.scores + row * call.kv_len;
  T* weights = static_cast<T*>(call.weights) + row * call.kv_len;
  const int64_t visible =
      call.causal ? call.kv_len - call.q_len + row % call.q_len + 1 : call.kv_len;
  float largest = -INFINITY;
  for (int64_t j = threadIdx.x; j < visible; j += kThreads) largest = fmaxf(largest, scores[j]);
  largest = Reduce(largest, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int64_t j = threadIdx.x; j < visible; j += kThreads) {
    sum += __expf(call.scale * (scores[j] - largest));
  }
  sum = Reduce(sum, [](float a, float b) { return a + b; });
  for (int64_t j = threadIdx.x; j < call.kv_len; j += kThreads) {
    Store(weights + j, j < visible ? __expf(call.scale * (scores[j] - largest)) / sum : 0.0f);
  }
}

__global__ void ReadBlocks(const float4* data, size_t count, float* sum) {
  float4 mine = {0, 0, 0, 0};
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const float4 x = data[i];
    mine = {mine.x + x.x, mine.y + x.y, mine.z + x.z, mine.w + x.w};
  }
  const float total =
      Reduce(mine.x + mine.y + mine.z + mine.w, [](float a, float b) { return a + b; });
  if (threadIdx.x == 0) sum[blockIdx.x] = total;
}

// Factors near 1 keep the sums finite however long it runs.
constexpr int kChains = 16;
__global__ void FmaBlocks(int rounds, float* sum) {
  float chains[kChains];
  for (int n = 0; n < kChains; ++n) chains[n] = static_cast<float>(threadIdx.x + n);
  const float factor = 0.999f + 1e-7f * static_cast<float>(threadIdx.x);
#pragma unroll 8
  for (int round = 0; round < rounds; ++round) {
    for (int n = 0; n < kChains; ++n) chains[n] = fmaf(chains[n], factor, 0.5f);
  }
  float total = 0;
  for (int n = 0; n < kChains; ++n) total += chains[n];
  sum[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

// A word of numbers near 1 and -1 that differ from thread to thread: random bits cost power, zeros
// do not.
template <class T>
__device__ uint32_t SomeWord(uint32_t n) {
  constexpr int kCount = 4 / sizeof(T);
  alignas(4) T numbers[kCount];
  for (int i = 0; i < kCount; i += 2) {
    const float x = 1 - static_cast<float>(Mix(n * kCount + i) & 0xff) / 256;
    Store(numbers + i, x);
    Store(numbers + i + 1, -x);
  }
  return *reinterpret_cast<const uint32_t*>(numbers);
}

__device__ void Mma(__half, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ void Mma(__nv_bfloat16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                    uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

constexpr int kTiles = 8;  // independent products of a warp
template <class T>
__global__ void MmaBlocks(int rounds, float* sum) {
  uint32_t a[4];
  for (int n = 0; n < 4; ++n) a[n] = SomeWord<T>(threadIdx.x * 4 + n);
  const uint32_t b0 = SomeWord<T>(threadIdx.x + 7919), b1 = SomeWord<T>(threadIdx.x + 104729);
  float c[kTiles][4] = {};
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) Mma(T(), c[tile], a, b0, b1);
  }
  float total = 0;
  for (int tile = 0; tile < kTiles; ++tile)
    total += c[tile][0] + c[tile][1] + c[tile][2] + c[tile][3];
  sum[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The matrix descriptor of an operand of 64 rows of 32 bytes (16 numbers, 32 of float8) in shared
// memory without a swizzle: matrices of 8 rows and 16 bytes, the next along k 128 bytes away, the
// next along n 256 (PTX ISA 9.0, "Matrix Descriptor").
__device__ uint64_t PlainMatrix(const void* at) {
  const uint64_t address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  return ((address & 0x3ffff) >> 4) | (uint64_t{128 >> 4} << 16) | (uint64_t{256 >> 4} << 32);
}

// 8-bit operands have no flag that transposes them.
#define HEED_PROBE_WGMMA(T, k, type, flags)                                                       \
  __device__ void Wgmma(T, float(&c)[32], const uint32_t(&a)[4], uint64_t b) {                    \
    asm volatile(                                                                                 \
        "wgmma.mma_async.sync.aligned.m64n64" k ".f32." type "." type                             \
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "      \
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                 \
        "{%32, %33, %34, %35}, %36, " flags ";"                                                   \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),     \
          "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), \
          "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]),           \
          "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]),           \
          "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])            \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                    \
  }

HEED_PROBE_WGMMA(__half, "k16", "f16", "1, 1, 1, 0")
HEED_PROBE_WGMMA(__nv_bfloat16, "k16", "bf16", "1, 1, 1, 0")
HEED_PROBE_WGMMA(Float8E4M3, "k32", "e4m3", "1, 1, 1")
#undef HEED_PROBE_WGMMA
#endif

// Warp groups of 128 threads, each with products of registers and shared memory, 8 in flight. Only
// sm_90a has them: elsewhere this is a trap that RunWgmma() does not launch.
constexpr int kInFlight = 8;
template <class T>
__global__ void __launch_bounds__(kThreads) WgmmaBlocks(int rounds, float* sum) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ alignas(128) uint32_t matrix[64 * 32 / 4];
  for (int n = threadIdx.x; n < 64 * 32 / 4; n += kThreads) matrix[n] = SomeWord<T>(n);
  uint32_t a[4];
  for (int n = 0; n < 4; ++n) a[n] = SomeWord<T>(threadIdx.x * 4 + n);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint64_t b = PlainMatrix(matrix);
  float c[32] = {};
  for (int round = 0; round < rounds; ++round) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) Wgmma(T(), c, a, b);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float total = 0;
  for (int n = 0; n < 32; ++n) total += c[n];
  sum[blockIdx.x * blockDim.x + threadIdx.x] = total;
#else
  __trap();
#endif
}

template <class Body>
void WithType(DType dtype, const Body& body) {
  if (dtype == DType::kFloat16) return body(__half());
  if (dtype == DType::kBFloat16) return body(__nv_bfloat16());
  body(float());
}

template <class Body>
void WithHalfType(DType dtype, const Body& body) {
  if (dtype == DType::kFloat16) return body(__half());
  if (dtype == DType::kBFloat16) return body(__nv_bfloat16());
  throw std::invalid_argument("the matrix probes multiply float16 and bfloat16");
}

}  // namespace

void FillNormal(void* data, DType dtype, int64_t count, uint64_t seed, const Scales& scales) {
  const auto fill = [&](auto* numbers) {
    Normals<<<1024, kThreads>>>(numbers, count, seed, scales);
  };
  if (dtype == DType::kFloat8E4M3) {
    fill(static_cast<Float8E4M3*>(data));
  } else {
    WithType(dtype, [&](auto zero) { fill(static_cast<decltype(zero)*>(data)); });
  }
  Require(cudaGetLastError());
}

void Softmax(const SoftmaxRows& call) {
  WithType(call.dtype, [&](auto zero) {
    SoftmaxBlocks<decltype(zero)><<<static_cast<unsigned>(call.rows), kThreads>>>(call);
  });
  Require(cudaGetLastError());
}

void ReadBytes(const void* data, size_t bytes, float* sum) {
  ReadBlocks<<<kReadBlocks, kThreads>>>(static_cast<const float4*>(data), bytes / sizeof(float4),
                                        sum);
  Require(cudaGetLastError());
}

double RunFma(int multiprocessors, int rounds, float* sum) {
  const int blocks = 4 * multiprocessors;
  FmaBlocks<<<blocks, kThreads>>>(rounds, sum);
  Require(cudaGetLastError());
  return 2.0 * kChains * rounds * blocks * kThreads;
}

double RunMma(DType dtype, int multiprocessors, int rounds, float* sum) {
  const int blocks = 4 * multiprocessors;
  WithHalfType(dtype,
               [&](auto zero) { MmaBlocks<decltype(zero)><<<blocks, kThreads>>>(rounds, sum); });
  Require(cudaGetLastError());
  const double warps = static_cast<double>(blocks) * (kThreads / 32);
  return 2.0 * 16 * 8 * 16 * kTiles * rounds * warps;
}

double RunWgmma(DType dtype, int multiprocessors, int rounds, float* sum) {
  const int blocks = 2 * multiprocessors;
  const auto run = [&](auto zero) {
    WgmmaBlocks<decltype(zero)><<<blocks, kThreads>>>(rounds, sum);
  };
  if (dtype == DType::kFloat8E4M3) {
    run(Float8E4M3());
  } else {
    WithHalfType(dtype, run);
  }
  Require(cudaGetLastError());
  const double depth = 32.0 / static_cast<double>(ElementSize(dtype));
  const double groups = static_cast<double>(blocks) * (kThreads / 128);
  return 2.0 * 64 * 64 * depth * kInFlight * rounds * groups;
}

}  // namespace heed::bench
