// A warp group of a thread block as the Hopper kernel sees it, on the device: what block.h has, of
// 128 threads, and TMA, mbarrier and wgmma. The tests have the same class for the host,
// tests/cpp/cuda/host_warp_group.h. Addresses in shared memory are bytes from its begin.
//
//   index()           0: the one that loads; then those that compute
//   Sync, SyncAll     barriers of the group and of the block; consumers have one of their own
//   Leader(body)      body() by one thread of the group
//   Load, Store, ...  of 16-bit numbers, words and chunks of eight numbers, by a thread
//   Mma...            wgmma; registers that take part are left alone until MmaWait
#ifndef HEED_SRC_CUDA_WARP_GROUP_H_
#define HEED_SRC_CUDA_WARP_GROUP_H_

#include <cstdint>

#include "src/cuda/block.h"
#include "src/cuda/hopper_layout.h"
#include "src/cuda/hopper_ptx.h"

namespace heed::cuda {

template <int kConsumers>
class DeviceWarpGroup : public DeviceBlock {
 public:
  using Map = CUtensorMap;

  // `memory` is aligned to kSwizzleBytes; the barriers begin at `extra`.
  HEED_DEVICE DeviceWarpGroup(char* memory, int extra)
      : DeviceBlock(memory),
        // One register for all that is made of it.
        shared_(static_cast<uint32_t>(Opaque(static_cast<int>(ptx::SharedAddress(memory))))),
        tiles_(reinterpret_cast<char*>(__cvta_shared_to_generic(shared_))),
        barriers_(shared_ + extra),
        exchange_(reinterpret_cast<int32_t*>(tiles_ + extra + 8 * kMaxBarriers)),
        // The same in all lanes: the compiler sees branches that no warp takes in two.
        index_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroupThreads, 0)),
        thread_(static_cast<int>(threadIdx.x) % kGroupThreads) {}

  HEED_DEVICE int index() const { return index_; }

  template <class Body>
  HEED_DEVICE void Each(const Body& body) {
    body(Thread());
  }
  template <class Body>
  HEED_DEVICE void Leader(const Body& body) {
    if (thread_ == 0) body();
  }

  // Barrier 0 is __syncthreads(), the next ones are those of the groups, then that of consumers,
  // then their turns.
  HEED_DEVICE void Sync() { ptx::SyncThreads(1 + index_, kGroupThreads); }
  HEED_DEVICE void SyncWarps() { __syncwarp(); }  // each of them
  HEED_DEVICE void SyncAll() { __syncthreads(); }
  HEED_DEVICE void SyncConsumers() { ptx::SyncThreads(kConsumers + 2, kConsumers * kGroupThreads); }
  // Whether test(thread) holds for some thread of some consumer; a barrier of them.
  template <class Test>
  HEED_DEVICE bool AnyOfConsumers(const Test& test) {
    return ptx::AnyOfThreads(kConsumers + 2, kConsumers * kGroupThreads, test(thread_));
  }
  // The same of the threads of this group.
  template <class Test>
  HEED_DEVICE bool AnyOfGroup(const Test& test) {
    return ptx::AnyOfThreads(1 + index_, kGroupThreads, test(thread_));
  }
  // Each number becomes the largest of the group's.
  HEED_DEVICE void MaxOfGroup(Registers<int32_t, 4>& r) {
    int32_t* own = exchange_ + index_ * 16;
    const int thread = Thread();
    HEED_UNROLL for (int n = 0; n < 4; ++n) {
      const int32_t largest = __reduce_max_sync(0xffffffffu, r(0, n));
      if (thread % kWarp == 0) own[thread / kWarp * 4 + n] = largest;
    }
    Sync();
    HEED_UNROLL for (int n = 0; n < 4; ++n) {
      r(0, n) = max(max(own[n], own[4 + n]), max(own[8 + n], own[12 + n]));
    }
    Sync();
  }

  template <int kRegisters>
  HEED_DEVICE void GiveRegistersBack() {
    ptx::GiveRegistersBack<kRegisters>();
  }
  template <int kRegisters>
  HEED_DEVICE void TakeRegisters() {
    ptx::TakeRegisters<kRegisters>();
  }

  // By one thread of the block, before SyncAll().
  HEED_DEVICE void InitBarrier(int barrier, int arrivals) {
    ptx::InitBarrier(barriers_ + 8 * barrier, arrivals);
  }
  HEED_DEVICE void FenceInitOfBarriers() { ptx::FenceInitOfBarriers(); }
  HEED_DEVICE void ArriveExpecting(int barrier, int bytes) {  // by one thread
    ptx::ArriveExpecting(barriers_ + 8 * barrier, bytes);
  }
  // Every warp arrives once, when all of its threads are here.
  HEED_DEVICE void ArriveWarps(int barrier) {
    __syncwarp();
    if (thread_ % kWarp == 0) ptx::Arrive(barriers_ + 8 * barrier);
  }
  HEED_DEVICE void WaitForPhase(int barrier, uint32_t parity) {
    ptx::WaitForPhase(barriers_ + 8 * barrier, parity);
  }
  // By one thread: the box at (column, row, head, entry) goes to `to`, and counts for the barrier.
  HEED_DEVICE void LoadBox(int to, const Map& map, int barrier, int column, int row, int head,
                           int entry) {
    ptx::LoadBox(shared_ + to, &map, barriers_ + 8 * barrier, column, row, head, entry);
  }
  // By one thread: bytes of global memory go to `to`, and count for the barrier.
  HEED_DEVICE void LoadBytes(int to, const void* from, int bytes, int barrier) {
    ptx::LoadBytes(shared_ + to, from, bytes, barriers_ + 8 * barrier);
  }
  HEED_DEVICE void FenceProxyAsync() { ptx::FenceProxyAsync(); }

  HEED_DEVICE uint16_t Load(int /*thread*/, int at) const {
    return *reinterpret_cast<const uint16_t*>(tiles_ + at);
  }
  HEED_DEVICE void Store(int /*thread*/, int at, uint16_t number) {
    *reinterpret_cast<uint16_t*>(tiles_ + at) = number;
  }
  HEED_DEVICE uint32_t LoadWord(int /*thread*/, int at) const {
    return *reinterpret_cast<const uint32_t*>(tiles_ + at);
  }
  HEED_DEVICE void LoadPair(int /*thread*/, int at, uint32_t (&words)[2]) const {
    const uint2 two = *reinterpret_cast<const uint2*>(tiles_ + at);
    words[0] = two.x, words[1] = two.y;
  }
  HEED_DEVICE void StoreWord(int /*thread*/, int at, uint32_t word) {
    *reinterpret_cast<uint32_t*>(tiles_ + at) = word;
  }
  HEED_DEVICE void LoadChunk(int /*thread*/, int at, uint32_t (&pairs)[4]) const {
    const uint4 four = *reinterpret_cast<const uint4*>(tiles_ + at);
    pairs[0] = four.x, pairs[1] = four.y, pairs[2] = four.z, pairs[3] = four.w;
  }
  HEED_DEVICE void StoreChunk(int /*thread*/, int at, const uint32_t (&pairs)[4]) {
    *reinterpret_cast<uint4*>(tiles_ + at) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
  // 16 bytes; there after WaitCopies() by the same thread.
  HEED_DEVICE void CopyAsync(int /*thread*/, int at, const void* from) {
    ptx::CopyAsync16(tiles_ + at, from);
  }

  // A matrix at `at` for the functions below (SwizzledDescriptor). wgmma takes it from registers of
  // the warp: the compiler keeps it there where it knows that all lanes have the same.
  HEED_DEVICE uint64_t Matrix(int at, int leading) const {
    return SwizzledDescriptor(__shfl_sync(0xffffffffu, shared_ + at, 0), leading);
  }
  HEED_DEVICE void MmaFence() { ptx::MmaFence(); }
  HEED_DEVICE void MmaCommit() { ptx::MmaCommit(); }
  // Products before are issued before what comes next, among which ptxas spread them (nvcc 13.0).
  HEED_DEVICE void MmaCommitAtOnce() {
    ptx::MmaCommit();
    __syncwarp();
  }
  // All but the last kPending committed groups of products are done. Without the barrier of the
  // warp ptxas waits before what should run under the products (nvcc 13.0).
  template <int kPending>
  HEED_DEVICE void MmaWait() {
    __syncwarp();
    ptx::MmaWait<kPending>();
  }
  // c = a b^T, or c += a b^T: 64 x 16 and kCols x 16, of float8 32 columns of each.
  template <int kCols, class T, int N>
  HEED_DEVICE void MmaShared(T type, Registers<float, N>& c, uint64_t a, uint64_t b, bool add) {
    static_assert(N == kCols / 2);
    ptx::MmaShared(type, c.all(), a, b, add, ptx::Columns<kCols>());
  }
  // c += a b: 64 x 16 in registers a(from) on, and 16 x kCols.
  template <int kCols, class T, int N, int M>
  HEED_DEVICE void MmaRegisters(T type, Registers<float, N>& c, Registers<uint32_t, M>& a, int from,
                                uint64_t b) {
    static_assert(N == kCols / 2);
    ptx::MmaRegisters(type, c.all(), a.all() + from, b, ptx::Columns<kCols>());
  }
  // The same of float8: c = a b^T (+ c), 64 x 32 in registers and kCols x 32.
  template <int kCols, int N, int M>
  HEED_DEVICE void MmaRegisters(Float8E4M3 type, Registers<float, N>& c, Registers<uint32_t, M>& a,
                                int from, uint64_t b, bool add) {
    static_assert(N == kCols / 2);
    ptx::MmaRegisters(type, c.all(), a.all() + from, b, add, ptx::Columns<kCols>());
  }
  // Of bfloat16, the right operand as kRight says. c = a b (+ c), a 64 x 16 in registers.
  template <int kCols, RightOperand kRight, int N, int M>
  HEED_DEVICE void MmaLeftRegisters(Registers<float, N>& c, Registers<uint32_t, M>& a, int from,
                                    uint64_t b, bool add) {
    static_assert(N == kCols / 2);
    ptx::MmaLeftRegisters<kRight == RightOperand::kRowsOfK>(c.all(), a.all() + from, b, add,
                                                            ptx::Columns<kCols>());
  }
  // c = a^T b (+ c), a 16 x 64 in shared memory.
  template <int kCols, RightOperand kRight, int N>
  HEED_DEVICE void MmaLeftTransposed(Registers<float, N>& c, uint64_t a, uint64_t b, bool add) {
    static_assert(N == kCols / 2);
    ptx::MmaLeftTransposed<kRight == RightOperand::kRowsOfK>(c.all(), a, b, add,
                                                             ptx::Columns<kCols>());
  }
  // ldmatrix.x4 into registers r(from) on: place(thread) is where the lane's row of 16 bytes lies.
  template <int N, class Place>
  HEED_DEVICE void LoadFragments(Registers<uint32_t, N>& r, int from, const Place& place) {
    uint32_t four[4];
    ptx::LoadMatrix(four, tiles_ + place(thread_));
    HEED_UNROLL for (int n = 0; n < 4; ++n) r(0, from + n) = four[n];
  }
  template <int N, class Place>
  HEED_DEVICE void LoadFragmentsTransposed(Registers<uint32_t, N>& r, int from,
                                           const Place& place) {
    uint32_t four[4];
    ptx::LoadMatrixTransposed(four, tiles_ + place(thread_));
    HEED_UNROLL for (int n = 0; n < 4; ++n) r(0, from + n) = four[n];
  }
  HEED_DEVICE static uint32_t PackFour(float first, float second, float third, float fourth) {
    return ptx::PackFour(first, second, third, fourth);
  }
  HEED_DEVICE static float Exp2(float x) { return ptx::Exp2(x); }
  HEED_DEVICE static float Reciprocal(float x) { return ptx::Reciprocal(x); }
  // Of two bfloat16 numbers a word: a b + c, rounded, and ones where signs are set.
  HEED_DEVICE static uint32_t MultiplyAddPairs(uint32_t a, uint32_t b, uint32_t c) {
    return ptx::MultiplyAddPairs(a, b, c);
  }
  HEED_DEVICE static uint32_t SignsOfPair(uint32_t pair) { return ptx::SignsOfPair(pair); }

 private:
  // What is made of it is not kept: registers are dear.
  HEED_DEVICE int Thread() const { return Opaque(thread_); }

  uint32_t shared_;  // an address
  char* tiles_;
  uint32_t barriers_;
  int32_t* exchange_;
  int index_, thread_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_WARP_GROUP_H_
