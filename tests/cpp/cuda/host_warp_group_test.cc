// The emulated warp groups: TMA and wgmma do what the PTX manual says, and what a kernel must not
// do is noticed. And the plain functions of the Hopper kernel: layout, schedule, choice.
#include "host_warp_group.h"

#include <functional>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "random.h"
#include "src/cuda/fragments.h"
#include "src/cuda/hopper_plan.h"
#include "src/cuda/hopper_rows.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kTile = 64 * 128;  // bytes of 64 rows of one panel

// A tensor [1, 1, 64, 64] of small whole numbers, which products and sums hold exactly.
struct Matrix64 {
  std::vector<uint16_t> bits = std::vector<uint16_t>(64 * 64 + 8);
  cuda::TileMap map{};

  explicit Matrix64(uint64_t seed) {
    Random random(seed);
    for (uint16_t& x : bits) x = ToBFloat16(static_cast<float>(random.Integer(-3, 3))).bits;
    map = {Data(), DType::kBFloat16, {64, 64, 1, 1}, {128, 8192, 8192}, 64};
  }
  const char* Data() const {
    const auto at = reinterpret_cast<uintptr_t>(bits.data());
    return reinterpret_cast<const char*>((at + 15) / 16 * 16);
  }
  float At(int row, int col) const {
    return ToFloat(BFloat16{reinterpret_cast<const uint16_t*>(Data())[row * 64 + col]});
  }
};

// Runs load(group) as the group that loads, and compute(group) as the first consumer.
template <class Load, class Compute>
std::string RunTwo(const Load& load, const Compute& compute) {
  HostHopperBlock block(4 * kTile);
  return block.Run([&](HostWarpGroup& group) {
    if (group.index() == 0) {
      group.InitBarrier(0, 1);
      group.InitBarrier(1, 4);
    }
    group.SyncAll();
    if (group.index() == 0) load(group);
    if (group.index() == 1) compute(group);
  });
}

void LoadTile(HostWarpGroup& group, const Matrix64& m, int to) {
  group.ArriveExpecting(0, kTile);
  group.LoadBox(to, m.map, 0, 0, 0, 0, 0);
}

TEST(HostWarpGroup, ProductOfTilesThatTmaBrought) {
  const Matrix64 a(1), b(2);
  HostWarpGroup::Registers<float, 32> c;
  EXPECT_EQ(RunTwo(
                [&](HostWarpGroup& group) {
                  group.ArriveExpecting(0, 2 * kTile);
                  group.LoadBox(0, a.map, 0, 0, 0, 0, 0);
                  group.LoadBox(kTile, b.map, 0, 0, 0, 0, 0);
                },
                [&](HostWarpGroup& group) {
                  group.WaitForPhase(0, 0);
                  group.MmaFence();
                  for (int d = 0; d < 64; d += 16) {
                    group.MmaShared<64>(BFloat16{}, c, group.Matrix(2 * d, 16),
                                        group.Matrix(kTile + 2 * d, 16), d != 0);
                  }
                  group.MmaCommit();
                  EXPECT_TRUE(std::isnan(c(0, 0)));
                  group.MmaWait<0>();
                }),
            "");
  for (int t = 0; t < 128; ++t) {
    for (int n = 0; n < 32; ++n) {
      const int row = t / 32 * 16 + cuda::AccumulatorRow(t % 32, n % 4);
      const int col = n / 4 * 8 + cuda::AccumulatorCol(t % 32, n % 4);
      float dot = 0;
      for (int d = 0; d < 64; ++d) dot += a.At(row, d) * b.At(col, d);
      ASSERT_EQ(c(t, n), dot) << t << " " << n;
    }
  }
}

TEST(HostWarpGroup, ProductOfRegistersAndATransposedTile) {
  const Matrix64 b(3);
  const auto weight = [](int row, int key) { return static_cast<float>((row * 5 + key) % 4); };
  HostWarpGroup::Registers<float, 32> c;
  HostWarpGroup::Registers<uint32_t, 16> a;
  const std::string complaint = RunTwo(
      [&](HostWarpGroup& group) { LoadTile(group, b, kTile); },
      [&](HostWarpGroup& group) {
        group.Each([&](int t) {
          for (int n = 0; n < 32; ++n) c(t, n) = 1;
          for (int n = 0; n < 32; n += 2) {
            const int row = t / 32 * 16 + cuda::AccumulatorRow(t % 32, n % 4);
            const int key = n / 4 * 8 + cuda::AccumulatorCol(t % 32, n % 4);
            a(t, n / 2) = HostWarpGroup::Pack(BFloat16{}, weight(row, key), weight(row, key + 1));
          }
        });
        group.WaitForPhase(0, 0);
        group.MmaFence();
        for (int key = 0; key < 64; key += 16) {
          group.MmaRegisters<64>(BFloat16{}, c, a, key / 4, group.Matrix(kTile + key * 128, kTile));
        }
        group.MmaCommit();
        group.MmaWait<0>();
      });
  EXPECT_EQ(complaint, "");
  for (int t = 0; t < 128; ++t) {
    for (int n = 0; n < 32; ++n) {
      const int row = t / 32 * 16 + cuda::AccumulatorRow(t % 32, n % 4);
      const int col = n / 4 * 8 + cuda::AccumulatorCol(t % 32, n % 4);
      float sum = 1;
      for (int key = 0; key < 64; ++key) sum += weight(row, key) * b.At(key, col);
      ASSERT_EQ(c(t, n), sum) << t << " " << n;
    }
  }
}

TEST(HostWarpGroup, BoxesAreSwizzledAndZeroOutside) {
  const Matrix64 m(4);
  cuda::TileMap map = m.map;
  map.sizes[0] = 60;
  map.sizes[1] = 50;
  const std::string complaint = RunTwo(
      [&](HostWarpGroup& group) {
        group.ArriveExpecting(0, kTile);
        group.LoadBox(0, map, 0, 0, 0, 0, 0);
      },
      [&](HostWarpGroup& group) {
        group.WaitForPhase(0, 0);
        for (int r = 0; r < 64; ++r) {
          for (int c = 0; c < 64; ++c) {
            const uint16_t bits = group.Load(0, cuda::SwizzledOffset(64, r, c));
            EXPECT_EQ(ToFloat(BFloat16{bits}), r < 50 && c < 60 ? m.At(r, c) : 0.0f);
          }
        }
      });
  EXPECT_EQ(complaint, "");
}

TEST(HostWarpGroup, TellsWhenATileIsReadBeforeItIsThere) {
  const Matrix64 m(5);
  EXPECT_THAT(RunTwo([&](HostWarpGroup& group) { LoadTile(group, m, 0); },
                     [&](HostWarpGroup& group) { group.Load(0, 0); }),
              ::testing::AnyOf(HasSubstr("before it is known to be written"),
                               HasSubstr("ends before TMA"), HasSubstr("known to be read")));
}

TEST(HostWarpGroup, TellsWhenATileIsOverwrittenBeforeItIsRead) {
  const Matrix64 m(6);
  EXPECT_THAT(RunTwo(
                  [&](HostWarpGroup& group) {
                    LoadTile(group, m, 0);
                    group.WaitForPhase(0, 0);
                    LoadTile(group, m, 0);  // nobody said that the first one is read
                  },
                  [&](HostWarpGroup& group) {
                    group.WaitForPhase(0, 0);
                    group.Load(0, 0);
                  }),
              HasSubstr("known"));
}

// A group fills a tile again that its own threads have read: only when all of them have said so.
TEST(HostWarpGroup, ThreadsOfAGroupMeetAtABarrier) {
  const Matrix64 m(8);
  const auto run = [&](bool arrives) {
    return RunTwo(
        [&](HostWarpGroup& group) {
          LoadTile(group, m, 0);
          group.WaitForPhase(0, 0);
          group.Each([&](int t) { group.Load(t, 2 * t); });
          if (arrives) {
            group.ArriveWarps(1);
            group.WaitForPhase(1, 0);
          }
          LoadTile(group, m, 0);
          group.WaitForPhase(0, 1);
        },
        [](HostWarpGroup&) {});
  };
  EXPECT_EQ(run(true), "");
  EXPECT_THAT(run(false), HasSubstr("known to be read"));
}

TEST(HostWarpGroup, TellsWhenAProductReadsWhatItsGroupGaveBack) {
  const Matrix64 m(7);
  HostWarpGroup::Registers<float, 32> c;
  EXPECT_THAT(RunTwo(
                  [&](HostWarpGroup& group) {
                    LoadTile(group, m, 0);
                    group.WaitForPhase(1, 0);
                    LoadTile(group, m, 0);
                    group.WaitForPhase(0, 1);
                  },
                  [&](HostWarpGroup& group) {
                    group.WaitForPhase(0, 0);
                    group.MmaFence();
                    group.MmaShared<64>(BFloat16{}, c, group.Matrix(0, 16), group.Matrix(0, 16),
                                        false);
                    group.MmaCommit();
                    group.ArriveWarps(1);  // before the wait
                    group.MmaWait<0>();
                  }),
              HasSubstr("known to be"));
}

TEST(HostWarpGroup, TellsWhenWrittenQueriesLackAProxyFence) {
  HostWarpGroup::Registers<float, 32> c;
  for (const bool fence : {false, true}) {
    const std::string complaint = RunTwo([](HostWarpGroup&) {},
                                         [&](HostWarpGroup& group) {
                                           for (int at = 0; at < 2 * kTile; at += 16) {
                                             group.StoreChunk(at / 16 % 128, at, {0, 0, 0, 0});
                                           }
                                           if (fence) group.FenceProxyAsync();
                                           group.Sync();
                                           group.MmaFence();
                                           group.MmaShared<64>(BFloat16{}, c, group.Matrix(0, 16),
                                                               group.Matrix(kTile, 16), false);
                                           group.MmaCommit();
                                           group.MmaWait<0>();
                                         });
    EXPECT_THAT(complaint, HasSubstr(fence ? "" : "without a proxy fence"));
    if (fence) {
      EXPECT_EQ(complaint, "");
    }
  }
}

TEST(HostWarpGroup, TellsOfProductsWithoutFenceOrWait) {
  const Matrix64 m(8);
  HostWarpGroup::Registers<float, 32> c;
  // A product, with `before` between its fence and itself, and `after` behind it.
  const auto complaint = [&](const std::function<void(HostWarpGroup&)>& before,
                             const std::function<void(HostWarpGroup&)>& after) {
    return RunTwo([&](HostWarpGroup& group) { LoadTile(group, m, 0); },
                  [&](HostWarpGroup& group) {
                    group.WaitForPhase(0, 0);
                    group.MmaFence();
                    before(group);
                    group.MmaShared<64>(BFloat16{}, c, group.Matrix(0, 16), group.Matrix(0, 16),
                                        false);
                    group.MmaCommit();
                    after(group);
                  });
  };
  const auto nothing = [](HostWarpGroup&) {};
  const auto wait = [](HostWarpGroup& group) { group.MmaWait<0>(); };
  const auto may_touch = [](HostWarpGroup& group) { group.Each([](int) {}); };
  const auto touch = [&](HostWarpGroup& group) {
    group.Each([&](int t) { c(t, 0) = 1; });
    group.MmaWait<0>();
  };
  EXPECT_EQ(complaint(nothing, wait), "");
  EXPECT_THAT(complaint(may_touch, wait), HasSubstr("without wgmma.fence"));
  EXPECT_THAT(complaint(nothing, nothing), HasSubstr("never waited for"));
  EXPECT_THAT(complaint(nothing, touch), HasSubstr("touched before"));
}

TEST(HostWarpGroup, BytesArriveWhenTheyAreWaitedFor) {
  alignas(16) const uint32_t words[8] = {1, 2, 3, 4, 5, 0x12345678, 7, 8};
  uint32_t seen = 0;
  const auto run = [&](const uint32_t* from, bool waits) {
    return RunTwo(
        [&](HostWarpGroup& group) {
          group.ArriveExpecting(0, 16);
          group.LoadBytes(32, from, 16, 0);
          group.WaitForPhase(0, 0);
        },
        [&](HostWarpGroup& group) {
          if (waits) group.WaitForPhase(0, 0);
          seen = group.LoadWord(5, 36);
        });
  };
  EXPECT_EQ(run(words + 4, true), "");
  EXPECT_EQ(seen, 0x12345678u);
  EXPECT_NE(run(words + 4, false), "");
  EXPECT_NE(seen, 0x12345678u);
  EXPECT_THAT(run(words + 1, true), HasSubstr("multiples of 16 bytes"));
}

TEST(HostWarpGroup, TellsOfWrongDescriptorsAndEndlessWaits) {
  HostWarpGroup::Registers<float, 32> c;
  const auto multiply = [&](uint64_t change, int at) {
    return RunTwo([](HostWarpGroup&) {},
                  [&](HostWarpGroup& group) {
                    group.MmaFence();
                    group.MmaShared<64>(BFloat16{}, c, group.Matrix(at, 16) ^ change,
                                        group.Matrix(0, 16), false);
                    group.MmaCommit();
                    group.MmaWait<0>();
                  });
  };
  EXPECT_THAT(multiply(uint64_t{1} << 63, 0), HasSubstr("128-byte swizzle"));
  EXPECT_THAT(multiply(0, 128), HasSubstr("within a group of eight rows"));
  EXPECT_NE(multiply(0, 4 * kTile - 1024), "");  // outside of shared memory
  EXPECT_THAT(RunTwo([](HostWarpGroup&) {}, [](HostWarpGroup& group) { group.WaitForPhase(0, 0); }),
              HasSubstr("every group waits"));
}

// PTX ISA 9.0, "Swizzling modes": the figure of 128 bytes, row by row.
TEST(HopperLayout, ChunksOfARowChangePlaces) {
  EXPECT_EQ(cuda::SwizzledOffset(64, 0, 8), 16);
  EXPECT_EQ(cuda::SwizzledOffset(64, 1, 0), 128 + 16);
  EXPECT_EQ(cuda::SwizzledOffset(64, 1, 8), 128);
  EXPECT_EQ(cuda::SwizzledOffset(64, 7, 57), 7 * 128 + 2);
  EXPECT_EQ(cuda::SwizzledOffset(64, 8, 0), 1024);
  EXPECT_EQ(cuda::SwizzledOffset(64, 0, 64), kTile);
  std::set<int> bytes;
  for (int r = 0; r < 128; ++r) {
    for (int c = 0; c < 128; ++c) bytes.insert(cuda::SwizzledOffset(128, r, c));
  }
  EXPECT_EQ(bytes.size(), 128u * 128u);
  EXPECT_EQ(*bytes.rbegin(), 2 * 128 * 128 - 2);
}

// PTX ISA 9.0, "Matrix descriptor format".
TEST(HopperLayout, DescriptorsHaveTheirFields) {
  const uint64_t d = cuda::SwizzledDescriptor(0x2c00, 16384);
  EXPECT_EQ(d & 0x3fff, 0x2c0u);
  EXPECT_EQ(d >> 16 & 0x3fff, 1024u);
  EXPECT_EQ(d >> 32 & 0x3fff, 64u);
  EXPECT_EQ(d >> 49 & 7, 0u);
  EXPECT_EQ(d >> 62, 1u);
  EXPECT_EQ(cuda::AdvancedDescriptor(d, 0x420), cuda::SwizzledDescriptor(0x2c00 + 0x420, 16384));
}

template <class Shape>
void ExpectShapeFits() {
  // 227 KiB a block on sm_90, the CUDA programming guide, table of compute capabilities.
  EXPECT_LE(Shape::kBytes + cuda::kExtraBytes + cuda::kSwizzleBytes, 227 * 1024);
  EXPECT_EQ(Shape::GroupAt(Shape::kConsumers), Shape::kBytes);
  EXPECT_EQ(Shape::KeysAt(1) % cuda::kSwizzleBytes, 0);
  EXPECT_EQ(Shape::QueriesAt(1) % cuda::kSwizzleBytes, 0);
  EXPECT_LE(cuda::HopperBarriers<Shape::kStages>::kCount, cuda::kMaxBarriers);
}

TEST(HopperLayout, TilesFitTheDevice) {
  ExpectShapeFits<cuda::HopperShape<Float16, 64, 64>>();
  ExpectShapeFits<cuda::HopperShape<Float16, 128, 128>>();
  ExpectShapeFits<cuda::HopperShape<Float16, 192, 128>>();
  ExpectShapeFits<cuda::HopperShape<Float16, 256, 256>>();
  ExpectShapeFits<cuda::HopperShape<Float8E4M3, 64, 64>>();
  ExpectShapeFits<cuda::HopperShape<Float8E4M3, 256, 256>>();
}

// Rows of all items are those of the tensor, each once; so are those of all groups of an item.
template <class Shape>
void ExpectItemsCover(int64_t rows, int64_t units) {
  cuda::HopperParams p{};
  p.rows = rows, p.units = units, p.by_units = cuda::Divisor(units);
  p.row_blocks = (rows + Shape::kRows - 1) / Shape::kRows;
  std::vector<int> visits(static_cast<size_t>(rows * units), 0);
  for (int32_t item = 0; item < cuda::ItemsOf(p); ++item) {
    const cuda::BlockPlace place = cuda::PlaceOfItem(p, item);
    for (int32_t r = 0; r < Shape::kConsumers * cuda::kGroupRows; ++r) {
      const int32_t row = cuda::FirstRowOf<Shape>(place) + r;
      if (row < rows) ++visits.at(static_cast<size_t>(place.unit * rows + row));
    }
  }
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1)) << rows;
}

TEST(HopperSchedule, ItemsHoldEveryRowOnce) {
  for (const int64_t rows : {1, 64, 65, 128, 129, 191, 192, 193, 1000}) {
    ExpectItemsCover<cuda::HopperShape<BFloat16, 64, 64>>(rows, 3);
    ExpectItemsCover<cuda::HopperShape<BFloat16, 64, 64, true>>(rows, 3);
    ExpectItemsCover<cuda::HopperShape<BFloat16, 128, 128>>(rows, 3);
    ExpectItemsCover<cuda::HopperShape<Float8E4M3, 64, 64>>(rows, 3);
  }
}

TEST(HopperSchedule, EveryItemHasOneBlockAndLoadsAreEven) {
  for (const int32_t items : {1, 5, 132, 133, 264, 1000}) {
    const int32_t blocks = std::min(items, 132);
    std::vector<int> visits(static_cast<size_t>(items), 0);
    int32_t least = 1 << 30, most = 0;
    for (int32_t block = 0; block < blocks; ++block) {
      int32_t work = 0;  // item n takes items - n
      for (int32_t round = 0; cuda::ItemOf(block, blocks, round) < items; ++round) {
        const int32_t item = cuda::ItemOf(block, blocks, round);
        ++visits[static_cast<size_t>(item)];
        work += items - item;
      }
      least = std::min(least, work), most = std::max(most, work);
    }
    EXPECT_EQ(visits, std::vector<int>(visits.size(), 1)) << items;
    EXPECT_LE(most - least, items) << items;  // no more than one item, the longest
  }
}

TEST(HopperSchedule, StagesTakeTurnsAndChangeParity) {
  cuda::TileTurn<2> turn;
  for (int n = 0; n < 8; ++n) {
    EXPECT_EQ(turn.stage, n % 2);
    EXPECT_EQ(turn.parity, static_cast<uint32_t>(n / 2 % 2));
    turn.Advance();
    EXPECT_EQ(turn.Before().stage, n % 2);
    EXPECT_EQ(turn.Before().parity, static_cast<uint32_t>(n / 2 % 2));
  }
}

}  // namespace
}  // namespace heed::testing
