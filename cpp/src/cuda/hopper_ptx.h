// The PTX of the Hopper kernel, one instruction a function. Device only; sm_90a. Names in quotes
// are sections of the PTX ISA 9.0.
#ifndef HEED_SRC_CUDA_HOPPER_PTX_H_
#define HEED_SRC_CUDA_HOPPER_PTX_H_

#include <cuda.h>

#include <cstdint>

#include "heed/dtype.h"
#include "src/cuda/ptx.h"

namespace heed::cuda::ptx {

// "setmaxnreg". By all threads of a warp group.
template <int kRegisters>
__device__ __forceinline__ void GiveRegistersBack() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// "barrier.cta", number `id` of 16, among `threads` threads.
__device__ __forceinline__ void SyncThreads(int id, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ bool AnyOfThreads(int id, int threads, bool test) {
  uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred mine, some;\n"
      "setp.ne.u32 mine, %3, 0;\n"
      "barrier.cta.red.or.pred some, %1, %2, mine;\n"
      "selp.u32 %0, 1, 0, some;\n"
      "}"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(test ? 1u : 0u)
      : "memory");
  return any != 0;
}

// "mbarrier". `barrier` is an address in shared memory.
__device__ __forceinline__ void InitBarrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void FenceInitOfBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and adds the bytes that the phase has to wait for.
__device__ __forceinline__ void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Until the phase of this parity is complete; of a fresh barrier the phase of parity 1 is.
__device__ __forceinline__ void WaitForPhase(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// "cp.async.bulk.tensor": a box of a tensor of four dimensions. By one thread.
__device__ __forceinline__ void LoadBox(uint32_t to, const CUtensorMap* map, uint32_t barrier,
                                        int x0, int x1, int x2, int x3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
      : "memory");
}
// "cp.async.bulk": so many bytes of global memory. Both places are multiples of 16. By one thread.
__device__ __forceinline__ void LoadBytes(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// "membar/fence", fence.proxy.async: what this thread wrote before is seen by wgmma and TMA after.
__device__ __forceinline__ void FenceProxyAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group". By all threads of a warp group.
__device__ __forceinline__ void MmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void MmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void MmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// "wgmma.mma_async", m64nNk16, sums in float32. The lists of a thread's registers:
#define HEED_OUT_8(c, i)                                                                      \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define HEED_OUT_32(c, i) \
  HEED_OUT_8(c, i), HEED_OUT_8(c, i + 8), HEED_OUT_8(c, i + 16), HEED_OUT_8(c, i + 24)
#define HEED_FROM_0_TO_23                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23"
#define HEED_FROM_24_TO_39 \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39"
#define HEED_FROM_0_TO_31                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HEED_FROM_32_TO_63                                                                \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HEED_FROM_64_TO_127                                                                  \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, "    \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "    \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
  "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define HEED_FROM_64_TO_79 \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define HEED_SUMS_4 "{%0, %1, %2, %3}"
#define HEED_SUMS_24 "{" HEED_FROM_0_TO_23 "}"
#define HEED_SUMS_40 "{" HEED_FROM_0_TO_23 ", " HEED_FROM_24_TO_39 "}"
#define HEED_SUMS_32 "{" HEED_FROM_0_TO_31 "}"
#define HEED_SUMS_64 "{" HEED_FROM_0_TO_31 ", " HEED_FROM_32_TO_63 "}"
#define HEED_SUMS_80 "{" HEED_FROM_0_TO_31 ", " HEED_FROM_32_TO_63 ", " HEED_FROM_64_TO_79 "}"
#define HEED_SUMS_128 "{" HEED_FROM_0_TO_31 ", " HEED_FROM_32_TO_63 ", " HEED_FROM_64_TO_127 "}"

// c = a b^T (+ c): a is 64 x 16 and b is N x 16, both row-major in shared memory.
#define HEED_MMA_SHARED(T, type, N, SUMS, OUT, a_at, b_at, add_at)                         \
  __device__ __forceinline__ void MmaShared(T, float* c, uint64_t a, uint64_t b, bool add, \
                                            Columns<N>) {                                  \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_at                            \
                 ", 0;\n"                                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " " SUMS  \
                 ", " a_at ", " b_at ", add, 1, 1, 0, 0;\n}"                               \
                 : OUT                                                                     \
                 : "l"(a), "l"(b), "r"(add ? 1 : 0));                                      \
  }
// c += a b: a is 64 x 16 in registers, b is 16 x N, row-major in shared memory (its n is
// contiguous: "transposed").
#define HEED_MMA_REGISTERS(T, type, N, SUMS, OUT, a0, a1, a2, a3, b_at, add_at)                    \
  __device__ __forceinline__ void MmaRegisters(T, float* c, const uint32_t* a, uint64_t b,         \
                                               Columns<N>) {                                       \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_at                                    \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " " SUMS ", {" a0 \
                 ", " a1 ", " a2 ", " a3 "}, " b_at ", add, 1, 1, 1;\n}"                           \
                 : OUT                                                                             \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1));                    \
  }
// Of bfloat16, b by how its numbers lie: N x 16 and row-major (its k is contiguous), or 16 x N and
// row-major ("transposed": kMn is 1). a b (+ c) with a of 64 x 16 in registers, and a^T b (+ c)
// with a of 16 x 64, row-major in shared memory.
#define HEED_MMA_ANY_RIGHT(N, SUMS, OUT, a0, a1, a2, a3, b_at, add_at, mn_at)                      \
  template <int kMn>                                                                               \
  __device__ __forceinline__ void MmaLeftRegisters(float* c, const uint32_t* a, uint64_t b,        \
                                                   bool add, Columns<N>) {                         \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_at                                    \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 " SUMS ", {" a0 ", " a1 \
                 ", " a2 ", " a3 "}, " b_at ", add, 1, 1, " mn_at ";\n}"                           \
                 : OUT                                                                             \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0),           \
                   "n"(kMn));                                                                      \
  }
#define HEED_MMA_LEFT_TRANSPOSED(N, SUMS, OUT, a_at, b_at, add_at, mn_at)                       \
  template <int kMn>                                                                            \
  __device__ __forceinline__ void MmaLeftTransposed(float* c, uint64_t a, uint64_t b, bool add, \
                                                    Columns<N>) {                               \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_at                                 \
                 ", 0;\n"                                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 " SUMS ", " a_at     \
                 ", " b_at ", add, 1, 1, 1, " mn_at ";\n}"                                      \
                 : OUT                                                                          \
                 : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(kMn));                                 \
  }
// The same of float8, m64nNk32: b is N x 32 and row-major in shared memory in both, as 8-bit
// operands are never transposed. c = a b^T (+ c), a 64 x 32 in shared memory or in registers.
#define HEED_MMA_SHARED_8(N, SUMS, OUT, a_at, b_at, add_at)                                 \
  __device__ __forceinline__ void MmaShared(Float8E4M3, float* c, uint64_t a, uint64_t b,   \
                                            bool add, Columns<N>) {                         \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_at                             \
                 ", 0;\n"                                                                   \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 " SUMS ", " a_at \
                 ", " b_at ", add, 1, 1;\n}"                                                \
                 : OUT                                                                      \
                 : "l"(a), "l"(b), "r"(add ? 1 : 0));                                       \
  }
#define HEED_MMA_REGISTERS_8(N, SUMS, OUT, a0, a1, a2, a3, b_at, add_at)                           \
  __device__ __forceinline__ void MmaRegisters(Float8E4M3, float* c, const uint32_t* a,            \
                                               uint64_t b, bool add, Columns<N>) {                 \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add_at                                    \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 " SUMS ", {" a0 ", " a1 \
                 ", " a2 ", " a3 "}, " b_at ", add, 1, 1;\n}"                                      \
                 : OUT                                                                             \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0));          \
  }
#define HEED_OUT_ALL_8 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
#define HEED_OUT_ALL_48 HEED_OUT_8(c, 0), HEED_OUT_8(c, 8), HEED_OUT_8(c, 16)
#define HEED_OUT_ALL_80 HEED_OUT_32(c, 0), HEED_OUT_8(c, 32)
#define HEED_OUT_ALL_64 HEED_OUT_32(c, 0)
#define HEED_OUT_ALL_128 HEED_OUT_32(c, 0), HEED_OUT_32(c, 32)
#define HEED_OUT_ALL_160 HEED_OUT_ALL_128, HEED_OUT_8(c, 64), HEED_OUT_8(c, 72)
#define HEED_OUT_ALL_256 HEED_OUT_ALL_128, HEED_OUT_32(c, 64), HEED_OUT_32(c, 96)

template <int kCount>
struct Columns {};

HEED_MMA_SHARED(Float16, "f16", 64, HEED_SUMS_32, HEED_OUT_ALL_64, "%32", "%33", "%34")
HEED_MMA_SHARED(BFloat16, "bf16", 64, HEED_SUMS_32, HEED_OUT_ALL_64, "%32", "%33", "%34")
HEED_MMA_SHARED(Float16, "f16", 48, HEED_SUMS_24, HEED_OUT_ALL_48, "%24", "%25", "%26")
HEED_MMA_SHARED(Float16, "f16", 80, HEED_SUMS_40, HEED_OUT_ALL_80, "%40", "%41", "%42")
HEED_MMA_SHARED(BFloat16, "bf16", 48, HEED_SUMS_24, HEED_OUT_ALL_48, "%24", "%25", "%26")
HEED_MMA_SHARED(BFloat16, "bf16", 80, HEED_SUMS_40, HEED_OUT_ALL_80, "%40", "%41", "%42")
HEED_MMA_SHARED(Float16, "f16", 128, HEED_SUMS_64, HEED_OUT_ALL_128, "%64", "%65", "%66")
HEED_MMA_SHARED(BFloat16, "bf16", 128, HEED_SUMS_64, HEED_OUT_ALL_128, "%64", "%65", "%66")
HEED_MMA_SHARED(Float16, "f16", 160, HEED_SUMS_80, HEED_OUT_ALL_160, "%80", "%81", "%82")
HEED_MMA_SHARED(BFloat16, "bf16", 160, HEED_SUMS_80, HEED_OUT_ALL_160, "%80", "%81", "%82")
HEED_MMA_REGISTERS(Float16, "f16", 64, HEED_SUMS_32, HEED_OUT_ALL_64, "%32", "%33", "%34", "%35",
                   "%36", "%37")
HEED_MMA_REGISTERS(Float16, "f16", 128, HEED_SUMS_64, HEED_OUT_ALL_128, "%64", "%65", "%66", "%67",
                   "%68", "%69")
HEED_MMA_REGISTERS(BFloat16, "bf16", 64, HEED_SUMS_32, HEED_OUT_ALL_64, "%32", "%33", "%34", "%35",
                   "%36", "%37")
HEED_MMA_REGISTERS(BFloat16, "bf16", 128, HEED_SUMS_64, HEED_OUT_ALL_128, "%64", "%65", "%66",
                   "%67", "%68", "%69")
HEED_MMA_REGISTERS(Float16, "f16", 256, HEED_SUMS_128, HEED_OUT_ALL_256, "%128", "%129", "%130",
                   "%131", "%132", "%133")
HEED_MMA_REGISTERS(BFloat16, "bf16", 256, HEED_SUMS_128, HEED_OUT_ALL_256, "%128", "%129", "%130",
                   "%131", "%132", "%133")
HEED_MMA_SHARED_8(64, HEED_SUMS_32, HEED_OUT_ALL_64, "%32", "%33", "%34")
HEED_MMA_SHARED_8(128, HEED_SUMS_64, HEED_OUT_ALL_128, "%64", "%65", "%66")
HEED_MMA_REGISTERS_8(64, HEED_SUMS_32, HEED_OUT_ALL_64, "%32", "%33", "%34", "%35", "%36", "%37")
HEED_MMA_REGISTERS_8(128, HEED_SUMS_64, HEED_OUT_ALL_128, "%64", "%65", "%66", "%67", "%68", "%69")

HEED_MMA_ANY_RIGHT(64, HEED_SUMS_32, HEED_OUT_ALL_64, "%32", "%33", "%34", "%35", "%36", "%37",
                   "%38")
HEED_MMA_ANY_RIGHT(8, HEED_SUMS_4, HEED_OUT_ALL_8, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
HEED_MMA_LEFT_TRANSPOSED(64, HEED_SUMS_32, HEED_OUT_ALL_64, "%32", "%33", "%34", "%35")
HEED_MMA_LEFT_TRANSPOSED(8, HEED_SUMS_4, HEED_OUT_ALL_8, "%4", "%5", "%6", "%7")

#undef HEED_MMA_ANY_RIGHT
#undef HEED_MMA_LEFT_TRANSPOSED
#undef HEED_MMA_SHARED_8
#undef HEED_MMA_REGISTERS_8
#undef HEED_MMA_SHARED
#undef HEED_MMA_REGISTERS
#undef HEED_OUT_ALL_8
#undef HEED_OUT_ALL_64
#undef HEED_OUT_ALL_48
#undef HEED_OUT_ALL_80
#undef HEED_OUT_ALL_128
#undef HEED_OUT_ALL_160
#undef HEED_OUT_ALL_256
#undef HEED_SUMS_4
#undef HEED_SUMS_32
#undef HEED_SUMS_24
#undef HEED_SUMS_40
#undef HEED_SUMS_64
#undef HEED_SUMS_80
#undef HEED_SUMS_128
#undef HEED_FROM_0_TO_31
#undef HEED_FROM_0_TO_23
#undef HEED_FROM_24_TO_39
#undef HEED_FROM_32_TO_63
#undef HEED_FROM_64_TO_79
#undef HEED_FROM_64_TO_127
#undef HEED_OUT_32
#undef HEED_OUT_8

// "cvt", .e4m3x2: four floats, rounded to nearest even, the first to the lowest byte. Beyond 448
// they become it.
__device__ __forceinline__ uint32_t PackFour(float first, float second, float third, float fourth) {
  uint32_t word;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}"
      : "=r"(word)
      : "f"(first), "f"(second), "f"(third), "f"(fourth));
  return word;
}

// "fma", .bf16x2: a b + c, rounded, of both halves.
__device__ __forceinline__ uint32_t MultiplyAddPairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// "prmt": ones in the halves whose sign is set.
__device__ __forceinline__ uint32_t SignsOfPair(uint32_t pair) {
  uint32_t mask;
  asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(mask) : "r"(pair));
  return mask;
}

// "ex2": 2^x to 2 units of the last place; results below 2^-126 are 0. Volatile, so that it stays
// before the waits that it should run under.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// "rcp": 1 / x to a unit of the last place; of infinities 0.
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace heed::cuda::ptx

#endif  // HEED_SRC_CUDA_HOPPER_PTX_H_
