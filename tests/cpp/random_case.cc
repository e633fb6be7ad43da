#include "random_case.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "random_pattern.h"

namespace heed::testing {
namespace {

template <size_t kCount>
int64_t Pick(Random& random, const std::array<int64_t, kCount>& choices) {
  return choices[static_cast<size_t>(random.Integer(0, kCount - 1))];
}

// Each axis of [batch, num_heads, q_len, kv_len] becomes 1 with probability 0.4.
Extents RandomPairs(const Sizes& sizes, Random& random) {
  Extents shape = {sizes.batch, sizes.num_heads, sizes.q_len, sizes.kv_len};
  for (int64_t& extent : shape) {
    if (random.Chance(0.4)) extent = 1;
  }
  return shape;
}

void AddLengths(AttentionCase& c, Random& random) {
  const bool per_query = random.Chance(0.4);
  const int64_t count = c.sizes.batch * (per_query ? c.sizes.q_len : 1);
  for (int64_t n = 0; n < count; ++n) {
    c.key_lengths.push_back(static_cast<int32_t>(random.Integer(0, c.sizes.kv_len)));
  }
}

void AddOffset(AttentionCase& c, Random& random) {
  const int64_t far = c.sizes.q_len + c.sizes.kv_len;
  const bool per_query = static_cast<int64_t>(c.key_lengths.size()) > c.sizes.batch;
  const double kind = random.Uniform();
  if (kind < 0.3 && !per_query) {
    c.scalars.query_offset = QueryOffset::End();
  } else if (kind < 0.6) {
    std::vector<int64_t> positions;
    for (int64_t b = 0; b < c.sizes.batch; ++b) positions.push_back(random.Integer(-far, far));
    c.scalars.query_offset = QueryOffset::PerBatch(positions);
  } else if (c.sizes.q_len != c.sizes.kv_len || kind < 0.8) {
    c.scalars.query_offset = QueryOffset::At(random.Integer(-far / 2, far));
  }
}

void AddModifiers(AttentionCase& c, Random& random) {
  if (random.Chance(0.3)) c.scalars.scale = random.Normal();
  if (random.Chance(0.3)) c.scalars.softcap = 0.5 + 10 * random.Uniform();
  if (random.Chance(0.4)) {
    const double hidden = random.Chance(0.5) ? 0.3 : 0.0;
    c.bias = MakeBias(RandomPairs(c.sizes, random), random, hidden, RandomLayout(random));
  }
  const size_t heads = static_cast<size_t>(c.sizes.num_heads);
  if (random.Chance(0.3)) c.alibi_slopes.resize(heads);
  for (float& slope : c.alibi_slopes) slope = 0.1f * random.Normal();
  if (random.Chance(0.3)) c.sinks.resize(heads);
  for (float& sink : c.sinks) sink = 2 * random.Normal();
}

// Keys of another width, now and then.
void AddKeyWidth(AttentionCase& c, Random& random) {
  if (random.Chance(0.5)) return;
  constexpr std::array<int64_t, 4> kDims = {1, 5, 16, 33};
  const Extents shape = {c.sizes.batch, c.sizes.num_kv_heads, c.sizes.kv_len, Pick(random, kDims)};
  c.k = Buffer<float>(shape, RandomLayout(random), 0.0f);
  c.k.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
}

// One matrix for all heads, or one each.
std::vector<int64_t> Matrix(int64_t heads, int64_t rows, int64_t cols, Random& random) {
  if (random.Chance(0.5)) return {rows, cols};
  return {heads, rows, cols};
}

double OneOverRoot(int64_t count) {
  return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(count, 1)));
}

void AddBilinear(AttentionCase& c, Random& random) {
  c.scalars.score = Score::kBilinear;
  AddKeyWidth(c, random);
  const int64_t head_dim_k = c.k.shape()[3];
  c.AddTensor("score_matrix", Matrix(c.sizes.num_heads, c.sizes.head_dim, head_dim_k, random),
              random, OneOverRoot(c.sizes.head_dim * head_dim_k), RandomLayout(random));
}

void AddAdditive(AttentionCase& c, Random& random) {
  c.scalars.score = Score::kAdditive;
  AddKeyWidth(c, random);
  constexpr std::array<int64_t, 5> kHidden = {1, 3, 8, 17, 32};
  const int64_t hidden = Pick(random, kHidden);
  const int64_t head_dim_k = c.k.shape()[3];
  c.AddTensor("query_weight", Matrix(c.sizes.num_heads, hidden, c.sizes.head_dim, random), random,
              OneOverRoot(c.sizes.head_dim), RandomLayout(random));
  c.AddTensor("key_weight", Matrix(c.sizes.num_kv_heads, hidden, head_dim_k, random), random,
              OneOverRoot(head_dim_k), RandomLayout(random));
  if (random.Chance(0.5)) c.AddTensor("score_bias", {hidden}, random);
  const std::vector<int64_t> shared = {hidden}, each = {c.sizes.num_heads, hidden};
  c.AddTensor("score_vector", random.Chance(0.5) ? shared : each, random, OneOverRoot(hidden));
}

void AddCosine(AttentionCase& c, Random& random) {
  c.scalars.score = Score::kCosine;
  if (random.Chance(0.5)) c.scalars.min_temperature = 0.2;
  if (random.Chance(0.3)) return;
  c.AddTensor("temperature", {random.Chance(0.5) ? 1 : c.sizes.num_heads}, random);
  c.tensors["temperature"].buffer.ForEach(
      [](int64_t, int64_t, int64_t, int64_t, float& x) { x = 0.02f + std::abs(x); });
}

}  // namespace

Sizes RandomSizes(Random& random) {
  constexpr std::array<int64_t, 12> kLens = {1, 2, 3, 16, 17, 33, 64, 65, 129, 150, 257, 300};
  constexpr std::array<int64_t, 7> kDims = {1, 2, 7, 16, 24, 40, 64};
  Sizes sizes;
  sizes.batch = random.Integer(1, 2);
  sizes.num_kv_heads = random.Integer(1, 2);
  sizes.num_heads = sizes.num_kv_heads * random.Integer(1, 2);
  sizes.q_len = Pick(random, kLens);
  sizes.kv_len = random.Chance(0.3) ? sizes.q_len : Pick(random, kLens);
  sizes.head_dim = Pick(random, kDims);
  sizes.head_dim_v = Pick(random, kDims);
  return sizes;
}

Layout RandomLayout(Random& random) {
  constexpr std::array<Layout, 4> kLayouts = {Layout::kDense, Layout::kBlhd, Layout::kPadded,
                                              Layout::kReversed};
  return kLayouts[static_cast<size_t>(random.Integer(0, 3))];
}

void AddKeepRules(AttentionCase& c, Random& random) {
  c.scalars.causal = random.Chance(0.4);
  if (random.Chance(0.3)) {
    c.scalars.window.emplace();
    if (random.Chance(0.7)) c.scalars.window->left = random.Integer(0, c.sizes.kv_len);
    if (random.Chance(0.7)) c.scalars.window->right = random.Integer(0, c.sizes.kv_len);
  }
  if (random.Chance(0.4)) AddLengths(c, random);
  AddOffset(c, random);
  if (random.Chance(0.4)) {
    constexpr std::array<int64_t, 4> kPercent = {5, 50, 95, 100};
    const double kept = static_cast<double>(Pick(random, kPercent)) / 100;
    c.keep = MakeKeep(RandomPairs(c.sizes, random), random, kept, RandomLayout(random));
  }
  if (random.Chance(0.4)) AddRandomPatterns(c, random);
}

AttentionCase RandomCase(uint64_t seed) {
  Random random(seed);
  const Sizes sizes = RandomSizes(random);
  AttentionCase c = MakeCase(sizes, seed + 1, RandomLayout(random));
  c.output_layout = RandomLayout(random);
  AddKeepRules(c, random);
  AddModifiers(c, random);
  if (random.Chance(0.2)) c.scalars.dropout = {0.9 * random.Uniform(), random.Next()};
  // Never more than the weight itself, so that the same bounds hold.
  if (random.Chance(0.2)) c.prob_mod = "prob * (1 - 0.25 * (kvIndex % 3)) / (1 + prob)";
  return c;
}

void AddScore(AttentionCase& c, Random& random) {
  switch (random.Integer(0, 3)) {
    case 0:
      c.scalars.score = Score::kSquaredDistance;
      // Such that the scores stay as small as those of dot products.
      c.width = {static_cast<float>(1 / OneOverRoot(c.sizes.head_dim))};
      break;
    case 1:
      AddCosine(c, random);
      break;
    case 2:
      AddBilinear(c, random);
      break;
    default:
      AddAdditive(c, random);
  }
}

void AddDistances(AttentionCase& c, Random& random, bool dot) {
  constexpr std::array<int64_t, 4> kReach = {0, 1, 20, 400};
  const int64_t heads = c.sizes.num_heads;
  const int64_t each = random.Chance(0.5) ? 1 : heads;
  if (random.Chance(0.4)) {
    c.AddTensor("distance_bias", {each, 2 * Pick(random, kReach) + 1}, random);
  }
  if (random.Chance(0.4)) {
    constexpr std::array<int64_t, 3> kBuckets = {4, 10, 32};
    c.AddTensor("bucket_bias", {Pick(random, kBuckets), heads}, random);
    c.scalars.bucket_max_distance = 17 + random.Integer(0, 200);
    if (random.Chance(0.5)) c.scalars.bucket_direction = T5Direction::kCausal;
  }
  if (c.scalars.causal && random.Chance(0.5)) {
    c.AddTensor(
        "log_gates",
        {random.Chance(0.5) ? 1 : c.sizes.batch, random.Chance(0.5) ? 1 : heads, c.sizes.kv_len},
        random, 0.05);
    c.tensors["log_gates"].buffer.ForEach(
        [](int64_t, int64_t, int64_t, int64_t, float& x) { x = -std::abs(x); });
  }
  c.scalars.relative_rows = static_cast<RelativeRows>(random.Integer(0, 2));
  const bool clip = c.scalars.relative_rows == RelativeRows::kClip;
  const int64_t rows = clip ? 2 * Pick(random, kReach) + 1 : 8 * (1 + Pick(random, kReach));
  c.scalars.relative_max_distance = rows + random.Integer(0, 300);
  const auto table = [&](const char* name, int64_t dim, double size) {
    if (random.Chance(0.5)) return;
    c.AddTensor(name, Matrix(heads, rows, dim, random), random, size, RandomLayout(random));
  };
  table("relative_values", c.sizes.head_dim_v, 1);
  if (!dot) return;
  table("relative_keys", c.sizes.head_dim, 0.5);
  table("relative_queries", c.sizes.head_dim, 0.5);
  if (random.Chance(0.3)) c.AddTensor("content_bias", {heads, c.sizes.head_dim}, random, 0.3);
  if (c.tensors.count("relative_keys") > 0 && random.Chance(0.5)) {
    c.AddTensor("position_bias", {heads, c.sizes.head_dim}, random, 0.3);
  }
}

void FixOffset(AttentionCase& c) {
  if (c.scalars.query_offset.kind() == QueryOffset::Kind::kUnset) {
    c.scalars.query_offset = QueryOffset::At(c.sizes.kv_len - c.sizes.q_len);
  }
}

void AddNormalizer(AttentionCase& c, Normalize normalize, Random& random) {
  c.scalars.normalize = normalize;
  if (!HasLse(c) || normalize == Normalize::kSoftmax1) c.sinks.clear();
  c.scalars.top_k = random.Integer(1, c.sizes.kv_len + 1);
  if (random.Chance(0.5)) c.scalars.sigmoid_bias = random.Normal();
  if (random.Chance(0.5)) c.scalars.length_power = random.Uniform();
  if (normalize == Normalize::kCope) {
    const int64_t heads = random.Chance(0.5) ? 1 : c.sizes.num_heads;
    AddCopeTable(c, heads, random.Integer(1, 20), random);
  }
  const bool chooses = normalize == Normalize::kHard || normalize == Normalize::kTopK;
  if (chooses) MakeScoresExact(c);
}

}  // namespace heed::testing
