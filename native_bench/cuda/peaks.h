// What the GPU can do at most, measured in this process.
#ifndef HEED_NATIVE_BENCH_CUDA_PEAKS_H_
#define HEED_NATIVE_BENCH_CUDA_PEAKS_H_

#include <cstdint>
#include <vector>

#include "heed/dtype.h"
#include "native_bench/cuda/device_memory.h"
#include "native_bench/gpu.h"
#include "native_bench/probes.h"

namespace heed::bench {

// Multiply-adds a second by type and instruction: "fma" of float32; "mma.sync", on compute
// capability 9.0 "wgmma", and where cuBLAS is built in "cublas", a product of 8192 x 8192 matrices
// of normal numbers, of float16 and bfloat16; "wgmma" and "cublaslt" of float8_e4m3, where the GPU
// has such products. Each the highest of 10 runs of some milliseconds.
std::vector<FmaPeak> MeasureDevicePeaks(EventStopwatch& stopwatch);

// The highest rate of 10 passes over a GiB: a sum, and a copy, of which bytes read and written
// count.
StreamRate MeasureDeviceStream(EventStopwatch& stopwatch);

// The current device, without what its sensors say.
Gpu DescribeGpu();

// Puts a square product into the default stream; returns its floating-point operations. Only where
// HEED_BENCH_CUBLAS is defined.
double CublasFlops(DType dtype, const void* a, const void* b, void* c, int64_t size);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_CUDA_PEAKS_H_
