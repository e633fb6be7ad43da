// A thread block on the host: the interface of src/cuda/block.h, with every thread of a phase run
// in turn and warp operations spelled out from the PTX manual's tables of fragments.
//
// It is stricter than a GPU. Fresh shared memory and registers are NaN. Copies arrive when they are
// waited for and no sooner. And each element of shared memory knows who touched it since the last
// barrier: two threads that meet without one, at least one of them writing, are a race, and so is a
// barrier that is missing.
#ifndef HEED_TESTS_CUDA_HOST_BLOCK_H_
#define HEED_TESTS_CUDA_HOST_BLOCK_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "heed/dtype.h"
#include "src/cuda/attention_params.h"
#include "src/cuda/fault.h"
#include "src/cuda/fragments.h"

namespace heed::testing {

template <class T>
T Poison() {
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) return T{0x7fff};
  if constexpr (std::is_integral_v<T>) return static_cast<T>(0x5a5a5a5a);
  if constexpr (std::is_pointer_v<T>) return nullptr;
}

class HostBlock {
 public:
  static constexpr int kThreads = cuda::kBlockThreads;
  static constexpr int kWarp = cuda::kWarp;

  template <class T, int N>
  class Registers {
   public:
    Registers() : values_(kThreads * N, Poison<T>()) {}
    T& operator()(int thread, int n) { return values_.at(static_cast<size_t>(thread * N + n)); }

   private:
    std::vector<T> values_;
  };

  template <class T>
  class Shared {
   public:
    Shared(HostBlock* block, int count) : block_(block), memory_(std::make_shared<Memory>(count)) {}

    T Load(int thread, int i) const { return Read(thread, i); }
    void LoadTwo(int thread, int i, float (&x)[2]) const {
      if (i % 2 != 0) block_->Complain("a load of two floats that is not aligned");
      for (int n = 0; n < 2; ++n) x[n] = Read(thread, i + n);
    }
    void LoadFour(int thread, int i, float (&x)[4]) const {
      if (i % 4 != 0) block_->Complain("a load of four floats that is not aligned");
      for (int n = 0; n < 4; ++n) x[n] = Read(thread, i + n);
    }
    void LoadEight(int thread, int i, uint32_t (&pairs)[4]) const {
      if (i % 8 != 0) block_->Complain("a load of eight elements that is not aligned");
      for (int n = 0; n < 4; ++n) {
        const uint32_t low = Read(thread, i + 2 * n).bits, high = Read(thread, i + 2 * n + 1).bits;
        pairs[n] = low | high << 16;
      }
    }
    T LoadUniform(int i) const { return Read(kEveryone, i); }
    int count() const { return static_cast<int>(memory_->values.size()); }
    void Store(int thread, int i, T x) {
      MarkWrite(thread, i);
      At(i) = x;
    }
    void StoreFour(int thread, int i, const float (&x)[4]) {
      if (i % 4 != 0) block_->Complain("a store of four floats that is not aligned");
      for (int n = 0; n < 4; ++n) Store(thread, i + n, x[n]);
    }
    void CopyAsync(int thread, int i, const void* from) {
      constexpr int kCount = 16 / sizeof(T);
      if (i % kCount != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) {
        block_->Complain("an asynchronous copy that is not aligned to 16 bytes");
      }
      std::array<T, kCount> elements;
      std::memcpy(elements.data(), from, 16);
      for (int n = 0; n < kCount; ++n) Store(thread, i + n, Poison<T>());
      block_->open_group_.push_back([*this, thread, i, elements]() mutable {
        for (int n = 0; n < kCount; ++n) Store(thread, i + n, elements[static_cast<size_t>(n)]);
      });
    }

    void Clear(int thread, int i) {
      constexpr int kCount = 16 / sizeof(T);
      if (i % kCount != 0) block_->Complain("zeros that are not aligned to 16 bytes");
      for (int n = 0; n < kCount; ++n) Store(thread, i + n, T{});
    }

   private:
    static constexpr int kNobody = -1;
    static constexpr int kEveryone = -2;
    struct Touch {
      int writer = kNobody;
      int reader = kNobody;
      int reader_warp = kNobody;
      int64_t write_epoch = -1;
      int64_t read_epoch = -1;
      int64_t write_turn = -1;  // of warps
      int64_t read_turn = -1;
    };
    struct Memory {
      explicit Memory(int count)
          : values(static_cast<size_t>(count), Poison<T>()), touches(values.size()) {}
      std::vector<T> values;
      std::vector<Touch> touches;
    };

    T& At(int i) const { return memory_->values.at(static_cast<size_t>(i)); }
    T Read(int thread, int i) const {
      Touch& touch = memory_->touches.at(static_cast<size_t>(i));
      if (IsBefore(thread, touch)) {
        block_->Complain("shared memory is read before the barrier after its write");
      }
      const int warp = WarpOf(thread);
      const bool other_warps = touch.read_epoch == block_->epoch_ && touch.reader_warp != warp;
      const bool others =
          other_warps || (touch.read_epoch == block_->epoch_ && touch.read_turn == block_->turn_ &&
                          touch.reader != thread);
      touch.reader = others ? kEveryone : thread;
      touch.reader_warp = other_warps ? kEveryone : warp;
      touch.read_epoch = block_->epoch_;
      touch.read_turn = block_->turn_;
      return At(i);
    }
    void MarkWrite(int thread, int i) {
      Touch& touch = memory_->touches.at(static_cast<size_t>(i));
      if (IsBefore(thread, touch)) {
        block_->Complain("two threads write the same shared memory between barriers");
      }
      const bool warp_has_read =
          touch.reader_warp == WarpOf(thread) && touch.read_turn < block_->turn_;
      if (touch.read_epoch == block_->epoch_ && touch.reader != thread && !warp_has_read) {
        block_->Complain("shared memory is written before the barrier after its read");
      }
      touch.writer = thread;
      touch.write_epoch = block_->epoch_;
      touch.write_turn = block_->turn_;
    }
    static int WarpOf(int thread) { return thread < 0 ? kEveryone : thread / kWarp; }
    // Is the thread before any barrier behind another's write?
    bool IsBefore(int thread, const Touch& touch) const {
      const bool warp_has_written =
          WarpOf(touch.writer) == WarpOf(thread) && touch.write_turn < block_->turn_;
      return touch.write_epoch == block_->epoch_ && touch.writer != thread && !warp_has_written;
    }

    HostBlock* block_;
    std::shared_ptr<Memory> memory_;
  };

  // What went wrong first; empty when nothing did.
  const std::string& complaint() const { return complaint_; }
  int shared_bytes() const { return shared_bytes_; }

  template <class T>
  Shared<T> Allocate(int count) {
    shared_bytes_ += (count * static_cast<int>(sizeof(T)) + 15) / 16 * 16;
    return Shared<T>(this, count);
  }
  // Each view has memory of its own here: nothing sees who relies on what the other has written.
  template <class T, class From>
  Shared<T> View(const Shared<From>& of) {
    return Shared<T>(this,
                     of.count() * static_cast<int>(sizeof(From)) / static_cast<int>(sizeof(T)));
  }

  template <class Body>
  void Each(const Body& body) {
    for (int t = 0; t < kThreads; ++t) body(t);
  }
  void Sync() { ++epoch_; }
  void SyncWarp() { ++turn_; }
  template <class Test>
  bool Any(const Test& test) {
    bool any = false;
    Each([&](int t) { any = test(t) || any; });
    Sync();
    return any;
  }

  template <class Test>
  bool AnyOfWarp(const Test& test) {
    bool any = false;
    Each([&](int t) { any = test(t) || any; });
    return any;
  }

  void CommitCopies() { groups_.push_back(std::exchange(open_group_, {})); }
  template <int kPending>
  void WaitCopies() {
    while (groups_.size() > kPending) {
      for (auto& copy : groups_.front()) copy();
      groups_.erase(groups_.begin());
    }
  }

  template <int kLanes, class T, int N>
  void GroupMax(Registers<T, N>& r) {
    Reduce<kLanes>(r, [](T a, T b) {
      if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
      return std::max(a, b);
    });
  }
  template <int kLanes, int N>
  void GroupMin(Registers<int32_t, N>& r) {
    Reduce<kLanes>(r, [](int32_t a, int32_t b) { return std::min(a, b); });
  }
  template <int kLanes, int N>
  void GroupSum(Registers<float, N>& r) {
    Reduce<kLanes>(r, [](float a, float b) { return a + b; });
  }
  template <class T, int N, int M>
  void FromQuad(Registers<T, N>& from, int n_from, int place, Registers<T, M>& to, int n_to) {
    Each([&](int t) { to(t, n_to) = from(t / 4 * 4 + place, n_from); });
  }

  template <class T, int N, int M, class Lane>
  void FromLane(Registers<T, N>& from, int n_from, const Lane& lane, Registers<T, M>& to,
                int n_to) {
    Each([&](int t) { to(t, n_to) = from(t / kWarp * kWarp + lane(t), n_from); });
  }

  static void LoadWords(const char* from, uint32_t (&words)[4]) {
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0) {
      throw std::logic_error("a load of 16 bytes that is not aligned");
    }
    std::memcpy(words, from, 16);
  }

  // Lane l receives of each matrix row l / 4, elements 2 (l % 4) and the next.
  template <class T, class Element>
  void LoadMatrix(Registers<uint32_t, 4>& r, const Shared<T>& matrix, const Element& element) {
    LoadMatrices(r, matrix, element, [](int lane, int e) {
      return std::pair{lane / 4, lane % 4 * 2 + e};
    });
  }
  // The same of the transposed matrix.
  template <class T, class Element>
  void LoadMatrixTransposed(Registers<uint32_t, 4>& r, const Shared<T>& matrix,
                            const Element& element) {
    LoadMatrices(r, matrix, element, [](int lane, int e) {
      return std::pair{lane % 4 * 2 + e, lane / 4};
    });
  }

  template <class T, int N>
  void Mma(T, Registers<float, N>& c, int tile, Registers<uint32_t, 4>& a,
           Registers<uint32_t, 4>& b, int half) {
    for (int first = 0; first < kThreads; first += kWarp)
      MultiplyWarp<T>(first, c, tile, a, b, half);
  }
  // mma.sync m16n8k8 of TF32: a lane has column l % 4 of rows g and g + 8 of A, then column 4 on.
  // Sums are cut to 24 bits, as tensor cores do (Fasi et al. 2021, doi:10.7717/peerj-cs.330).
  template <int N, int M, int K>
  void MmaTf32(Registers<float, N>& c, int tile, Registers<float, M>& a, int a_first,
               Registers<float, K>& b, int b_first) {
    for (int t = 0; t < kThreads; ++t) {
      for (int e = 0; e < 4; ++e) {
        const int row = t - t % kWarp + t % kWarp / 4 * 4,
                  col = t - t % kWarp + t % 4 * 8 + e % 2 * 4;
        float& cell = c(t, 4 * tile + e);
        double sum = cell;
        for (int k = 0; k < 8; ++k) {
          sum += double{Tf32(a(row + k % 4, a_first + k / 4 * 2 + e / 2))} *
                 double{Tf32(b(col + k % 4, b_first + k / 4))};
        }
        cell = CutToFloat(sum);
      }
    }
  }
  template <class T>
  static uint32_t Pack(T, float low, float high) {
    return Bits(T{}, low) | Bits(T{}, high) << 16;
  }
  template <class T>
  static float Unpack(T, uint16_t bits) {
    return ToFloat(T{bits});
  }

  static float Opaque(float x) { return x; }
  static int Opaque(int x) { return x; }

  bool ArrivesLast(uint32_t* counter, uint32_t blocks) {
    Sync();
    if (*counter >= blocks) Complain("more blocks come than the counter expects");
    if (++*counter < blocks) return false;
    *counter = 0;
    return true;
  }

  void Report(cuda::Fault* fault, cuda::FaultKind kind, int64_t place, int64_t value) {
    if (fault->kind == 0) *fault = {static_cast<int>(kind), place, value};
  }

 protected:
  // NaN of any sign and payload becomes 0x7fff (PTX ISA, "cvt").
  static uint32_t Bits(Float16, float x) { return std::isnan(x) ? 0x7fff : ToFloat16(x).bits; }
  static uint32_t Bits(BFloat16, float x) { return std::isnan(x) ? 0x7fff : ToBFloat16(x).bits; }
  template <class T>
  static float HalfOf(uint32_t pair, int e) {
    return ToFloat(T{static_cast<uint16_t>(pair >> 16 * e)});
  }

  void Complain(const char* what) {
    if (complaint_.empty()) complaint_ = what;
  }

  std::vector<std::function<void()>> open_group_;  // copies that are not committed

 private:
  static float Tf32(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~0x1fffu); }
  static float CutToFloat(double x) {
    const float nearest = static_cast<float>(x);
    return std::abs(double{nearest}) > std::abs(x) ? std::nextafter(nearest, 0.0f) : nearest;
  }

  template <int kLanes, class T, int N, class Op>
  void Reduce(Registers<T, N>& r, const Op& op) {
    for (int mask = 1; mask < kLanes; mask *= 2) {
      Registers<T, N> before = r;
      Each([&](int t) {
        for (int n = 0; n < N; ++n) r(t, n) = op(before(t, n), before(t ^ mask, n));
      });
    }
  }

  template <class T, class Element, class Place>
  void LoadMatrices(Registers<uint32_t, 4>& r, const Shared<T>& matrix, const Element& element,
                    const Place& place) {
    Each([&](int t) {
      const int lane = t % kWarp;
      for (int m = 0; m < 4; ++m) {
        uint32_t pair = 0;
        for (int e = 0; e < 2; ++e) {
          const auto [row, col] = place(lane, e);
          const int owner = t - lane + 8 * m + row;
          if (element(owner) % 8 != 0) Complain("a row of ldmatrix that is not aligned");
          pair |= uint32_t{matrix.Load(owner, element(owner) + col).bits} << 16 * e;
        }
        r(t, m) = pair;
      }
    });
  }

  // mma.sync m16n8k16: A is 16 x 16 (registers: rows g and g + 8, then columns 8 on), B is 16 x 8.
  template <class T, int N>
  void MultiplyWarp(int first, Registers<float, N>& c, int tile, Registers<uint32_t, 4>& a,
                    Registers<uint32_t, 4>& b, int half) {
    float left[16][16], right[16][8];
    for (int lane = 0; lane < kWarp; ++lane) {
      const int g = lane / 4, col = lane % 4 * 2;
      for (int e = 0; e < 2; ++e) {
        left[g][col + e] = HalfOf<T>(a(first + lane, 0), e);
        left[g + 8][col + e] = HalfOf<T>(a(first + lane, 1), e);
        left[g][col + 8 + e] = HalfOf<T>(a(first + lane, 2), e);
        left[g + 8][col + 8 + e] = HalfOf<T>(a(first + lane, 3), e);
        right[col + e][g] = HalfOf<T>(b(first + lane, 2 * half), e);
        right[col + 8 + e][g] = HalfOf<T>(b(first + lane, 2 * half + 1), e);
      }
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      for (int e = 0; e < 4; ++e) {
        const int row = lane / 4 + (e < 2 ? 0 : 8), col = lane % 4 * 2 + e % 2;
        float& sum = c(first + lane, 4 * tile + e);
        for (int k = 0; k < 16; ++k) sum += left[row][k] * right[k][col];
      }
    }
  }

  int64_t epoch_ = 0, turn_ = 0;  // barriers of the block, of warps
  int shared_bytes_ = 0;
  std::string complaint_;
  std::vector<std::vector<std::function<void()>>> groups_;
};

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_HOST_BLOCK_H_
