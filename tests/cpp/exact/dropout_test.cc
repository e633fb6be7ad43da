// Dropout: the same weights are dropped everywhere, and nothing but the sums of values changes.
#include "reference/dropout.h"

#include <cmath>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/thread_pool.h"
#include "normalizer_checks.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;

class AttentionDropout : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionDropout);

TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  // Random123, kat_vectors, philox4x32 10.
  EXPECT_THAT(reference::Philox({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(reference::Philox({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu},
                                {0xffffffffu, 0xffffffffu}),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(reference::Philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                                {0xa4093822u, 0x299f31d0u}),
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST_P(AttentionDropout, MaskIsTheDefinition) {
  const Dropout dropout = {0.3, 0x0123456789abcdefu};
  Buffer<uint8_t> kept({2, 3, 4, 70}, Layout::kPadded, 9);
  DropoutMask(dropout, kept.view());
  const uint32_t threshold = static_cast<uint32_t>(0.3 * 4294967296.0);
  kept.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, uint8_t& cell) {
    const auto words = reference::Philox({static_cast<uint32_t>(b), static_cast<uint32_t>(h),
                                          static_cast<uint32_t>(i), static_cast<uint32_t>(j / 4)},
                                         {0x89abcdefu, 0x01234567u});
    EXPECT_EQ(cell, words[static_cast<size_t>(j % 4)] >= threshold ? 1 : 0);
  });
}

TEST_P(AttentionDropout, PartsDropWhatTheWholeDrops) {
  Buffer<uint8_t> whole({3, 4, 9, 300}, Layout::kDense, 9);
  DropoutMask({0.3, 5}, whole.view());
  Buffer<uint8_t> part({1, 2, 4, 90}, Layout::kPadded, 9);
  DropoutMask({0.3, 5, {2, 1, 5, 204}}, part.view());
  part.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, uint8_t& cell) {
    EXPECT_EQ(cell, whole.view()(2 + b, 1 + h, 5 + i, 204 + j));
  });
  EXPECT_THROW(DropoutMask({0.3, 5, {0, 0, 0, 2}}, part.view()), Error);
  EXPECT_THROW(DropoutMask({0.3, 5, {0, -1, 0, 0}}, part.view()), Error);
}

TEST_P(AttentionDropout, DropsAboutOneInOneOverP) {
  Buffer<uint8_t> kept({1, 8, 100, 1000}, Layout::kDense, 9);
  DropoutMask({0.1, 7}, kept.view());
  double count = 0;
  kept.ForEach([&](int64_t, int64_t, int64_t, int64_t, uint8_t& cell) { count += cell; });
  EXPECT_NEAR(count / 800000, 0.9, 0.002);
}

TEST_P(AttentionDropout, OutputIsTheSumOfTheKeptWeights) {
  for (const Normalize normalize : {Normalize::kSoftmax, Normalize::kSigmoid, Normalize::kTopK}) {
    AttentionCase c = NormalizerCase(normalize);
    c.scalars.dropout = {0.4, 99};
    const Results r = RunAttention(c, {.lse = false, .weights = true});
    Buffer<uint8_t> kept({2, 4, 33, 300}, Layout::kDense, 9);
    DropoutMask(c.scalars.dropout, kept.view());
    for (int64_t i = 0; i < 33; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < 300; ++j) {
        sum += kept(1, 2, i, j) * r.weights(1, 2, i, j) * c.v(1, 1, j, 4) / 0.6;
      }
      EXPECT_NEAR(r.output(1, 2, i, 4), sum, 1e-5);
    }
  }
}

TEST_P(AttentionDropout, WeightsAndLseAreThoseWithoutIt) {
  AttentionCase c = NormalizerCase(Normalize::kSoftmax);
  const Results plain = RunAttention(c, {.lse = true, .weights = true});
  c.scalars.dropout = {0.5, 3};
  const Results dropped = RunAttention(c, {.lse = true, .weights = true});
  EXPECT_EQ(Bits(plain.weights), Bits(dropped.weights));
  EXPECT_EQ(Bits(plain.lse), Bits(dropped.lse));
  EXPECT_NE(Bits(plain.output), Bits(dropped.output));
}

TEST_P(AttentionDropout, ZeroIsOff) {
  AttentionCase c = NormalizerCase(Normalize::kSoftmax);
  const Results plain = RunAttention(c);
  c.scalars.dropout = {0.0, 3};
  EXPECT_EQ(Bits(plain.output), Bits(RunAttention(c).output));
}

TEST_P(AttentionDropout, ThreadsChangeNoBit) {
  AttentionCase c = NormalizerCase(Normalize::kSoftmax, 200);
  c.scalars.dropout = {0.25, 17};
  const auto one = MakeThreadPool(1);
  const auto three = MakeThreadPool(3);
  EXPECT_EQ(Bits(RunAttention(c, {}, one.get()).output),
            Bits(RunAttention(c, {}, three.get()).output));
}

TEST_P(AttentionDropout, DecodingDropsTheSameKeysAsManyQueries) {
  // One query alone (read in place, in splits) is query 0 of many.
  AttentionCase many = NormalizerCase(Normalize::kSoftmax, 40, 2500);
  many.scalars.dropout = {0.5, 5};
  AttentionCase one = NormalizerCase(Normalize::kSoftmax, 1, 2500);
  one.scalars.dropout = many.scalars.dropout;
  one.q.ForEach(
      [&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) { x = many.q(b, h, i, d); });
  one.k = many.k;
  one.v = many.v;
  const Results all = RunAttention(many);
  const Results first = RunAttention(one);
  for (int64_t d = 0; d < 9; ++d) {
    EXPECT_NEAR(first.output(1, 3, 0, d), all.output(1, 3, 0, d), 1e-5);
  }
}

TEST_P(AttentionDropout, ImpossibleProbabilitiesAreRefused) {
  for (const double p : {-0.1, 1.0, 1.5, std::nan("")}) {
    AttentionCase c = NormalizerCase(Normalize::kSoftmax, 3, 3);
    c.scalars.dropout = {p, 0};
    EXPECT_THROW(RunAttention(c), Error) << p;
  }
}

}  // namespace
}  // namespace heed::testing
