#include "score_size.h"

#include <algorithm>
#include <cmath>

namespace heed::testing {
namespace {

// One pair of a case: element d of its query and of its key.
struct Pair {
  const AttentionCase& c;
  int64_t b, h, i, j;
  int64_t kv_head() const { return h / (c.sizes.num_heads / c.sizes.num_kv_heads); }
  double q(int64_t d) const { return c.q(b, h, i, d); }
  double k(int64_t d) const { return c.k(b, kv_head(), j, d); }
};

double DotSize(const Pair& pair) {
  double size = 0;
  for (int64_t d = 0; d < pair.c.sizes.head_dim; ++d) size += std::abs(pair.q(d) * pair.k(d));
  const double dim = static_cast<double>(pair.c.sizes.head_dim);
  return std::abs(pair.c.scalars.scale.value_or(1 / std::sqrt(dim))) * size;
}

double DistanceSize(const Pair& pair) {
  const std::vector<float>& width = pair.c.width;
  double size = 0;
  for (int64_t d = 0; d < pair.c.sizes.head_dim; ++d) {
    const size_t n = static_cast<size_t>(d);
    const double w = width.empty() ? 1 : width[width.size() == 1 ? 0 : n];
    size += std::pow((pair.q(d) - pair.k(d)) / w, 2);
  }
  return 0.5 * std::abs(pair.c.scalars.scale.value_or(1)) * size;
}

// A cosine is at most 1.
double CosineSize(const Pair& pair) {
  double temperature = 1;
  if (const auto at = pair.c.tensors.find("temperature"); at != pair.c.tensors.end()) {
    const Buffer<float>& given = at->second.buffer;
    temperature = given(0, 0, 0, given.size() == 1 ? 0 : pair.h);
  }
  temperature = std::max(temperature, pair.c.scalars.min_temperature.value_or(0));
  return std::abs(pair.c.scalars.scale.value_or(1) / temperature);
}

double RawSize(const Pair& pair) {
  switch (pair.c.scalars.score) {
    case Score::kDot:
      return DotSize(pair);
    case Score::kSquaredDistance:
      return DistanceSize(pair);
    case Score::kCosine:
      return CosineSize(pair);
  }
  return 0;
}

}  // namespace

double ScoreSize(const AttentionCase& c, int64_t b, int64_t h, int64_t i, int64_t j) {
  double size = RawSize({c, b, h, i, j});
  if (c.bias.has_value()) {
    const Extents& shape = c.bias.shape();
    size += std::abs(c.bias(shape[0] == 1 ? 0 : b, shape[1] == 1 ? 0 : h, shape[2] == 1 ? 0 : i,
                            shape[3] == 1 ? 0 : j));
  }
  if (!c.alibi_slopes.empty()) {
    // An upper bound that needs no position: no distance within a test exceeds it by much.
    const double slope = std::abs(c.alibi_slopes[static_cast<size_t>(h)]);
    size += slope * static_cast<double>(c.sizes.q_len + c.sizes.kv_len);
  }
  return size;
}

}  // namespace heed::testing
