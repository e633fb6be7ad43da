// Gradient descent through attention: values move until the output is what was asked for.
#include <heed/heed.h>

#include <cstdio>
#include <vector>

int main() {
  constexpr int64_t kQueries = 4, kKeys = 6, kDim = 8;
  std::vector<float> q(kQueries * kDim), k(kKeys * kDim), v(kKeys * kDim);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 5) - 2;
  for (size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(i % 7) - 3;
  std::vector<float> output(q.size()), lse(kQueries), d_output(q.size()), d_v(v.size());

  const auto rows = [](auto& data, int64_t len) {
    return heed::Contiguous(data.data(), 1, 1, len, kDim);
  };
  const auto lse_view = heed::Contiguous(lse.data(), 1, 1, kQueries, 1);
  const heed::AttentionOptions options;

  // The loss is half the squared distance of the output to a table of ones and zeros.
  const auto target = [](size_t i) { return i % 3 == 0 ? 1.0f : 0.0f; };
  double first = 0, loss = 0;
  for (int iteration = 0; iteration < 200; ++iteration) {
    heed::Attention(rows(q, kQueries), rows(k, kKeys), rows(v, kKeys), options,
                    {.output = rows(output, kQueries), .lse = lse_view});
    loss = 0;
    for (size_t i = 0; i < output.size(); ++i) {
      d_output[i] = output[i] - target(i);
      loss += 0.5 * d_output[i] * d_output[i];
    }
    if (iteration == 0) first = loss;
    heed::AttentionBackward(rows(q, kQueries), rows(k, kKeys), rows(v, kKeys),
                            rows(output, kQueries), lse_view, rows(d_output, kQueries), options,
                            {.d_v = rows(d_v, kKeys)});
    for (size_t i = 0; i < v.size(); ++i) v[i] -= 0.5f * d_v[i];
  }
  std::printf("loss %.4f before, %.6f after 200 steps\n", first, loss);
  return loss < 0.01 * first ? 0 : 1;
}
