// The emulated block itself: its warp operations do what the PTX manual says, and it notices what a
// kernel must not do.
#include "host_block.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "random.h"
#include "src/cuda/float_products.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostBlock, TellsWhenABarrierIsMissingAfterAWrite) {
  HostBlock block;
  auto shared = block.Allocate<float>(128);
  block.Each([&](int t) { shared.Store(t, t, 1.0f); });
  EXPECT_EQ(block.complaint(), "");
  block.Each([&](int t) { shared.Load(t, (t + 1) % 128); });
  EXPECT_THAT(block.complaint(), HasSubstr("read before the barrier"));
}

TEST(HostBlock, TellsWhenABarrierIsMissingAfterARead) {
  HostBlock block;
  auto shared = block.Allocate<float>(128);
  block.Each([&](int t) { shared.Load(t, (t + 1) % 128); });
  block.Each([&](int t) { shared.Store(t, t, 1.0f); });
  EXPECT_THAT(block.complaint(), HasSubstr("written before the barrier"));
}

TEST(HostBlock, TellsWhenTwoThreadsWriteOnePlace) {
  HostBlock block;
  auto shared = block.Allocate<float>(128);
  block.Each([&](int t) { shared.Store(t, t / 2, 1.0f); });
  EXPECT_THAT(block.complaint(), HasSubstr("two threads write"));
}

TEST(HostBlock, IsContentWithBarriers) {
  HostBlock block;
  auto shared = block.Allocate<float>(128);
  block.Each([&](int t) { shared.Store(t, t, static_cast<float>(t)); });
  block.Sync();
  EXPECT_TRUE(block.Any([&](int t) { return shared.Load(t, (t + 1) % 128) == 127.0f; }));
  block.Each([&](int t) { shared.Store(t, t, 0.0f); });
  EXPECT_EQ(block.complaint(), "");
}

TEST(HostBlock, BarriersOfWarpsAreForTheirThreads) {
  // A place is stored by one thread and loaded by another, or the other way round.
  const auto pass_on = [](int distance, bool syncs) {
    HostBlock block;
    auto shared = block.Allocate<float>(128);
    block.Each([&](int t) { shared.Store(t, t, 0.0f); });
    if (syncs) block.SyncWarp();
    block.Each([&](int t) { shared.Load(t, t ^ distance); });
    return block.complaint();
  };
  EXPECT_EQ(pass_on(31, true), "");
  EXPECT_THAT(pass_on(31, false), HasSubstr("read before the barrier"));
  EXPECT_THAT(pass_on(32, true), HasSubstr("read before the barrier"));
  const auto take_back = [](int distance, bool syncs) {
    HostBlock block;
    auto shared = block.Allocate<float>(128);
    block.Each([&](int t) { shared.Load(t, t ^ distance); });
    if (syncs) block.SyncWarp();
    block.Each([&](int t) { shared.Store(t, t, 0.0f); });
    return block.complaint();
  };
  EXPECT_EQ(take_back(31, true), "");
  EXPECT_THAT(take_back(31, false), HasSubstr("written before the barrier"));
  EXPECT_THAT(take_back(32, true), HasSubstr("written before the barrier"));
  HostBlock block;
  auto shared = block.Allocate<float>(128);
  for (const int other : {0, 31, 1}) {
    block.Each([&](int t) { shared.Load(t, t ^ other); });  // as one may what it will store
    block.Each([&](int t) { shared.Store(t, t ^ other, 0.0f); });
    block.SyncWarp();
    block.Each([&](int t) { shared.Load(t, t ^ 3); });
    block.SyncWarp();
  }
  EXPECT_EQ(block.complaint(), "");
  block.Each([&](int t) { shared.Store(t, t ^ 32, 0.0f); });
  EXPECT_THAT(block.complaint(), HasSubstr("two threads write"));
}

TEST(HostBlock, LanesHearOneAnotherWithinTheirWarp) {
  HostBlock block;
  HostBlock::Registers<int32_t, 2> from, to;
  block.Each([&](int t) { from(t, 1) = t; });
  block.FromLane(
      from, 1, [](int t) { return t % 4 * 8; }, to, 0);
  EXPECT_EQ(to(0, 0), 0);
  EXPECT_EQ(to(7, 0), 24);
  EXPECT_EQ(to(33, 0), 40);
}

TEST(HostBlock, FourNumbersAreStoredAtPlacesAlignedToThem) {
  HostBlock block;
  auto shared = block.Allocate<float>(16);
  shared.StoreFour(0, 4, {1, 2, 3, 4});
  EXPECT_EQ(shared.Load(0, 7), 4);
  EXPECT_EQ(block.complaint(), "");
  shared.StoreFour(0, 6, {1, 2, 3, 4});
  EXPECT_THAT(block.complaint(), HasSubstr("not aligned"));
}

TEST(HostBlock, WordsAreLoadedFromPlacesAlignedToThem) {
  alignas(16) const uint32_t numbers[5] = {1, 2, 3, 4, 5};
  const char* bytes = reinterpret_cast<const char*>(numbers);
  uint32_t words[4];
  HostBlock::LoadWords(bytes, words);
  EXPECT_THAT(words, ElementsAre(1, 2, 3, 4));
  EXPECT_THROW(HostBlock::LoadWords(bytes + 4, words), std::logic_error);
}

TEST(HostBlock, CopiesArriveWhenTheyAreWaitedFor) {
  alignas(16) const float numbers[4] = {1, 2, 3, 4};
  HostBlock block;
  auto shared = block.Allocate<float>(4);
  shared.CopyAsync(0, 0, numbers);
  block.CommitCopies();
  EXPECT_TRUE(std::isnan(shared.Load(0, 2)));
  block.WaitCopies<1>();
  EXPECT_TRUE(std::isnan(shared.Load(0, 2)));
  block.WaitCopies<0>();
  EXPECT_EQ(shared.Load(0, 2), 3.0f);
  EXPECT_EQ(block.complaint(), "");
}

TEST(HostBlock, QuadsReduceAndShare) {
  HostBlock block;
  HostBlock::Registers<float, 1> sum, largest, shared;
  block.Each([&](int t) { sum(t, 0) = largest(t, 0) = static_cast<float>(t); });
  block.GroupSum<4>(sum);
  block.GroupMax<4>(largest);
  block.FromQuad(sum, 0, 2, shared, 0);
  EXPECT_EQ(sum(9, 0), 8 + 9 + 10 + 11);
  EXPECT_EQ(largest(9, 0), 11);
  EXPECT_EQ(shared(9, 0), sum(10, 0));
}

// Figures of the PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type".
TEST(Fragments, PlacesAreThoseOfTheManual) {
  EXPECT_EQ(cuda::AccumulatorRow(0, 0), 0);
  EXPECT_EQ(cuda::AccumulatorRow(31, 1), 7);
  EXPECT_EQ(cuda::AccumulatorRow(31, 2), 15);
  EXPECT_EQ(cuda::AccumulatorCol(31, 3), 7);
  EXPECT_EQ(cuda::AccumulatorCol(5, 0), 2);
}

// Tiles of random numbers in shared memory, and both products of them.
template <class Products>
struct ProductsRun {
  using Element = typename Products::Element;
  static constexpr int kRows = cuda::kBlockRows, kKeys = Products::kKeys, kDim = Products::kDim;
  HostBlock block;
  HostBlock::Shared<Element> q = block.Allocate<Element>(kRows * Products::kStride);
  HostBlock::Shared<Element> k = block.Allocate<Element>(kKeys * Products::kStride);
  HostBlock::Registers<float, Products::kScores> scores;
  HostBlock::Registers<float, Products::kOut> out;

  static Element Number(Random& random) {
    // Small whole numbers: products and sums are exact in every type.
    const float x = static_cast<float>(random.Integer(-3, 3));
    if constexpr (std::is_same_v<Element, float>) return x;
    if constexpr (std::is_same_v<Element, Float16>) return ToFloat16(x);
    if constexpr (std::is_same_v<Element, BFloat16>) return ToBFloat16(x);
  }
  void Fill(HostBlock::Shared<Element>& tile, int rows, Random& random) {
    for (int r = 0; r < rows; ++r) {
      for (int d = 0; d < kDim; ++d) tile.Store(0, r * Products::kStride + d, Number(random));
    }
    block.Sync();
  }
  float At(HostBlock::Shared<Element>& tile, int r, int d) {
    return cuda::Widen(tile.Load(0, r * Products::kStride + d));
  }
};

template <class Products>
class DeviceProducts : public ::testing::Test {};
using AllProducts =
    ::testing::Types<cuda::FloatProducts<64, 32>, cuda::FloatProducts<256, 16>,
                     cuda::MmaProducts<Float16, 64, 64>, cuda::MmaProducts<BFloat16, 128, 64>>;
TYPED_TEST_SUITE(DeviceProducts, AllProducts);

TYPED_TEST(DeviceProducts, ScoresAreDotProducts) {
  ProductsRun<TypeParam> run;
  Random random(1);
  run.Fill(run.q, run.kRows, random);
  run.Fill(run.k, run.kKeys, random);
  run.block.Each([&](int t) {
    for (int n = 0; n < TypeParam::kScores; ++n) run.scores(t, n) = 0;
  });
  TypeParam::ScoreTile(run.block, run.q, run.k, run.scores);
  for (int t = 0; t < HostBlock::kThreads; ++t) {
    for (int n = 0; n < TypeParam::kScores; ++n) {
      const int row = t / 32 * 16 + cuda::AccumulatorRow(t % 32, n % 4);
      const int key = n / 4 * 8 + cuda::AccumulatorCol(t % 32, n % 4);
      float dot = 0;
      for (int d = 0; d < run.kDim; ++d) dot += run.At(run.q, row, d) * run.At(run.k, key, d);
      ASSERT_EQ(run.scores(t, n), dot) << "thread " << t << ", score " << n;
    }
  }
  EXPECT_EQ(run.block.complaint(), "");
}

TYPED_TEST(DeviceProducts, ValuesAreWeightedByTheirRow) {
  ProductsRun<TypeParam> run;
  Random random(2);
  run.Fill(run.k, run.kKeys, random);
  const auto weight = [](int row, int key) { return static_cast<float>((row * 5 + key) % 4); };
  const auto row_of = [](int t, int half) { return t / 32 * 16 + t % 32 / 4 + 8 * half; };
  run.block.Each([&](int t) {
    for (int n = 0; n < TypeParam::kScores; ++n) {
      const int key = n / 4 * 8 + cuda::AccumulatorCol(t % 32, n % 4);
      run.scores(t, n) = weight(row_of(t, n % 4 / 2), key);
    }
    for (int n = 0; n < TypeParam::kOut; ++n) run.out(t, n) = 0;
  });
  TypeParam::AddValues(run.block, run.scores, run.k, run.out);
  for (int t = 0; t < HostBlock::kThreads; ++t) {
    for (int n = 0; n < TypeParam::kOut; ++n) {
      const int row = row_of(t, TypeParam::Half(n)), d = TypeParam::Column(t % 32, n);
      float sum = 0;
      for (int j = 0; j < run.kKeys; ++j) sum += weight(row, j) * run.At(run.k, j, d);
      ASSERT_EQ(run.out(t, n), sum) << "thread " << t << ", column " << d;
    }
  }
  EXPECT_EQ(run.block.complaint(), "");
}

TYPED_TEST(DeviceProducts, PoisonReachesTheRowsThatSeeIt) {
  ProductsRun<TypeParam> run;
  using Element = typename TypeParam::Element;
  Random random(3);
  run.Fill(run.k, run.kKeys, random);
  const auto store = [&](int key, int d, float x) {
    Element element{};
    if constexpr (std::is_same_v<Element, float>) element = x;
    if constexpr (std::is_same_v<Element, Float16>) element = ToFloat16(x);
    if constexpr (std::is_same_v<Element, BFloat16>) element = ToBFloat16(x);
    run.k.Store(0, key * TypeParam::kStride + d, element);
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  store(3, 7, kInf);
  constexpr int kLast = std::min(TypeParam::kKeys, 32) - 2;
  store(kLast, 7, -kInf);
  store(13, 9, std::nanf(""));
  run.block.Sync();
  // Row r sees keys from r / 2 on; key 3 has a weight in odd rows only.
  HostBlock::Registers<uint32_t, 1> visible, positive;
  run.block.Each([&](int t) {
    visible(t, 0) = positive(t, 0) = 0;
    for (int n = 0; n < TypeParam::kScores; ++n) {
      const int row = t / 32 * 16 + cuda::AccumulatorRow(t % 32, n % 4);
      const int key = n / 4 * 8 + cuda::AccumulatorCol(t % 32, n % 4);
      if (key >= row / 2) visible(t, 0) |= 1u << n;
      if (key >= row / 2 && (key != 3 || row % 2 == 1)) positive(t, 0) |= 1u << n;
    }
    for (int n = 0; n < TypeParam::kOut; ++n) run.out(t, n) = 1;
  });
  cuda::AddPoison<TypeParam>(run.block, visible, positive, run.k, run.out);
  for (int t = 0; t < HostBlock::kThreads; ++t) {
    for (int n = 0; n < TypeParam::kOut; ++n) {
      const int row = t / 32 * 16 + t % 32 / 4 + 8 * TypeParam::Half(n);
      const int d = TypeParam::Column(t % 32, n);
      const float x = run.out(t, n);
      if (d == 7 && row < 8) {
        EXPECT_TRUE(std::isnan(x)) << row;  // both infinities, or 0 times one
      } else if (d == 7 && row < 2 * kLast + 2) {
        EXPECT_EQ(x, -kInf) << row;
      } else if (d == 9 && row < 28) {
        EXPECT_TRUE(std::isnan(x)) << row;
      } else {
        EXPECT_EQ(x, 1.0f) << row << " " << d;
      }
    }
  }
  EXPECT_EQ(run.block.complaint(), "");
}

TYPED_TEST(DeviceProducts, EveryColumnOfARowHasOneThread) {
  std::vector<int> owners(2 * TypeParam::kDim, 0);
  for (int lane = 0; lane < 4; ++lane) {
    for (int n = 0; n < TypeParam::kOut; ++n) {
      ++owners.at(
          static_cast<size_t>(TypeParam::Half(n) * TypeParam::kDim + TypeParam::Column(lane, n)));
    }
  }
  EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
}

// Numbers of 24 bits, as they come.
using Float128 = ProductsRun<cuda::FloatProducts<128, 32>>;
void FillWithNormals(Float128& run, uint64_t seed) {
  Random random(seed);
  const auto fill = [&](HostBlock::Shared<float>& tile, int rows) {
    for (int r = 0; r < rows; ++r) {
      for (int d = 0; d < 128; ++d) tile.Store(0, r * 132 + d, static_cast<float>(random.Normal()));
    }
  };
  fill(run.q, run.kRows);
  fill(run.k, run.kKeys);
  run.block.Sync();
  run.block.Each([&](int t) {
    for (int n = 0; n < 16; ++n) run.scores(t, n) = 0;
    for (int n = 0; n < 64; ++n) run.out(t, n) = 0;
  });
}
int RowOf(int t, int n) { return t / 32 * 16 + cuda::AccumulatorRow(t % 32, n % 4); }
int KeyOf(int t, int n) { return n / 4 * 8 + cuda::AccumulatorCol(t % 32, n % 4); }

TEST(FloatProducts, HaveThePrecisionOfFloat32) {
  constexpr double kError = 0x1p-21;  // of the products; one of TF32 alone errs by 2^-11
  Float128 run;
  FillWithNormals(run, 4);
  cuda::FloatProducts<128, 32>::ScoreTile(run.block, run.q, run.k, run.scores);
  cuda::FloatProducts<128, 32>::AddValues(run.block, run.scores, run.k, run.out);
  std::vector<double> scores(64 * 32);
  for (int t = 0; t < HostBlock::kThreads; ++t) {
    for (int n = 0; n < 16; ++n) {
      double dot = 0, size = 0;
      for (int d = 0; d < 128; ++d) {
        const double product =
            double{run.At(run.q, RowOf(t, n), d)} * run.At(run.k, KeyOf(t, n), d);
        dot += product, size += std::abs(product);
      }
      ASSERT_NEAR(run.scores(t, n), dot, kError * size);
      scores[static_cast<size_t>(RowOf(t, n) * 32 + KeyOf(t, n))] = run.scores(t, n);
    }
  }
  for (int t = 0; t < HostBlock::kThreads; ++t) {
    for (int n = 0; n < 64; ++n) {
      double sum = 0, size = 0;
      for (int key = 0; key < 32; ++key) {
        const double weight = scores[static_cast<size_t>(RowOf(t, n) * 32 + key)];
        const double value = run.At(run.k, key, cuda::FloatProducts<128, 32>::Column(t % 32, n));
        sum += weight * value, size += std::abs(weight * value);
      }
      ASSERT_NEAR(run.out(t, n), sum, kError * size);
    }
  }
}

TEST(FloatProducts, InfinitiesComeOutAsOfFloat32AndOthersKeepTheirBits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Float128 plain, run;
  FillWithNormals(plain, 5);
  FillWithNormals(run, 5);
  run.q.Store(0, 37 * 132 + 9, kInf);
  run.block.Sync();
  using Products = cuda::FloatProducts<128, 32>;
  Products::ScoreTile(plain.block, plain.q, plain.k, plain.scores);
  Products::ScoreTile(run.block, run.q, run.k, run.scores);
  for (int t = 0; t < HostBlock::kThreads; ++t) {
    for (int n = 0; n < 16; ++n) {
      const float key = run.At(run.k, KeyOf(t, n), 9);
      const float expected = RowOf(t, n) == 37 ? std::copysign(kInf, key) : plain.scores(t, n);
      ASSERT_EQ(run.scores(t, n), expected);
      plain.scores(t, n) = run.scores(t, n) = static_cast<float>(KeyOf(t, n) % 3);
    }
  }
  run.block.Sync();
  run.k.Store(0, 4 * 132 + 70, -kInf);  // weights of 1
  run.k.Store(0, 7 * 132 + 71, kInf);
  run.k.Store(0, 3 * 132 + 72, kInf);  // of 0
  run.block.Sync();
  Products::AddValues(plain.block, plain.scores, plain.k, plain.out);
  Products::AddValues(run.block, run.scores, run.k, run.out);
  for (int t = 0; t < HostBlock::kThreads; ++t) {
    for (int n = 0; n < 64; ++n) {
      const int column = Products::Column(t % 32, n);
      if (column == 72) {
        ASSERT_TRUE(std::isnan(run.out(t, n)));
      } else {
        const float expected = column == 70 ? -kInf : column == 71 ? kInf : plain.out(t, n);
        ASSERT_EQ(run.out(t, n), expected) << column;
      }
    }
  }
  EXPECT_EQ(run.block.complaint(), "");
}

TEST(HostBlock, TheLastToArriveClearsTheCounter) {
  uint32_t counter = 0;
  HostBlock block;
  for (int call = 0; call < 2; ++call) {
    EXPECT_FALSE(block.ArrivesLast(&counter, 3));
    EXPECT_FALSE(block.ArrivesLast(&counter, 3));
    EXPECT_TRUE(block.ArrivesLast(&counter, 3));
    EXPECT_EQ(counter, 0u);
  }
  counter = 3;
  block.ArrivesLast(&counter, 3);
  EXPECT_NE(block.complaint(), "");
}

// Random123's known answers for philox4x32-10 (kat_vectors, Salmon et al. 2011).
TEST(DevicePhilox, GivesThePublishedWords) {
  uint32_t words[4];
  cuda::DropoutWords({{0, 0}, 0, 1}, 0, 0, 0, 0, words);
  EXPECT_THAT(words, ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
}

}  // namespace
}  // namespace heed::testing
