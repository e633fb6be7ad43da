// What single instructions of ptx.h and hopper_ptx.h do, against plain loops: on a GPU, or on the
// interpreter, which this test binds to the same answers.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "device_backend.h"
#include "gtest/gtest.h"
#include "src/cuda/block.h"
#include "src/cuda/divisor.h"
#include "src/cuda/hopper_layout.h"
#include "src/cuda/hopper_ptx.h"
#include "src/cuda/ptx.h"
#include "src/cuda/tensor_map.h"
#include "src/cuda/warp_group.h"

namespace heed::testing {
namespace {

using cuda::SwizzledByte;

// Small whole numbers, exact in every type.
float NumberA(int row, int k) { return static_cast<float>((row * 7 + k * 3) % 11 - 5); }
float NumberB(int k, int col) { return static_cast<float>((k * 5 + col * 2) % 13 - 6); }

std::vector<float> Product(int rows, int cols, int depth) {
  std::vector<float> c;
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < cols; ++col) {
      float sum = 0;
      for (int k = 0; k < depth; ++k) sum += NumberA(row, k) * NumberB(k, col);
      c.push_back(sum);
    }
  }
  return c;
}

// Memory of the device that lives as long as the test.
template <class T>
class OnDeviceArray {
 public:
  explicit OnDeviceArray(const std::vector<T>& host) : size_(host.size()) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~OnDeviceArray() { cudaFree(data_); }
  T* get() const { return data_; }
  std::vector<T> Fetch() const {
    std::vector<T> host(size_);
    EXPECT_EQ(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return host;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

template <class T>
T Convert(float x) {
  if constexpr (std::is_same_v<T, Float16>) return ToFloat16(x);
  if constexpr (std::is_same_v<T, BFloat16>) return ToBFloat16(x);
  if constexpr (std::is_same_v<T, Float8E4M3>) return ToFloat8E4M3(x);
  if constexpr (std::is_same_v<T, float>) return x;
}

template <class T>
std::vector<T> MatrixA(int rows, int depth) {
  std::vector<T> a;
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < depth; ++k) a.push_back(Convert<T>(NumberA(row, k)));
  }
  return a;
}
template <class T>
std::vector<T> MatrixB(int depth, int cols) {
  std::vector<T> b;
  for (int k = 0; k < depth; ++k) {
    for (int col = 0; col < cols; ++col) b.push_back(Convert<T>(NumberB(k, col)));
  }
  return b;
}
template <class T>
std::vector<T> MatrixBTransposed(int depth, int cols) {
  std::vector<T> b;
  for (int col = 0; col < cols; ++col) {
    for (int k = 0; k < depth; ++k) b.push_back(Convert<T>(NumberB(k, col)));
  }
  return b;
}

__device__ void StoreSums(const float (&c)[4], float* to) {
  const int lane = static_cast<int>(threadIdx.x);
  for (int e = 0; e < 4; ++e) to[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = c[e];
}

// a 16 x 16, b 16 x 8, both row-major.
template <class T>
__global__ void MultiplyHalves(const T* a, const T* b, float* c) {
  __shared__ __align__(16) T tile_a[16 * 16], tile_b[16 * 8];
  const int lane = static_cast<int>(threadIdx.x);
  cuda::ptx::CopyAsync16(tile_a + 8 * lane, a + 8 * lane);
  if (lane < 16) cuda::ptx::CopyAsync16(tile_b + 8 * lane, b + 8 * lane);
  cuda::ptx::CommitCopies();
  cuda::ptx::WaitCopies<0>();
  __syncthreads();
  uint32_t left[4], right[4];
  cuda::ptx::LoadMatrix(left, tile_a + lane % 16 * 16 + lane / 16 * 8);
  cuda::ptx::LoadMatrixTransposed(right, tile_b + lane % 16 * 8);
  float sums[4] = {};
  cuda::ptx::Mma(T(), sums, left, right[0], right[1]);
  StoreSums(sums, c);
}

// a 16 x 8, b 8 x 8.
__global__ void MultiplyFloats(const float* a, const float* b, float* c) {
  const int row = static_cast<int>(threadIdx.x) / 4, place = static_cast<int>(threadIdx.x) % 4;
  const float left[4] = {a[row * 8 + place], a[(row + 8) * 8 + place], a[row * 8 + place + 4],
                         a[(row + 8) * 8 + place + 4]};
  float sums[4] = {};
  cuda::ptx::MmaTf32(sums, left, b[place * 8 + row], b[(place + 4) * 8 + row]);
  StoreSums(sums, c);
}

__global__ void Divide(const int32_t* n, const cuda::Divisor* divisors, int32_t* quotients) {
  const int i = static_cast<int>(threadIdx.x);
  quotients[i] = divisors[i].Quotient(n[i]);
}

class Instructions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = WhyNoDevice(); !reason.empty()) GTEST_SKIP() << reason;
  }
};
class HopperInstructions : public Instructions {
 protected:
  void SetUp() override {
    Instructions::SetUp();
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    if (major != 9) GTEST_SKIP() << "needs sm_90";
  }
};

template <class T>
void ExpectHalvesMultiply() {
  const OnDeviceArray a(MatrixA<T>(16, 16)), b(MatrixB<T>(16, 8));
  const OnDeviceArray c(std::vector<float>(16 * 8));
  MultiplyHalves<T><<<1, 32>>>(a.get(), b.get(), c.get());
  EXPECT_EQ(c.Fetch(), Product(16, 8, 16));
}
TEST_F(Instructions, MmaOfFloat16) { ExpectHalvesMultiply<Float16>(); }
TEST_F(Instructions, MmaOfBFloat16) { ExpectHalvesMultiply<BFloat16>(); }
TEST_F(Instructions, MmaOfTf32) {
  const OnDeviceArray a(MatrixA<float>(16, 8)), b(MatrixB<float>(8, 8));
  const OnDeviceArray c(std::vector<float>(16 * 8));
  MultiplyFloats<<<1, 32>>>(a.get(), b.get(), c.get());
  EXPECT_EQ(c.Fetch(), Product(16, 8, 8));
}

std::vector<uint32_t> Ascending(uint32_t count) {
  std::vector<uint32_t> numbers;
  for (uint32_t n = 0; n < count; ++n) numbers.push_back(0x01010101u * n);
  return numbers;
}

// The last 16 bytes first.
__global__ void LoadReversed(const uint32_t* from, uint32_t* to) {
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t words[4];
  cuda::ptx::LoadOnce16(from + 4 * (31 - lane), words);
  for (int n = 0; n < 4; ++n) to[4 * lane + n] = words[n];
}
TEST_F(Instructions, LoadOfSixteenBytes) {
  const std::vector<uint32_t> host = Ascending(128);
  const OnDeviceArray from(host), to(std::vector<uint32_t>(128));
  LoadReversed<<<1, 32>>>(from.get(), to.get());
  const std::vector<uint32_t> result = to.Fetch();
  for (size_t n = 0; n < 128; ++n) EXPECT_EQ(result[n], host[124 - n / 4 * 4 + n % 4]) << n;
}

__global__ void CountThreads(uint32_t* counter, uint32_t last, uint32_t* before) {
  before[blockIdx.x * blockDim.x + threadIdx.x] = cuda::ptx::CountReleasing(counter, last);
}
TEST_F(Instructions, CounterGoesFromItsLastNumberTo0) {
  const OnDeviceArray counter(std::vector<uint32_t>{0, 17});
  const OnDeviceArray before(std::vector<uint32_t>(64));
  CountThreads<<<2, 32>>>(counter.get(), 4, before.get());
  const std::vector<uint32_t> counts = before.Fetch();
  for (uint32_t n = 0; n <= 5; ++n) {
    EXPECT_EQ(std::count(counts.begin(), counts.end(), n), n < 4 ? 13 : n == 4 ? 12 : 0) << n;
  }
  EXPECT_EQ(counter.Fetch(), (std::vector<uint32_t>{4, 17}));
}

__global__ void ReadOtherLanes(const uint32_t* from, uint32_t* to) {
  cuda::DeviceBlock block(nullptr);
  cuda::DeviceBlock::Registers<uint32_t, 2> own, other;
  own(0, 0) = other(0, 1) = 0;
  own(0, 1) = from[threadIdx.x];
  block.FromLane(
      own, 1, [](int t) { return (7 * t + 3) % 32; }, other, 0);
  to[threadIdx.x] = other(0, 0) + other(0, 1);
}
TEST_F(Instructions, NumberOfAnotherLaneOfTheWarp) {
  const std::vector<uint32_t> host = Ascending(64);
  const OnDeviceArray from(host), to(std::vector<uint32_t>(64));
  ReadOtherLanes<<<1, 64>>>(from.get(), to.get());
  const std::vector<uint32_t> result = to.Fetch();
  for (size_t t = 0; t < 64; ++t) EXPECT_EQ(result[t], host[t / 32 * 32 + (7 * t + 3) % 32]) << t;
}

// A tensor [1, 1, rows, cols] comes in panels of 128 bytes, and is read back as it lies.
constexpr int kTileBytes = 64 << 10;
constexpr int kRoom = kTileBytes + 16 + 1024;

__device__ char* AlignedMemory(char* memory) {
  return memory + (-cuda::ptx::SharedAddress(memory) % cuda::kSwizzleBytes);
}

__device__ void LoadPanels(char* tile, const CUtensorMap* map, int panels, int panel_cols, int rows,
                           uint32_t barrier) {
  if (threadIdx.x == 0) {
    cuda::ptx::ArriveExpecting(barrier, static_cast<uint32_t>(panels * rows * cuda::kPanelBytes));
    for (int n = 0; n < panels; ++n) {
      cuda::ptx::LoadBox(cuda::ptx::SharedAddress(tile) + n * rows * cuda::kPanelBytes, map,
                         barrier, n * panel_cols, 0, 0, 0);
    }
  }
}

__global__ void CopyPanels(const __grid_constant__ CUtensorMap map, int panels, int panel_cols,
                           int rows, uint8_t* to) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char memory[];
  char* tile = AlignedMemory(memory);
  const uint32_t barrier = cuda::ptx::SharedAddress(tile) + kTileBytes;
  if (threadIdx.x == 0) {
    cuda::ptx::InitBarrier(barrier, 1);
    cuda::ptx::FenceInitOfBarriers();
  }
  __syncthreads();
  LoadPanels(tile, &map, panels, panel_cols, rows, barrier);
  cuda::ptx::WaitForPhase(barrier, 0);
  for (int n = static_cast<int>(threadIdx.x); n < panels * rows * 128; n += 128) to[n] = tile[n];
#endif
}

TEST_F(HopperInstructions, BoxesLieSwizzledAndAreZeroOutside) {
  constexpr int kRows = 24, kCols = 80, kBox = 32, kPanels = 2;
  const std::vector<Float16> host = MatrixA<Float16>(kRows, kCols);
  const OnDeviceArray tensor(host);
  const OnDeviceArray result(std::vector<uint8_t>(kPanels * kBox * 128));
  const CUtensorMap map = cuda::Encode({reinterpret_cast<const char*>(tensor.get()),
                                        DType::kFloat16,
                                        {kCols, kRows, 1, 1},
                                        {2 * kCols, 2 * kCols, 2 * kCols},
                                        kBox});
  ASSERT_EQ(cudaFuncSetAttribute(CopyPanels, cudaFuncAttributeMaxDynamicSharedMemorySize, kRoom),
            cudaSuccess);
  CopyPanels<<<1, 128, kRoom>>>(map, kPanels, 64, kBox, result.get());
  const std::vector<uint8_t> bytes = result.Fetch();
  for (int row = 0; row < kBox; ++row) {
    for (int col = 0; col < 64 * kPanels; ++col) {
      const bool inside = row < kRows && col < kCols;
      const float expected = inside ? NumberA(row, col) : 0;
      const uint8_t* at = bytes.data() + SwizzledByte(kBox, row, 2 * col);
      EXPECT_EQ(at[0] | at[1] << 8, Convert<Float16>(expected).bits) << row << ", " << col;
    }
  }
}

// What a thread has of 64 x N sums of a warp group, to a dense matrix.
template <int N>
__device__ void StoreSums(int thread, const float (&sums)[N / 2], float* c) {
  for (int n = 0; n < N / 2; ++n) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + n / 2 % 2 * 8;
    c[row * N + n / 4 * 8 + thread % 4 * 2 + n % 2] = sums[n];
  }
}

// c 64 x N: a 64 x depth; b as [N, depth], or where it is transposed as [depth, N].
template <class T, int N, bool kRegisters, bool kTransposed>
__global__ void MultiplyGroup(const T* a, const T* b, int depth, float* c) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char memory[];
  char* tile_a = AlignedMemory(memory);
  const int b_rows = kTransposed ? depth : N, b_cols = kTransposed ? N : depth;
  char* tile_b = tile_a + 64 * 128 * ((depth * static_cast<int>(sizeof(T)) + 127) / 128);
  const int thread = static_cast<int>(threadIdx.x);
  for (int n = thread; n < 64 * depth; n += 128) {
    const int at = SwizzledByte(64, n / depth, n % depth * static_cast<int>(sizeof(T)));
    *reinterpret_cast<T*>(tile_a + at) = a[n];
  }
  for (int n = thread; n < N * depth; n += 128) {
    const int at = SwizzledByte(b_rows, n / b_cols, n % b_cols * static_cast<int>(sizeof(T)));
    *reinterpret_cast<T*>(tile_b + at) = b[n];
  }
  cuda::ptx::FenceProxyAsync();
  __syncthreads();
  constexpr int kDepth = 32 / static_cast<int>(sizeof(T)), kEach = 4 / static_cast<int>(sizeof(T));
  const uint64_t left = cuda::SwizzledDescriptor(cuda::ptx::SharedAddress(tile_a), 0);
  const uint64_t right = cuda::SwizzledDescriptor(cuda::ptx::SharedAddress(tile_b), b_rows * 128);
  float sums[N / 2];
  for (float& sum : sums) sum = 0;
  cuda::ptx::MmaFence();
  for (int step = 0; step < depth / kDepth; ++step) {
    const uint64_t part =
        cuda::AdvancedDescriptor(right, kTransposed ? step * 16 * 128 : step * 32);
    if constexpr (kRegisters) {
      uint32_t own[4];
      for (int r = 0; r < 4; ++r) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + r % 2 * 8;
        const int k = step * kDepth + thread % 4 * kEach + r / 2 * (kDepth / 2);
        own[r] = *reinterpret_cast<const uint32_t*>(a + row * depth + k);
      }
      if constexpr (sizeof(T) == 1) {
        cuda::ptx::MmaRegisters(T(), sums, own, part, true, cuda::ptx::Columns<N>());
      } else {
        cuda::ptx::MmaRegisters(T(), sums, own, part, cuda::ptx::Columns<N>());
      }
    } else {
      cuda::ptx::MmaShared(T(), sums, cuda::AdvancedDescriptor(left, step * 32), part, step > 0,
                           cuda::ptx::Columns<N>());
    }
  }
  cuda::ptx::MmaCommit();
  cuda::ptx::MmaWait<0>();
  StoreSums<N>(thread, sums, c);
#endif
}

template <class T, int N, bool kRegisters, bool kTransposed>
void ExpectGroupMultiplies(int depth) {
  const OnDeviceArray a(MatrixA<T>(64, depth));
  const OnDeviceArray b(kTransposed ? MatrixB<T>(depth, N) : MatrixBTransposed<T>(depth, N));
  const OnDeviceArray c(std::vector<float>(64 * N));
  const auto kernel = MultiplyGroup<T, N, kRegisters, kTransposed>;
  ASSERT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRoom),
            cudaSuccess);
  kernel<<<1, 128, kRoom>>>(a.get(), b.get(), depth, c.get());
  EXPECT_EQ(c.Fetch(), Product(64, N, depth)) << N << " columns";
}

template <class T>
void ExpectGroupMultipliesHalves() {
  ExpectGroupMultiplies<T, 48, false, false>(64);
  ExpectGroupMultiplies<T, 64, false, false>(64);
  ExpectGroupMultiplies<T, 80, false, false>(32);
  ExpectGroupMultiplies<T, 128, false, false>(64);
  ExpectGroupMultiplies<T, 64, true, true>(32);
  ExpectGroupMultiplies<T, 128, true, true>(64);
  ExpectGroupMultiplies<T, 256, true, true>(48);
}
TEST_F(HopperInstructions, GroupsMultiplyFloat16) { ExpectGroupMultipliesHalves<Float16>(); }
TEST_F(HopperInstructions, GroupsMultiplyBFloat16) { ExpectGroupMultipliesHalves<BFloat16>(); }
TEST_F(HopperInstructions, GroupsMultiplyFloat8) {
  ExpectGroupMultiplies<Float8E4M3, 64, false, false>(128);
  ExpectGroupMultiplies<Float8E4M3, 128, false, false>(64);
  ExpectGroupMultiplies<Float8E4M3, 64, true, false>(128);
  ExpectGroupMultiplies<Float8E4M3, 128, true, false>(96);
}

TEST_F(Instructions, DivisorsDivide) {
  constexpr int32_t kMost = 0x7fffffff;
  std::vector<int32_t> n, expected;
  std::vector<cuda::Divisor> divisors;
  for (const int32_t d : {1, 2, 3, 5, 6, 7, 8, 12, 132, 1000, 65537, 1 << 30, kMost - 1, kMost}) {
    for (const int32_t x : {0, 1, d - 1, d, kMost / d * d - 1, kMost / d * d, kMost - 1, kMost}) {
      n.push_back(x), divisors.emplace_back(d), expected.push_back(x / d);
    }
  }
  const OnDeviceArray numbers(n), quotients(std::vector<int32_t>(n.size(), -1));
  const OnDeviceArray by(divisors);
  Divide<<<1, static_cast<unsigned>(n.size())>>>(numbers.get(), by.get(), quotients.get());
  EXPECT_EQ(quotients.Fetch(), expected);
}

// c 64 x N of bfloat16, with either order of the right operand, and a left one in registers or
// [depth, 64] in shared memory.
template <int N, bool kRegisters, int kMn>
__global__ void MultiplyOrders(const BFloat16* a, const BFloat16* b, int depth, float* c) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char memory[];
  char* tile_a = AlignedMemory(memory);
  char* tile_b = tile_a + 64 * 128;
  const int b_rows = kMn ? depth : N, b_cols = kMn ? N : depth;
  const int thread = static_cast<int>(threadIdx.x);
  for (int n = thread; n < 64 * depth; n += 128) {
    const int at = SwizzledByte(depth, n % depth, n / depth * 2);  // transposed
    *reinterpret_cast<BFloat16*>(tile_a + at) = a[n];
  }
  for (int n = thread; n < N * depth; n += 128) {
    const int at = SwizzledByte(b_rows, n / b_cols, n % b_cols * 2);
    *reinterpret_cast<BFloat16*>(tile_b + at) = b[n];
  }
  cuda::ptx::FenceProxyAsync();
  __syncthreads();
  const uint64_t left = cuda::SwizzledDescriptor(cuda::ptx::SharedAddress(tile_a), 64 * 128);
  const uint64_t right = cuda::SwizzledDescriptor(cuda::ptx::SharedAddress(tile_b), 64 * 128);
  float sums[N / 2];
  for (float& sum : sums) sum = 1e30f;  // the first product does not add
  cuda::ptx::MmaFence();
  for (int step = 0; step < depth / 16; ++step) {
    const uint64_t part = cuda::AdvancedDescriptor(right, kMn ? step * 16 * 128 : step * 32);
    if constexpr (kRegisters) {
      uint32_t own[4];
      for (int r = 0; r < 4; ++r) {
        const int row = thread / 32 * 16 + thread % 32 / 4 + r % 2 * 8;
        const int k = step * 16 + thread % 4 * 2 + r / 2 * 8;
        own[r] = *reinterpret_cast<const uint32_t*>(a + row * depth + k);
      }
      cuda::ptx::MmaLeftRegisters<kMn>(sums, own, part, step > 0, cuda::ptx::Columns<N>());
    } else {
      cuda::ptx::MmaLeftTransposed<kMn>(sums, cuda::AdvancedDescriptor(left, step * 16 * 128), part,
                                        step > 0, cuda::ptx::Columns<N>());
    }
  }
  cuda::ptx::MmaCommit();
  cuda::ptx::MmaWait<0>();
  StoreSums<N>(thread, sums, c);
#endif
}

template <int N, bool kRegisters, int kMn>
void ExpectOrdersMultiply() {
  constexpr int kDepth = 64;
  const OnDeviceArray a(MatrixA<BFloat16>(64, kDepth));
  const OnDeviceArray b(kMn ? MatrixB<BFloat16>(kDepth, N)
                            : MatrixBTransposed<BFloat16>(kDepth, N));
  const OnDeviceArray c(std::vector<float>(64 * N));
  const auto kernel = MultiplyOrders<N, kRegisters, kMn>;
  ASSERT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRoom),
            cudaSuccess);
  kernel<<<1, 128, kRoom>>>(a.get(), b.get(), kDepth, c.get());
  EXPECT_EQ(c.Fetch(), Product(64, N, kDepth)) << N << " columns";
}
TEST_F(HopperInstructions, GroupsMultiplyOperandsInEitherOrder) {
  ExpectOrdersMultiply<64, true, 0>();
  ExpectOrdersMultiply<64, true, 1>();
  ExpectOrdersMultiply<64, false, 1>();
  ExpectOrdersMultiply<8, true, 0>();
  ExpectOrdersMultiply<8, false, 0>();
}

__global__ void CombinePairs(const uint32_t* pairs, uint32_t* results) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  results[0] = cuda::ptx::MultiplyAddPairs(pairs[0], pairs[1], pairs[2]);
  results[1] = cuda::ptx::SignsOfPair(pairs[0]);
  results[2] = cuda::ptx::SignsOfPair(pairs[1]);
#endif
}
// -2 and 3 times 0.5 and -1, and 1 and 4; then signs of the first two words.
TEST_F(HopperInstructions, PairsOfBFloat16) {
  const OnDeviceArray pairs(std::vector<uint32_t>{0x4040c000, 0xbf803f00, 0x40803f80});
  const OnDeviceArray results(std::vector<uint32_t>(3));
  CombinePairs<<<1, 1>>>(pairs.get(), results.get());
  EXPECT_EQ(results.Fetch(), (std::vector<uint32_t>{0x3f800000, 0x0000ffff, 0xffff0000}));
}

}  // namespace
}  // namespace heed::testing
