// The kernels of the benchmark itself: none of them is what is measured, but for the probes.
#ifndef HEED_NATIVE_BENCH_CUDA_KERNELS_H_
#define HEED_NATIVE_BENCH_CUDA_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "heed/dtype.h"

namespace heed::bench {

// All of these put work into the default stream and throw what Require() throws.

// What numbers are divided by before they are rounded: number n by each[n / numbers].
struct Scales {
  const float* each = nullptr;  // device memory; nullptr: by nothing
  int64_t numbers = 1;          // that share one
};

// Numbers ~ N(0, 1), rounded to float32, float16, bfloat16 or float8_e4m3; the same for the same
// seed.
void FillNormal(void* data, DType dtype, int64_t count, uint64_t seed, const Scales& scales = {});

// p = softmax(scale * s) of rows of scores in float32. Row r stands for query r % q_len, which sees
// the first kv_len - q_len + r % q_len + 1 keys, or all of them if not causal; the others weigh 0.
struct SoftmaxRows {
  const float* scores = nullptr;  // [rows, kv_len]
  void* weights = nullptr;        // [rows, kv_len] of `dtype`
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int64_t q_len = 0;
  int64_t kv_len = 0;
  float scale = 1;
  bool causal = false;
};
void Softmax(const SoftmaxRows& call);

// Reads `bytes` of an array, all of them; sums of it go to the kReadBlocks floats at `sum`.
inline constexpr int kReadBlocks = 2048;
void ReadBytes(const void* data, size_t bytes, float* sum);

// Multiply-adds that never leave the registers, or, of RunWgmma, shared memory, on every
// multiprocessor. `sum` has ProbeFloats(multiprocessors) floats. Return how many floating-point
// operations they are, 2 a multiply-add.
inline int ProbeFloats(int multiprocessors) { return 4 * 256 * multiprocessors; }
double RunFma(int multiprocessors, int rounds, float* sum);
double RunMma(DType dtype, int multiprocessors, int rounds, float* sum);  // mma.sync m16n8k16
// wgmma m64n64k16, of float8_e4m3 m64n64k32; sm_90a only.
double RunWgmma(DType dtype, int multiprocessors, int rounds, float* sum);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_CUDA_KERNELS_H_
