// Tiles of float8 values: the order of their keys, their transposition, and the products that read
// them, on emulated warp groups.
#include "src/cuda/float8_tiles.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "host_warp_group.h"
#include "random.h"
#include "src/cuda/fragments.h"

namespace heed::testing {
namespace {

template <int kColumns>
using Shape = cuda::HopperShape<Float8E4M3, kColumns, kColumns>;

TEST(Float8Tiles, EveryKeyHasAPosition) {
  for (int key = 0; key < 128; ++key) {
    EXPECT_EQ(cuda::KeyAtPosition(cuda::PositionOfKey(key)), key);
    EXPECT_EQ(cuda::PositionOfKey(key) / 16, key / 16) << "keys stay among 16";
  }
}

// A thread's sums of the first product are of keys 8 n + 2 (t % 4) + e; operand A of m64nNk32 wants
// positions 4 (t % 4) + e of each 16 (PTX ISA 9.0, "Register fragments" of wgmma m64nNk32).
TEST(Float8Tiles, PositionsOfAThreadAreThoseOfItsSums) {
  for (int lane = 0; lane < 4; ++lane) {
    for (int sixteen = 0; sixteen < 8; ++sixteen) {
      std::set<int> sums, wanted;
      for (int n = 0; n < 4; ++n) {
        sums.insert(16 * sixteen + n / 2 * 8 + cuda::AccumulatorCol(lane, n % 2));
        wanted.insert(cuda::KeyAtPosition(16 * sixteen + 4 * lane + n));
      }
      EXPECT_EQ(sums, wanted);
    }
  }
}

TEST(Float8Tiles, BytesAreTransposed) {
  uint32_t columns[4];
  cuda::TransposeBytes({0x03020100, 0x13121110, 0x23222120, 0x33323130}, columns);
  EXPECT_EQ(columns[0], 0x30201000u);
  EXPECT_EQ(columns[1], 0x31211101u);
  EXPECT_EQ(columns[2], 0x32221202u);
  EXPECT_EQ(columns[3], 0x33231303u);
}

// Shared memory has 32 banks of 4 bytes. It serves 16 bytes for 8 threads at a time, or 4 bytes for
// 32, if they meet different ones.
TEST(Float8Tiles, ThreadsMeetDifferentBanks) {
  for (int n = 0; n < 4; ++n) {
    for (int first = 0; first < 32; first += 8) {
      std::set<int> chunks;
      for (int word = first; word < first + 8; ++word) {
        const int key = cuda::KeyAtPosition(4 * word + n);
        chunks.insert(cuda::SwizzledByte(128, key, 48) / 16 % 8);
      }
      EXPECT_EQ(chunks.size(), 8u);
    }
  }
  std::set<int> banks;
  for (int word = 0; word < 32; ++word) banks.insert(cuda::SwizzledByte(64, 21, 4 * word) / 4 % 32);
  EXPECT_EQ(banks.size(), 32u);
}

// A tile of whole numbers that TMA brings, transposes and multiplies with weights of the threads.
template <int kColumns>
void ExpectTransposedProduct() {
  using Tile = Shape<kColumns>;
  Random random(kColumns);
  std::vector<uint8_t> memory(128 * kColumns + 16);
  uint8_t* values = memory.data() + (16 - reinterpret_cast<uintptr_t>(memory.data()) % 16);
  const auto value = [&](int key, int column) {
    return ToFloat(Float8E4M3{values[key * kColumns + column]});
  };
  for (int n = 0; n < 128 * kColumns; ++n) {
    values[n] = ToFloat8E4M3(static_cast<float>(random.Integer(-3, 3))).bits;
  }
  const cuda::TileMap map = {reinterpret_cast<const char*>(values),
                             DType::kFloat8E4M3,
                             {kColumns, 128, 1, 1},
                             {kColumns, 128 * kColumns, 128 * kColumns},
                             128};
  const auto weight = [](int row, int key) { return static_cast<float>((row * 5 + key) % 7); };
  HostWarpGroup::Registers<float, kColumns / 2> c;
  HostWarpGroup::Registers<uint32_t, 16> a;
  HostHopperBlock block(Tile::kRawBytes + Tile::kValueBytes);
  const std::string complaint = block.Run([&](HostWarpGroup& group) {
    if (group.index() == 0) {
      group.InitBarrier(0, 1);
      group.InitBarrier(1, 4);
    }
    group.SyncAll();
    if (group.index() == 0) {
      group.ArriveExpecting(0, Tile::kRawBytes);
      group.LoadBox(0, map, 0, 0, 0, 0, 0);
      group.WaitForPhase(0, 0);
      group.Each([&](int t) { cuda::TransposeValues<Tile>(group, t, 0, Tile::kRawBytes); });
      group.FenceProxyAsync();
      group.Sync();
      group.ArriveWarps(1);
    }
    if (group.index() != 1) return;
    group.Each([&](int t) {
      for (int n = 0; n < 16; ++n) {
        float four[4];
        for (int e = 0; e < 4; ++e) {
          const int row = t / 32 * 16 + t % 32 / 4 + 8 * (n % 2);
          const int position = 32 * (n / 4) + 16 * (n % 4 / 2) + 4 * (t % 4) + e;
          four[e] = weight(row, cuda::KeyAtPosition(position));
        }
        a(t, n) = HostWarpGroup::PackFour(four[0], four[1], four[2], four[3]);
      }
    });
    group.WaitForPhase(1, 0);
    group.MmaFence();
    for (int position = 0; position < 128; position += 32) {
      group.MmaRegisters<kColumns>(Float8E4M3{}, c, a, position / 8,
                                   group.Matrix(Tile::kRawBytes + position, 16), position != 0);
    }
    group.MmaCommit();
    group.MmaWait<0>();
  });
  EXPECT_EQ(complaint, "");
  for (int t = 0; t < 128; ++t) {
    for (int n = 0; n < kColumns / 2; ++n) {
      const int row = t / 32 * 16 + cuda::AccumulatorRow(t % 32, n % 4);
      const int column = n / 4 * 8 + cuda::AccumulatorCol(t % 32, n % 4);
      float sum = 0;
      for (int key = 0; key < 128; ++key) sum += weight(row, key) * value(key, column);
      ASSERT_EQ(c(t, n), sum) << t << " " << n;
    }
  }
}

TEST(Float8Tiles, TransposedTilesAreMultiplied) {
  ExpectTransposedProduct<64>();
  ExpectTransposedProduct<128>();
}

TEST(Float8Tiles, FitTheDevice) {
  EXPECT_LE(Shape<64>::kBytes + cuda::kExtraBytes + cuda::kSwizzleBytes, 227 * 1024);
  EXPECT_LE(Shape<128>::kBytes + cuda::kExtraBytes + cuda::kSwizzleBytes, 227 * 1024);
  EXPECT_LE(Shape<256>::kBytes + cuda::kExtraBytes + cuda::kSwizzleBytes, 227 * 1024);
  EXPECT_EQ(Shape<128>::RawAt(2), Shape<128>::RowsAt(0));  // no rows in memory
  EXPECT_EQ(Shape<128>::GroupAt(2), Shape<128>::kBytes);
  EXPECT_EQ(Shape<64>::RawAt(0) % cuda::kSwizzleBytes, 0);
}

}  // namespace
}  // namespace heed::testing
