// A thread block as kernels see it, on the device. The tests have the same class for the host,
// tests/cpp/cuda/host_block.h, which runs every thread of a phase in turn, and tells when a barrier
// is missing.
//
//   Registers<T, N>   N registers of each thread: r(thread, n)
//   Shared<T>         an array of the block: Load, LoadTwo, LoadFour, LoadEight, Store, StoreFour,
//                     CopyAsync, by a thread
//   Each(body)        body(thread) for every thread; no barrier
//   Sync()            a barrier; Any(test) is one too, and ArrivesLast(), which counts blocks;
//                     SyncWarp() is one of the threads of each warp
//   collectives       of a quad or a warp, called by all threads of the block alike
//
// On the device all of this is inlined away: Registers are registers, Each is a call.
#ifndef HEED_SRC_CUDA_BLOCK_H_
#define HEED_SRC_CUDA_BLOCK_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/fault.h"
#include "src/cuda/fragments.h"
#include "src/cuda/ptx.h"

namespace heed::cuda {

class DeviceBlock {
 public:
  template <class T, int N>
  class Registers {
   public:
    HEED_DEVICE T& operator()(int /*thread*/, int n) { return values_[n]; }
    HEED_DEVICE T (&all())[N] { return values_; }

   private:
    T values_[N];
  };

  template <class T>
  class Shared {
   public:
    HEED_DEVICE explicit Shared(T* data) : data_(data) {}
    HEED_DEVICE T Load(int /*thread*/, int i) const { return data_[i]; }
    HEED_DEVICE void LoadTwo(int /*thread*/, int i, float (&x)[2]) const {
      const float2 two = *reinterpret_cast<const float2*>(data_ + i);
      x[0] = two.x, x[1] = two.y;
    }
    HEED_DEVICE void LoadFour(int /*thread*/, int i, float (&x)[4]) const {
      const float4 four = *reinterpret_cast<const float4*>(data_ + i);
      x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
    }
    // Eight 16-bit elements from a place aligned to 16 bytes, two a word.
    HEED_DEVICE void LoadEight(int /*thread*/, int i, uint32_t (&pairs)[4]) const {
      const uint4 four = *reinterpret_cast<const uint4*>(data_ + i);
      pairs[0] = four.x, pairs[1] = four.y, pairs[2] = four.z, pairs[3] = four.w;
    }
    HEED_DEVICE T LoadUniform(int i) const { return data_[i]; }  // by all threads at once
    HEED_DEVICE void Store(int /*thread*/, int i, T x) { data_[i] = x; }
    HEED_DEVICE void StoreFour(int /*thread*/, int i, const float (&x)[4]) {
      *reinterpret_cast<float4*>(data_ + i) = make_float4(x[0], x[1], x[2], x[3]);
    }
    // 16 bytes; both places are aligned to them. There after WaitCopies() by the same thread.
    HEED_DEVICE void CopyAsync(int /*thread*/, int i, const void* from) {
      ptx::CopyAsync16(data_ + i, from);
    }
    // 16 bytes of zeros, at a place aligned to them.
    HEED_DEVICE void Clear(int /*thread*/, int i) {
      HEED_UNROLL for (int n = 0; n < 4; ++n) reinterpret_cast<uint32_t*>(data_ + i)[n] = 0;
    }
    HEED_DEVICE const T* at(int i) const { return data_ + i; }

   private:
    T* data_;
  };

  // `memory` is the block's dynamic shared memory, aligned to 16 bytes.
  HEED_DEVICE explicit DeviceBlock(char* memory) : memory_(memory) {}

  template <class T>
  HEED_DEVICE Shared<T> Allocate(int count) {
    T* data = reinterpret_cast<T*>(memory_);
    memory_ += (count * sizeof(T) + 15) / 16 * 16;
    return Shared<T>(data);
  }

  // The same memory as elements of another type.
  template <class T, class From>
  HEED_DEVICE Shared<T> View(const Shared<From>& of) {
    return Shared<T>(reinterpret_cast<T*>(const_cast<From*>(of.at(0))));
  }

  template <class Body>
  HEED_DEVICE void Each(const Body& body) {
    body(static_cast<int>(threadIdx.x));
  }
  HEED_DEVICE void Sync() { __syncthreads(); }
  HEED_DEVICE void SyncWarp() { __syncwarp(); }

  // Whether test(thread) holds for some thread: the same answer for all of them.
  template <class Test>
  HEED_DEVICE bool Any(const Test& test) {
    return __syncthreads_or(test(static_cast<int>(threadIdx.x)) ? 1 : 0) != 0;
  }

  // The same for the threads of a warp, and no barrier. Where it is true, it may be so for the sake
  // of other threads of the block.
  template <class Test>
  HEED_DEVICE bool AnyOfWarp(const Test& test) {
    return __any_sync(kAll, test(static_cast<int>(threadIdx.x)) ? 1 : 0) != 0;
  }

  HEED_DEVICE void CommitCopies() { ptx::CommitCopies(); }
  // All but the last kPending groups have arrived, those of this thread: Sync() for the others.
  template <int kPending>
  HEED_DEVICE void WaitCopies() {
    ptx::WaitCopies<kPending>();
  }

  // The largest number of a group of kLanes neighbours (NaN is passed over), the smallest, and the
  // sum.
  template <int kLanes, class T, int N>
  HEED_DEVICE void GroupMax(Registers<T, N>& r) {
    GroupReduce<kLanes>(r, [](T a, T b) { return Larger(a, b); });
  }
  template <int kLanes, int N>
  HEED_DEVICE void GroupMin(Registers<int32_t, N>& r) {
    GroupReduce<kLanes>(r, [](int32_t a, int32_t b) { return min(a, b); });
  }
  template <int kLanes, int N>
  HEED_DEVICE void GroupSum(Registers<float, N>& r) {
    GroupReduce<kLanes>(r, [](float a, float b) { return a + b; });
  }
  // to(n_to) of each thread becomes from(n_from) of the thread at `place` in its quad.
  template <class T, int N, int M>
  HEED_DEVICE void FromQuad(Registers<T, N>& from, int n_from, int place, Registers<T, M>& to,
                            int n_to) {
    to(0, n_to) = __shfl_sync(kAll, from(0, n_from), place, 4);
  }

  // The same of the thread at lane(thread) of its warp.
  template <class T, int N, int M, class Lane>
  HEED_DEVICE void FromLane(Registers<T, N>& from, int n_from, const Lane& lane,
                            Registers<T, M>& to, int n_to) {
    to(0, n_to) = __shfl_sync(kAll, from(0, n_from), lane(static_cast<int>(threadIdx.x)));
  }

  // 16 bytes of global memory, aligned to them, that no thread of the launch writes. Read once, so
  // they pass by L1.
  HEED_DEVICE static void LoadWords(const char* from, uint32_t (&words)[4]) {
    ptx::LoadOnce16(from, words);
  }

  // ldmatrix.x4: element(thread) is where in `matrix` the lane's row of 8 begins.
  template <class T, class Element>
  HEED_DEVICE void LoadMatrix(Registers<uint32_t, 4>& r, const Shared<T>& matrix,
                              const Element& element) {
    ptx::LoadMatrix(r.all(), matrix.at(element(static_cast<int>(threadIdx.x))));
  }
  template <class T, class Element>
  HEED_DEVICE void LoadMatrixTransposed(Registers<uint32_t, 4>& r, const Shared<T>& matrix,
                                        const Element& element) {
    ptx::LoadMatrixTransposed(r.all(), matrix.at(element(static_cast<int>(threadIdx.x))));
  }
  // c(4 tile + e) += a b, where b is the lower or upper half of what LoadMatrix left.
  template <class T, int N>
  HEED_DEVICE void Mma(T type, Registers<float, N>& c, int tile, Registers<uint32_t, 4>& a,
                       Registers<uint32_t, 4>& b, int half) {
    float sums[4];
    HEED_UNROLL for (int e = 0; e < 4; ++e) sums[e] = c(0, 4 * tile + e);
    ptx::Mma(type, sums, a.all(), b(0, 2 * half), b(0, 2 * half + 1));
    HEED_UNROLL for (int e = 0; e < 4; ++e) c(0, 4 * tile + e) = sums[e];
  }
  // c(4 tile + e) += a b, TF32: four numbers a(a_first) on and two b(b_first) on.
  template <int N, int M, int K>
  HEED_DEVICE void MmaTf32(Registers<float, N>& c, int tile, Registers<float, M>& a, int a_first,
                           Registers<float, K>& b, int b_first) {
    float sums[4], left[4];
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      sums[e] = c(0, 4 * tile + e);
      left[e] = a(0, a_first + e);
    }
    ptx::MmaTf32(sums, left, b(0, b_first), b(0, b_first + 1));
    HEED_UNROLL for (int e = 0; e < 4; ++e) c(0, 4 * tile + e) = sums[e];
  }
  template <class T>
  HEED_DEVICE static uint32_t Pack(T type, float low, float high) {
    return ptx::Pack(type, low, high);
  }
  template <class T>
  HEED_DEVICE static float Unpack(T type, uint16_t bits) {
    return ptx::Unpack(type, bits);
  }

  // x, of which the compiler knows nothing: what is made of it is not kept from one use to the
  // next, where it would take registers.
  HEED_DEVICE static float Opaque(float x) {
    asm volatile("" : "+f"(x));
    return x;
  }
  HEED_DEVICE static int Opaque(int x) {
    asm volatile("" : "+r"(x));
    return x;
  }

  // Counts the blocks that have come here: true in the last of `blocks`, which then sees what all
  // threads of the others wrote to memory before they came. It leaves the counter at 0. One thread
  // releases what the barrier in front of it showed to it, and acquires for those behind the next
  // one (PTX ISA 9.0, "Causality order").
  HEED_DEVICE bool ArrivesLast(uint32_t* counter, uint32_t blocks) {
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) last = ptx::CountReleasing(counter, blocks - 1) == blocks - 1;
    return __syncthreads_or(last ? 1 : 0) != 0;
  }

  // Keeps the first fault of all blocks.
  HEED_DEVICE void Report(Fault* fault, FaultKind kind, int64_t place, int64_t value) {
    if (atomicCAS(&fault->kind, 0, static_cast<int>(kind)) != 0) return;
    fault->place = place;
    fault->value = value;
  }

 private:
  static constexpr unsigned kAll = 0xffffffffu;
  HEED_DEVICE static float Larger(float a, float b) { return fmaxf(a, b); }
  HEED_DEVICE static int32_t Larger(int32_t a, int32_t b) { return max(a, b); }
  template <int kLanes, class T, int N, class Op>
  HEED_DEVICE static void GroupReduce(Registers<T, N>& r, const Op& op) {
    HEED_UNROLL for (int n = 0; n < N; ++n) {
      HEED_UNROLL for (int mask = 1; mask < kLanes; mask *= 2) {
        r(0, n) = op(r(0, n), __shfl_xor_sync(kAll, r(0, n), mask));
      }
    }
  }

  char* memory_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_BLOCK_H_
