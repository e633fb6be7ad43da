// The worked example of the teaching texts: two queries, three keys, the default scale.
#include <heed/heed.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const std::vector<float> q = {1, 0, 0, 1};
  const std::vector<float> k = {1, 0, 1, 1, 0, 1};
  const std::vector<float> v = {1, 0, 0, 2, 1, 1};
  std::vector<float> output(4);
  std::vector<float> weights(6);

  const auto queries = heed::Contiguous(q.data(), 1, 1, 2, 2);
  const auto keys = heed::Contiguous(k.data(), 1, 1, 3, 2);
  const auto values = heed::Contiguous(v.data(), 1, 1, 3, 2);
  const heed::AttentionOutputs outputs = {.output = heed::Contiguous(output.data(), 1, 1, 2, 2),
                                          .weights = heed::Contiguous(weights.data(), 1, 1, 2, 3)};
  heed::AttentionOptions options;
  heed::Attention(queries, keys, values, options, outputs);

  // Row 0, with e = exp(1 / sqrt(2)): e / (2e + 1), e / (2e + 1), 1 / (2e + 1).
  const std::vector<double> expected = {0.4011121, 0.4011121, 0.1977758};
  for (size_t j = 0; j < expected.size(); ++j) {
    std::printf("weight of key %zu: %.6f\n", j, weights[j]);
    if (std::abs(weights[j] - expected[j]) > 1e-6) return 1;
  }

  try {
    options.softcap = -1.0;
    heed::Attention(queries, keys, values, options, outputs);
  } catch (const heed::Error& error) {
    std::printf("refused as it should be: %s\n", error.what());
    return 0;
  }
  return 1;
}
