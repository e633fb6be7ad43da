// Explain: the picture of any set of keep rules is what the oracle sees, and what attention does.
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "heed/registry.h"
#include "random_pattern.h"
#include "request_builder.h"

namespace heed::testing {
namespace {

// The picture by options; by name it must be the same.
std::vector<uint8_t> PictureOf(const AttentionCase& c) {
  const auto& s = c.sizes;
  const size_t count = static_cast<size_t>(s.batch * s.num_heads * s.q_len * s.kv_len);
  std::vector<uint8_t> cells(count, 7);
  std::vector<uint8_t> named(count, 7);
  Explain(c.options(), Contiguous(cells.data(), s.batch, s.num_heads, s.q_len, s.kv_len));
  Explain(c.request(), Contiguous(named.data(), s.batch, s.num_heads, s.q_len, s.kv_len));
  EXPECT_EQ(cells, named) << c.Describe();
  return cells;
}

TEST(Explain, ShowsWhatTheOracleSees) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const AttentionCase c = RandomKeepCase(seed);
    const std::vector<double> scores = RunOracle(c).at("scores");
    const std::vector<uint8_t> picture = PictureOf(c);
    size_t wrong = 0;
    for (size_t n = 0; n < scores.size(); ++n) {
      const bool seen = scores[n] != -std::numeric_limits<double>::infinity();
      wrong += picture[n] == (seen ? 1 : 0) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0u) << c.Describe();
    if (HasFailure()) return;
  }
}

TEST(Explain, ShowsABiasOfMinusInfinity) {
  AttentionCase c = MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 3, .kv_len = 3});
  c.bias = Buffer<float>({1, 1, 1, 3}, Layout::kDense, 0.5f);
  c.bias(0, 0, 0, 1) = -std::numeric_limits<float>::infinity();
  c.scalars.causal = true;
  EXPECT_EQ(PictureOf(c), (std::vector<uint8_t>{1, 0, 0, 1, 0, 0, 1, 0, 1}));
}

TEST(Explain, WithoutRulesEverythingIsSeen) {
  AttentionCase c = MakeCase({.num_heads = 2, .num_kv_heads = 1, .q_len = 5, .kv_len = 300});
  EXPECT_EQ(PictureOf(c), std::vector<uint8_t>(2 * 5 * 300, 1));
}

TEST(Explain, ChecksItsArguments) {
  std::vector<uint8_t> cells(12);
  AttentionOptions options;
  options.causal = true;
  EXPECT_THROW(Explain(options, Contiguous(cells.data(), 1, 1, 3, 4)), Error);  // no offset
  EXPECT_THROW(Explain(AttentionOptions(), Contiguous<uint8_t>(nullptr, 1, 1, 3, 4)), Error);
  const AttentionCase c = MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 3, .kv_len = 4});
  EXPECT_THROW(Explain(c.request(), Contiguous(cells.data(), 1, 1, 4, 3)), Error);
  Request unknown;
  unknown.id = "linear_projection_of_nothing";
  EXPECT_THROW(Explain(unknown, Contiguous(cells.data(), 1, 1, 3, 4)), Error);
}

}  // namespace
}  // namespace heed::testing
