// Every row of the registry becomes a problem that heed solves right.
#include "native_bench/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "heed/examples.h"
#include "native_bench/peer.h"
#include "native_bench/verify.h"
#include "native_bench/words.h"

namespace heed::bench {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Lt;

Case SmallCase(std::string_view mechanism) {
  Case c;
  c.mechanism = mechanism;
  c.batch = 2;
  c.heads = {4, 4};
  c.lengths = {33, 33};
  c.head_dim = 16;
  return c;
}

class EveryMechanism : public ::testing::TestWithParam<Mechanism> {};

void ExpectRight(const Case& c) {
  const auto pool = MakeThreadPool(1);
  for (const uint64_t seed : {1, 2}) {
    const Verdict verdict = VerifySmall(HeedPeer(), c, seed, *pool);
    EXPECT_EQ(verdict.failure, "") << c.Name();
    EXPECT_LE(verdict.max_error, verdict.bound) << c.Name();
    EXPECT_GT(verdict.rows, 0) << c.Name();
    EXPECT_GT(verdict.bound, 0) << c.Name();
    EXPECT_LT(verdict.bound, 1e-2) << c.Name();
  }
}

TEST_P(EveryMechanism, IsDrawnAndRight) {
  Case c = SmallCase(GetParam().id);
  ExpectRight(c);
  if (!HasWord(GetParam().params, "causal")) return;
  c.mask = Mask::kCausal;
  ExpectRight(c);
}

TEST_P(EveryMechanism, TakesGroupedHeadsWhereItSaysSo) {
  if (!HasWord(GetParam().capabilities, "gqa")) return;
  Case c = SmallCase(GetParam().id);
  c.heads = {4, 2};
  ExpectRight(c);
}

TEST_P(EveryMechanism, ReadsItsExample) {
  const Mechanism& mechanism = GetParam();
  for (const Example& example : Examples()) {
    if (example.id != mechanism.id) continue;
    for (std::string_view input : SplitWords(example.inputs)) {
      EXPECT_TRUE(HasWord(mechanism.inputs, std::string(input) + "?")) << input;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryMechanism,
                         ::testing::ValuesIn(Mechanisms().begin(), Mechanisms().end()),
                         [](const auto& info) { return std::string(info.param.id); });

TEST(Draw, EveryExampleIsOfAMechanism) {
  for (const Example& example : Examples()) {
    EXPECT_NE(FindMechanism(example.id), nullptr) << example.id;
  }
}

TEST(Draw, ExtentsFollowTheCase) {
  Case c = SmallCase("disentangled");
  c.lengths = {33, 70};
  c.head_dim = 17;
  const Extent extents = ExtentsOf(c);
  EXPECT_EQ(extents.at("kv_len"), 70);
  EXPECT_EQ(extents.at("concat_dim"), 2 * 17);
  EXPECT_EQ(extents.at("ff_dim"), 4 * 4 * 17);
  EXPECT_EQ(extents.at("rope_dim"), 9);  // half of it, rounded up
  EXPECT_EQ(extents.at("kv_blocks"), 2);
  EXPECT_EQ(extents.at("num_distances"), 32);  // the row's own
}

TEST(Draw, OneLengthIsOneLength) {
  Case c = SmallCase("rope");
  c.lengths = {1, 70};
  EXPECT_THROW(ExtentsOf(c), Error);
}

TEST(Draw, IndicesLieWhereTheySay) {
  const Extent extents = ExtentsOf(SmallCase("graph"));
  for (const Input& input : Inputs()) {
    if (input.name != "edges" && input.name != "tokens" && input.name != "keep_pairs") continue;
    const OwnedTensor tensor = DrawInput(input, extents, 3);
    const int64_t limit = input.name == "tokens" ? 256 : 33;
    const std::vector<int32_t> values(tensor.ints(), tensor.ints() + tensor.size());
    EXPECT_THAT(values, Each(AllOf(Ge(0), Lt(limit)))) << input.name;
  }
}

TEST(Draw, WeightsHaveTheVarianceOfTheirFanIn) {
  Case c = SmallCase("multi_head");
  c.head_dim = 64;
  const Problem problem(c, 1);
  const OwnedTensor& weights = *problem.input("w_q");
  EXPECT_THAT(weights.shape(), ElementsAre(4, 64, 256));
  double sum = 0;
  for (int64_t n = 0; n < weights.size(); ++n) sum += std::pow(weights.floats()[n], 2);
  EXPECT_NEAR(sum / static_cast<double>(weights.size()), 1.0 / 256, 0.05 / 256);
}

TEST(Draw, AnInputIsTheSameWhicheverOthersThereAre) {
  const Problem plain(SmallCase("scaled_dot_product"), 5);
  const Problem sink(SmallCase("sink"), 5);
  for (int64_t n = 0; n < plain.q().size(); ++n) EXPECT_EQ(plain.q().data[n], sink.q().data[n]);
  EXPECT_NE(plain.k().data[0], plain.q().data[0]);
}

}  // namespace
}  // namespace heed::bench
