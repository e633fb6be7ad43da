// The warp groups of a Hopper block on the host: the interface of src/cuda/warp_group.h. Groups
// take turns, each on a thread of its own that runs until it has to wait; within a group every
// thread of a phase runs in turn (host_block.h). TMA, mbarrier and wgmma are spelled out from the
// PTX manual.
//
// It is stricter than a GPU. What TMA brings arrives when it is waited for and no sooner, products
// are made when they are waited for, from what then lies in shared memory, and their registers are
// NaN until then. Races are told as in host_shared_memory.h. A wait that nobody ends is a
// complaint.
#ifndef HEED_TESTS_CUDA_HOST_WARP_GROUP_H_
#define HEED_TESTS_CUDA_HOST_WARP_GROUP_H_

#include <array>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "host_block.h"
#include "host_shared_memory.h"
#include "src/cuda/hopper_layout.h"

namespace heed::testing {

// Lets one of several threads run at a time.
class Turns {
 public:
  // Calls body(n) on a thread for each n; an exception ends all of them, and is returned.
  std::string Run(int count, const std::function<void(int)>& body);

  // Returns once done() holds; others run meanwhile.
  void Until(int own, const std::function<bool()>& done);

 private:
  void Pass(int own);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> alive_;
  std::vector<std::unique_lock<std::mutex>> locks_;
  int turn_ = 0;
  int idle_ = 0;  // turns in which nobody got on
  std::string failure_;
};

// An mbarrier: PTX ISA 9.0, "mbarrier".
struct HostBarrier {
  bool ready = false;
  int arrivals = 0;                          // of each phase
  int pending = 0;                           // of the current one
  int64_t bytes = 0;                         // that it waits for besides
  int64_t phase = 0;                         // how many are complete
  std::vector<std::function<void()>> boxes;  // on their way
  Clock joining, released;
  // Of groups all of whose threads arrive: the time up to which each knows what the others did.
  std::array<int64_t, cuda::kMaxGroups> whole_joining = kNever, whole_released = kNever;
  static constexpr std::array<int64_t, cuda::kMaxGroups> kNever = {-1, -1, -1, -1};
};

// A named barrier of several groups.
struct Meeting {
  int expected;
  int arrived = 0;
  int64_t held = 0;  // meetings
  bool any = false, result = false;
  Clock joining{}, released{};
};

// What the groups of a block share.
struct HostHopperBlock {
  explicit HostHopperBlock(int bytes, int num_consumers = 2)
      : memory(bytes, &agents), all{num_consumers + 1}, consumers{num_consumers} {
    for (int g = 0; g < cuda::kMaxGroups; ++g) agents[static_cast<size_t>(g)].group = g;
  }
  // Calls body(group) for each warp group. Returns what went wrong first; empty when nothing did.
  template <class Body>
  std::string Run(const Body& body);

  std::array<Agent, cuda::kMaxGroups> agents;
  HostSharedMemory memory;
  std::array<HostBarrier, cuda::kMaxBarriers> barriers;
  Meeting all, consumers;
  Turns turns;
};

class HostWarpGroup : public HostBlock {
 public:
  using Map = cuda::TileMap;

  HostWarpGroup(HostHopperBlock* block, int index)
      : block_(*block), agent_(block->agents[static_cast<size_t>(index)]) {}

  int index() const { return agent_.group; }
  template <class Body>
  void Each(const Body& body) {
    fenced_ = false;  // it may touch registers of products
    HostBlock::Each(body);
  }
  template <class Body>
  void Leader(const Body& body) {
    body();
  }

  void Sync() {
    agent_.synced = agent_.now();
    agent_.Tick();
  }
  void SyncWarps() {}  // lanes run in step: no access may count on it
  void SyncAll() { Meet(block_.all, false); }
  void SyncConsumers() { Meet(block_.consumers, false); }
  template <class Test>
  bool AnyOfConsumers(const Test& test) {
    bool any = false;
    Each([&](int t) { any = test(t) || any; });
    return Meet(block_.consumers, any);
  }
  void MaxOfGroup(Registers<int32_t, 4>& r);

  template <class Test>
  bool AnyOfGroup(const Test& test) {
    bool any = false;
    Each([&](int t) { any = test(t) || any; });
    Sync();
    return any;
  }

  template <int kRegisters>
  void GiveRegistersBack() {}
  template <int kRegisters>
  void TakeRegisters() {}

  void InitBarrier(int barrier, int arrivals);
  void FenceInitOfBarriers() {}
  void ArriveExpecting(int barrier, int bytes);
  void ArriveWarps(int barrier);
  void WaitForPhase(int barrier, uint32_t parity);
  void LoadBox(int to, const Map& map, int barrier, int column, int row, int head, int entry);
  void LoadBytes(int to, const void* from, int bytes, int barrier);
  void FenceProxyAsync() { ++agent_.fences; }

  uint16_t Load(int thread, int at) { return block_.memory.Read(agent_, thread, at); }
  void Store(int thread, int at, uint16_t number) {
    block_.memory.Write(agent_, thread, at, number);
  }
  uint32_t LoadWord(int thread, int at);
  void LoadPair(int thread, int at, uint32_t (&words)[2]);
  void StoreWord(int thread, int at, uint32_t word);
  void LoadChunk(int thread, int at, uint32_t (&pairs)[4]);
  void StoreChunk(int thread, int at, const uint32_t (&pairs)[4]);
  void CopyAsync(int thread, int at, const void* from);

  uint64_t Matrix(int at, int leading) const {
    return cuda::SwizzledDescriptor(static_cast<uint32_t>(kFirstByte + at), leading);
  }
  void MmaFence() { fenced_ = true; }
  void MmaCommit() { committed_.push_back(std::exchange(open_, {})); }
  void MmaCommitAtOnce() { MmaCommit(); }
  template <int kPending>
  void MmaWait() {
    while (committed_.size() > kPending) FinishProducts();
  }
  template <int kCols, class T, int N>
  void MmaShared(T type, Registers<float, N>& c, uint64_t a, uint64_t b, bool add) {
    static_assert(N == kCols / 2);
    std::vector<float>* sums = Take(c);
    open_.push_back({sums, [this, type, sums, a, b, add] {
                       if (!add) std::fill(sums->begin(), sums->end(), 0.0f);
                       Multiply<kCols>(*sums, LeftOf(type, a), RowsOf(type, b, kCols));
                     }});
  }
  template <int kCols, int N, int M>
  void MmaRegisters(Float8E4M3 type, Registers<float, N>& c, Registers<uint32_t, M>& a, int from,
                    uint64_t b, bool add) {
    IssueRegisters<kCols>(type, c, a, from, [this, type, b, add](std::vector<float>& sums) {
      if (!add) std::fill(sums.begin(), sums.end(), 0.0f);
      return RowsOf(type, b, kCols);
    });
  }
  template <int kCols, class T, int N, int M>
  void MmaRegisters(T type, Registers<float, N>& c, Registers<uint32_t, M>& a, int from,
                    uint64_t b) {
    IssueRegisters<kCols>(type, c, a, from, [this, type, b](std::vector<float>&) {
      return ColumnsOf(type, b, kCols);
    });
  }
  template <int kCols, cuda::RightOperand kRight, int N, int M>
  void MmaLeftRegisters(Registers<float, N>& c, Registers<uint32_t, M>& a, int from, uint64_t b,
                        bool add) {
    IssueRegisters<kCols>(BFloat16{}, c, a, from, [this, b, add](std::vector<float>& sums) {
      if (!add) std::fill(sums.begin(), sums.end(), 0.0f);
      return RightOf<kCols, kRight>(b);
    });
  }
  template <int kCols, cuda::RightOperand kRight, int N>
  void MmaLeftTransposed(Registers<float, N>& c, uint64_t a, uint64_t b, bool add) {
    static_assert(N == kCols / 2);
    std::vector<float>* sums = Take(c);
    open_.push_back({sums, [this, sums, a, b, add] {
                       if (!add) std::fill(sums->begin(), sums->end(), 0.0f);
                       Left<BFloat16> left;
                       const auto columns = ColumnsOf(BFloat16{}, a, 64);
                       std::copy(columns.begin(), columns.end(), left.begin());
                       Multiply<kCols>(*sums, left, RightOf<kCols, kRight>(b));
                     }});
  }
  // ldmatrix: lane l receives of each matrix row l / 4, elements 2 (l % 4) and the next; of the
  // transposed one column l / 4.
  template <int N, class Place>
  void LoadFragments(Registers<uint32_t, N>& r, int from, const Place& place) {
    LoadPieces(r, from, place, [](int lane, int e) {
      return std::pair{lane / 4, lane % 4 * 2 + e};
    });
  }
  template <int N, class Place>
  void LoadFragmentsTransposed(Registers<uint32_t, N>& r, int from, const Place& place) {
    LoadPieces(r, from, place, [](int lane, int e) {
      return std::pair{lane % 4 * 2 + e, lane / 4};
    });
  }
  static uint32_t PackFour(float first, float second, float third, float fourth) {
    uint32_t word = 0;
    for (const float x : {fourth, third, second, first}) word = word << 8 | ToFloat8E4M3(x).bits;
    return word;
  }

  static float Exp2(float x) { return std::exp2(x); }
  static float Reciprocal(float x) { return 1 / x; }
  static uint32_t MultiplyAddPairs(uint32_t a, uint32_t b, uint32_t c) {
    const auto sum = [&](int e) {
      return std::fma(HalfOf<BFloat16>(a, e), HalfOf<BFloat16>(b, e), HalfOf<BFloat16>(c, e));
    };
    return Pack(BFloat16{}, sum(0), sum(1));
  }
  static uint32_t SignsOfPair(uint32_t pair) { return (pair >> 15 & 0x10001) * 0xffff; }

  // When the group is done.
  void Finish() {
    if (!committed_.empty() || !open_.empty()) Complain("products were never waited for");
    if (!complaint().empty()) block_.memory.Complain(complaint());
  }

 private:
  // Where the block's shared memory begins in the window of addresses.
  static constexpr int kFirstByte = 3 * cuda::kSwizzleBytes;
  // Numbers of 32 bytes, the depth of a product.
  template <class T>
  static constexpr size_t kDepth = 32 / sizeof(T);
  template <class T>
  using Slice = std::array<float, kDepth<T>>;
  template <class T>
  using Left = std::array<Slice<T>, 64>;  // the first operand, 64 x kDepth
  struct Product {
    std::vector<float>* sums;
    std::function<void()> run;
  };
  struct Accumulators {
    std::vector<float> sums;
    std::function<bool()> untouched;
    std::function<void(const std::vector<float>&)> put_back;
  };

  bool Meet(Meeting& meeting, bool any);
  HostBarrier& BarrierAt(int barrier);
  void CompletePhase(HostBarrier& barrier, int number);

  // The numbers of an accumulator, which products work on while the registers are NaN.
  template <int N>
  std::vector<float>* Take(Registers<float, N>& c);
  // right(sums) is the second operand, of kCols columns.
  template <int kCols, class T, int N, int M, class Right>
  void IssueRegisters(T type, Registers<float, N>& c, Registers<uint32_t, M>& a, int from,
                      const Right& right) {
    static_assert(N == kCols / 2);
    std::vector<float>* sums = Take(c);
    const std::vector<uint32_t> before = Copy(a, from);
    open_.push_back({sums, [this, type, sums, &a, from, before, right] {
                       if (Copy(a, from) != before) {
                         Complain("registers of a product changed before it was waited for");
                       }
                       const auto columns = right(*sums);
                       Multiply<kCols>(*sums, LeftOf(type, a, from), columns);
                     }});
  }
  void FinishProducts();

  // The byte of shared memory that a descriptor's matrix has at `offset` from its first one.
  int ByteAt(uint64_t descriptor, int offset);
  template <class T>
  float ElementAt(T, uint64_t descriptor, int offset) {
    const int byte = ByteAt(descriptor, offset);
    const uint16_t pair = block_.memory.Read(agent_, kAllThreads, byte & ~1, true);
    return ToFloat(T{static_cast<decltype(T::bits)>(pair >> byte % 2 * 8)});
  }
  static int Leading(uint64_t descriptor) {
    return static_cast<int>(descriptor >> 16 & 0x3fff) * 16;
  }
  static int Stride(uint64_t descriptor) {
    return static_cast<int>(descriptor >> 32 & 0x3fff) * 16;
  }

  // `rows` rows of numbers that are contiguous ("K-major").
  template <class T>
  std::vector<Slice<T>> RowsOf(T type, uint64_t descriptor, int rows) {
    std::vector<Slice<T>> matrix(static_cast<size_t>(rows));
    for (int r = 0; r < rows; ++r) {
      const int offset = r / 8 * Stride(descriptor) + r % 8 * 128;
      for (size_t k = 0; k < kDepth<T>; ++k) {
        matrix[static_cast<size_t>(r)][k] =
            ElementAt(type, descriptor, offset + static_cast<int>(k * sizeof(T)));
      }
    }
    return matrix;
  }
  // The same of a matrix whose columns are contiguous ("MN-major"): 16 rows of `columns` numbers.
  template <class T>
  std::vector<Slice<T>> ColumnsOf(T type, uint64_t descriptor, int columns) {
    static_assert(sizeof(T) == 2, "wgmma transposes operands of 16 bits alone");
    std::vector<Slice<T>> matrix(static_cast<size_t>(columns));
    for (int n = 0; n < columns; ++n) {
      const int offset = n / 64 * Leading(descriptor) + n % 64 * 2;
      for (int k = 0; k < 16; ++k) {
        matrix[static_cast<size_t>(n)][static_cast<size_t>(k)] =
            ElementAt(type, descriptor, offset + k / 8 * Stride(descriptor) + k % 8 * 128);
      }
    }
    return matrix;
  }
  template <int kCols, cuda::RightOperand kRight>
  std::vector<Slice<BFloat16>> RightOf(uint64_t b) {
    if (kRight == cuda::RightOperand::kRowsOfN) return RowsOf(BFloat16{}, b, kCols);
    return ColumnsOf(BFloat16{}, b, kCols);
  }
  template <int N, class Place, class Cell>
  void LoadPieces(Registers<uint32_t, N>& r, int from, const Place& place, const Cell& cell) {
    Each([&](int t) {
      const int lane = t % kWarp;
      for (int m = 0; m < 4; ++m) {
        uint32_t pair = 0;
        for (int e = 0; e < 2; ++e) {
          const auto [row, col] = cell(lane, e);
          const int owner = t - lane + 8 * m + row;
          if (place(owner) % 16 != 0) Complain("a row of ldmatrix that is not aligned");
          pair |= uint32_t{Load(owner, place(owner) + 2 * col)} << 16 * e;
        }
        r(t, from + m) = pair;
      }
    });
  }
  template <class T>
  Left<T> LeftOf(T type, uint64_t descriptor) {
    Left<T> left;
    const auto rows = RowsOf(type, descriptor, 64);
    std::copy(rows.begin(), rows.end(), left.begin());
    return left;
  }
  template <int M>
  static std::vector<uint32_t> Copy(Registers<uint32_t, M>& a, int from) {
    std::vector<uint32_t> copy;
    for (int t = 0; t < kThreads; ++t) {
      for (int n = 0; n < 4; ++n) copy.push_back(a(t, from + n));
    }
    return copy;
  }
  // Registers from a(from) on: those of mma.sync m16n8k16 (of float8 m16n8k32), 16 rows for each
  // warp.
  template <class T, int M>
  static Left<T> LeftOf(T, Registers<uint32_t, M>& a, int from) {
    constexpr int kElements = 4 / sizeof(T);
    Left<T> left;
    for (int t = 0; t < kThreads; ++t) {
      for (int n = 0; n < 4; ++n) {
        for (int e = 0; e < kElements; ++e) {
          const int row = t / kWarp * 16 + t % kWarp / 4 + n % 2 * 8;
          const int col = (t % 4 + n / 2 * 4) * kElements + e;
          const uint32_t bits = a(t, from + n) >> e * 8 * static_cast<int>(sizeof(T));
          left[static_cast<size_t>(row)][static_cast<size_t>(col)] =
              ToFloat(T{static_cast<decltype(T::bits)>(bits)});
        }
      }
    }
    return left;
  }
  // Number n of a thread: row 16 (warp) + lane / 4 (+ 8), column 8 (n / 4) + 2 (lane % 4) + n % 2.
  template <int kCols, size_t kCount>
  static void Multiply(std::vector<float>& sums,
                       const std::array<std::array<float, kCount>, 64>& left,
                       const std::vector<std::array<float, kCount>>& right) {
    for (int t = 0; t < kThreads; ++t) {
      for (int n = 0; n < kCols / 2; ++n) {
        const size_t row = static_cast<size_t>(t / kWarp * 16 + t % kWarp / 4 + n / 2 % 2 * 8);
        const size_t col = static_cast<size_t>(n / 4 * 8 + t % 4 * 2 + n % 2);
        float& sum = sums[static_cast<size_t>(t * kCols / 2 + n)];
        for (size_t k = 0; k < kCount; ++k) sum += left[row][k] * right[col][k];
      }
    }
  }

  HostHopperBlock& block_;
  Agent& agent_;
  bool fenced_ = false;
  std::vector<Product> open_;
  std::vector<std::vector<Product>> committed_;
  std::map<void*, Accumulators> accumulators_;
};

template <int N>
std::vector<float>* HostWarpGroup::Take(Registers<float, N>& c) {
  if (!fenced_) Complain("a product without wgmma.fence after registers may have changed");
  const auto [place, is_new] = accumulators_.try_emplace(&c);
  Accumulators& taken = place->second;
  if (!is_new) return &taken.sums;
  for (int t = 0; t < kThreads; ++t) {
    for (int n = 0; n < N; ++n) {
      taken.sums.push_back(c(t, n));
      c(t, n) = Poison<float>();
    }
  }
  taken.untouched = [&c] {
    bool poison = true;
    for (int t = 0; t < kThreads; ++t) {
      for (int n = 0; n < N; ++n) poison = poison && std::isnan(c(t, n));
    }
    return poison;
  };
  taken.put_back = [&c](const std::vector<float>& sums) {
    for (int t = 0; t < kThreads; ++t) {
      for (int n = 0; n < N; ++n) c(t, n) = sums[static_cast<size_t>(t * N + n)];
    }
  };
  return &taken.sums;
}

template <class Body>
std::string HostHopperBlock::Run(const Body& body) {
  const std::string failure = turns.Run(all.expected, [&](int index) {
    HostWarpGroup group(this, index);
    body(group);
    group.Finish();
  });
  for (const HostBarrier& barrier : barriers) {
    if (!barrier.boxes.empty()) memory.Complain("the block ends before TMA does");
  }
  return memory.complaint().empty() ? failure : memory.complaint();
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_HOST_WARP_GROUP_H_
