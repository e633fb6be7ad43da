// Token by token with a cache, as a language model generates. Every row equals that of attention
// over the whole sequence at once.
#include <heed/heed.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kPrompt = 20, kSteps = 12, kDim = 32;
constexpr int64_t kLen = kPrompt + kSteps;

// [1, heads, kLen, kDim] with numbers that are neither constant nor periodic.
std::vector<float> Rows(int64_t heads, double phase) {
  std::vector<float> values(static_cast<size_t>(heads * kLen * kDim));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(std::sin(phase + 0.1 * static_cast<double>(i * i % 1009)));
  }
  return values;
}

// Tokens [begin, end) of a tensor: another view of the same memory.
template <typename T>
heed::TensorView<T> Tokens(T* data, int64_t heads, int64_t begin, int64_t end) {
  return {data + begin * kDim, {1, heads, end - begin, kDim}, {0, kLen * kDim, kDim, 1}};
}

}  // namespace

int main() {
  const std::vector<float> q = Rows(kHeads, 0.0), k = Rows(kKvHeads, 1.0), v = Rows(kKvHeads, 2.0);
  std::vector<float> decoded(q.size()), whole(q.size());

  heed::KvCacheOptions cache_options;
  cache_options.num_kv_heads = kKvHeads;
  cache_options.head_dim = kDim;
  cache_options.block_size = 16;  // a paged cache; forks would share its blocks
  heed::KvCache cache(cache_options);

  const auto step = [&](int64_t begin, int64_t end) {
    cache.Append(Tokens(k.data(), kKvHeads, begin, end), Tokens(v.data(), kKvHeads, begin, end));
    heed::Decode(Tokens(q.data(), kHeads, begin, end), cache, {},
                 {.output = Tokens(decoded.data(), kHeads, begin, end)});
  };
  step(0, kPrompt);
  for (int64_t token = kPrompt; token < kLen; ++token) step(token, token + 1);

  heed::AttentionOptions options;
  options.causal = true;
  heed::Attention(Tokens(q.data(), kHeads, 0, kLen), Tokens(k.data(), kKvHeads, 0, kLen),
                  Tokens(v.data(), kKvHeads, 0, kLen), options,
                  {.output = Tokens(whole.data(), kHeads, 0, kLen)});

  double difference = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(decoded[i]) - whole[i]));
  }
  std::printf("%lld tokens in %lld blocks; largest difference from attention at once: %.1e\n",
              static_cast<long long>(cache.length(0)),
              static_cast<long long>(cache.memory().blocks), difference);
  return difference < 1e-6 ? 0 : 1;
}
