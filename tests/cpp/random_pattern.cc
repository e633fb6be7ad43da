#include "random_pattern.h"

#include <algorithm>

namespace heed::testing {
namespace {

// A divisor of n, evenly among them.
int64_t Divisor(int64_t n, Random& random) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return divisors[static_cast<size_t>(
      random.Integer(0, static_cast<int64_t>(divisors.size()) - 1))];
}

std::vector<int64_t> RandomGrid(int64_t tokens, int64_t axes, Random& random) {
  std::vector<int64_t> grid;
  for (int64_t axis = 1; axis < axes; ++axis) {
    grid.push_back(Divisor(tokens, random));
    tokens /= grid.back();
  }
  grid.push_back(tokens);
  return grid;
}

KeepPattern RandomTokenPattern(int64_t kv_len, Random& random) {
  switch (random.Integer(0, 3)) {
    case 0: {
      const int64_t axes = random.Integer(2, 3);
      Axial rule = {RandomGrid(kv_len, axes, random), std::nullopt};
      if (random.Chance(0.6)) rule.axis = random.Integer(0, axes - 1);
      return rule;
    }
    case 1: {
      SwinWindow rule = {RandomGrid(kv_len, 2, random), {}, {}};
      for (const int64_t extent : rule.grid) {
        rule.window_size.push_back(Divisor(extent, random));
        rule.shift.push_back(random.Integer(0, rule.window_size.back() - 1));
      }
      return rule;
    }
    case 2: {
      Neighborhood rule = {RandomGrid(kv_len, random.Integer(1, 3), random), {}, {}};
      for (const int64_t extent : rule.grid) {
        rule.dilation.push_back(random.Integer(1, std::min<int64_t>(extent, 4)));
        rule.window_size.push_back(random.Integer(1, extent / rule.dilation.back()));
      }
      return rule;
    }
    default:
      return BigBird{random.Integer(1, 40), 2 * random.Integer(0, 2) + 1, random.Integer(0, 2),
                     random.Integer(0, 3),  random.Next() >> 20,          random.Integer(0, 2)};
  }
}

void AddNamedPattern(AttentionCase& c, Random& random) {
  const bool inside = c.sizes.q_len <= c.sizes.kv_len;
  if (inside && random.Chance(0.5)) {
    c.scalars.patterns = {RandomTokenPattern(c.sizes.kv_len, random)};
    c.scalars.query_offset = QueryOffset::At(random.Integer(0, c.sizes.kv_len - c.sizes.q_len));
    return;
  }
  const int64_t stride = random.Integer(1, 70);
  switch (random.Integer(0, 3)) {
    case 0:
      c.scalars.patterns = {Strided{stride}};
      break;
    case 1:
      c.scalars.patterns = {Fixed{stride, random.Integer(1, stride)}};
      break;
    case 2:
      c.scalars.patterns = {DilatedWindow{random.Integer(0, 40), {random.Integer(1, 9)}}};
      break;
    default: {
      Longformer rule = {random.Integer(0, 40), {}, {}};
      for (int64_t h = 0; h < c.sizes.num_heads; ++h) rule.dilation.push_back(random.Integer(1, 5));
      for (int64_t n = random.Integer(0, 3); n > 0; --n) {
        c.global_tokens.push_back(static_cast<int32_t>(random.Integer(0, c.sizes.kv_len)));
      }
      c.scalars.patterns = {rule};
    }
  }
  if (c.scalars.query_offset.kind() == QueryOffset::Kind::kUnset) {
    c.scalars.query_offset = QueryOffset::At(random.Integer(-20, c.sizes.kv_len));
  }
}

void AddBlocks(AttentionCase& c, Random& random) {
  KeepLists& lists = c.lists;
  // The parameter block_size is the BigBird's too.
  const bool bigbird =
      !c.scalars.patterns.empty() && std::holds_alternative<BigBird>(c.scalars.patterns[0]);
  if (bigbird || random.Chance(0.3)) {
    lists.pairs.emplace();
    for (int64_t n = random.Integer(0, 4 * c.sizes.kv_len); n > 0; --n) {
      lists.pairs->push_back(static_cast<int32_t>(random.Integer(0, c.sizes.q_len - 1)));
      lists.pairs->push_back(static_cast<int32_t>(random.Integer(0, c.sizes.kv_len - 1)));
    }
    return;
  }
  lists.q_block = random.Integer(1, 80);
  lists.kv_block = random.Integer(1, 80);
  const int64_t heads = random.Chance(0.5) ? 1 : c.sizes.num_heads;
  const int64_t rows = (c.sizes.q_len + lists.q_block - 1) / lists.q_block;
  const int64_t blocks = (c.sizes.kv_len + lists.kv_block - 1) / lists.kv_block;
  lists.block_keep = MakeKeep({1, heads, rows, blocks}, random, random.Chance(0.5) ? 0.2 : 0.7);
}

void AddDocuments(AttentionCase& c, Random& random) {
  const auto ids = [&](int64_t len) {
    std::vector<int32_t> out;
    const int64_t count = len * (random.Chance(0.5) ? 1 : c.sizes.batch);
    for (int64_t n = 0; n < count; ++n) {
      out.push_back(static_cast<int32_t>(random.Integer(-1, 2)));
    }
    return out;
  };
  c.query_documents = ids(c.sizes.q_len);
  c.key_documents = ids(c.sizes.kv_len);
}

}  // namespace

void AddRandomPatterns(AttentionCase& c, Random& random) {
  if (random.Chance(0.6)) AddNamedPattern(c, random);
  if (random.Chance(0.4)) AddBlocks(c, random);
  if (random.Chance(0.3)) AddDocuments(c, random);
  if (random.Chance(0.2)) {
    for (int64_t b = 0; b < c.sizes.batch; ++b) {
      c.prefix_lengths.push_back(static_cast<int32_t>(random.Integer(0, c.sizes.kv_len)));
    }
    if (c.scalars.query_offset.kind() == QueryOffset::Kind::kUnset) {
      c.scalars.query_offset = QueryOffset::At(random.Integer(-20, c.sizes.kv_len));
    }
  }
}

AttentionCase RandomKeepCase(uint64_t seed) {
  Random random(seed);
  const int64_t kv_heads = random.Integer(1, 2);
  AttentionCase c = MakeCase({.batch = random.Integer(1, 2),
                              .num_heads = kv_heads * random.Integer(1, 2),
                              .num_kv_heads = kv_heads,
                              .q_len = random.Integer(1, 150),
                              .kv_len = random.Integer(1, 400),
                              .head_dim = 3,
                              .head_dim_v = 3},
                             seed);
  c.scalars.causal = random.Chance(0.3);
  if (random.Chance(0.3)) {
    c.scalars.window = Window{random.Integer(0, 100), random.Integer(0, 100)};
  }
  c.scalars.query_offset = QueryOffset::At(random.Integer(-50, c.sizes.kv_len));
  if (random.Chance(0.3)) {
    for (int64_t b = 0; b < c.sizes.batch; ++b) {
      c.key_lengths.push_back(static_cast<int32_t>(random.Integer(0, c.sizes.kv_len)));
    }
  }
  if (random.Chance(0.3)) c.keep = MakeKeep({1, 1, c.sizes.q_len, c.sizes.kv_len}, random, 0.7);
  if (random.Chance(0.3)) c.bias = MakeBias({1, 1, c.sizes.q_len, c.sizes.kv_len}, random, 0.2);
  AddRandomPatterns(c, random);
  return c;
}

}  // namespace heed::testing
