// Causal attention with grouped heads: 8 query heads share 2 heads of keys and values. Checks one
// output row against the formula, written out.
#include <heed/heed.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr int64_t kHeads = 8, kKvHeads = 2, kLen = 128, kDim = 64;

std::vector<float> Random(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// softmax(q_i . k_j / sqrt(dim)) v_j over j <= i, for one dimension of one query.
double Expected(heed::TensorView<const float> q, heed::TensorView<const float> k,
                heed::TensorView<const float> v, int64_t head, int64_t i, int64_t d) {
  const int64_t kv_head = head / (kHeads / kKvHeads);
  double sum = 0, weighted = 0;
  for (int64_t j = 0; j <= i; ++j) {
    double score = 0;
    for (int64_t c = 0; c < kDim; ++c) score += q(0, head, i, c) * k(0, kv_head, j, c);
    const double weight = std::exp(score / std::sqrt(kDim));
    sum += weight;
    weighted += weight * v(0, kv_head, j, d);
  }
  return weighted / sum;
}

}  // namespace

int main() {
  const std::vector<float> q_data = Random(kHeads * kLen * kDim, 1);
  const std::vector<float> k_data = Random(kKvHeads * kLen * kDim, 2);
  const std::vector<float> v_data = Random(kKvHeads * kLen * kDim, 3);
  std::vector<float> output_data(q_data.size());

  // Views: a pointer, four extents, four strides. Any strides will do, if the last
  // dimension is contiguous.
  const auto q = heed::Contiguous(q_data.data(), 1, kHeads, kLen, kDim);
  const auto k = heed::Contiguous(k_data.data(), 1, kKvHeads, kLen, kDim);
  const auto v = heed::Contiguous(v_data.data(), 1, kKvHeads, kLen, kDim);
  const auto output = heed::Contiguous(output_data.data(), 1, kHeads, kLen, kDim);

  heed::AttentionOptions options;
  options.causal = true;
  heed::Attention(q, k, v, options, {.output = output});

  const double expected = Expected(q, k, v, 5, 100, 7);
  std::printf("head 5, query 100, dimension 7: %.6f, by the formula %.6f\n", output(0, 5, 100, 7),
              expected);
  return std::abs(output(0, 5, 100, 7) - expected) < 1e-5 ? 0 : 1;
}
