// How kernel code is marked. Kernels are templates over a Block (block.h) and use nothing but it
// and functions marked here, so the same source runs on a GPU and, compiled as plain C++, in the
// emulated thread block of the tests.
#ifndef HEED_SRC_CUDA_DEVICE_H_
#define HEED_SRC_CUDA_DEVICE_H_

#ifdef __CUDACC__
#define HEED_DEVICE __device__ __forceinline__
#define HEED_UNROLL _Pragma("unroll")
#define HEED_NO_UNROLL _Pragma("unroll 1")
#define HEED_UNROLL_BY_FOUR _Pragma("unroll 4")
#else
#define HEED_DEVICE inline
#define HEED_UNROLL
#define HEED_NO_UNROLL
#define HEED_UNROLL_BY_FOUR
#endif

#endif  // HEED_SRC_CUDA_DEVICE_H_
