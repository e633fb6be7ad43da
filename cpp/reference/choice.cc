#include "choice.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>

namespace heed::reference {

std::vector<int64_t> BestOf(std::vector<double> scores, int64_t most,
                            std::span<const int64_t> certain) {
  constexpr double kMost = std::numeric_limits<double>::max();
  for (double& score : scores) score = score < kMost ? score : kMost;
  for (const int64_t n : certain) scores[n] = kCertain;
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  order.resize(std::min<int64_t>(most, order.size()));
  return order;
}

double DotInOrder(std::span<const double> a, std::span<const double> b) {
  double sum = 0.0;
  for (size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

std::vector<double> SeededNormals(uint64_t seed, int64_t count) {
  uint64_t state = seed;
  const auto next = [&state] {
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) >> 11;
  };
  std::vector<double> normals;
  for (int64_t n = 0; n < count; ++n) {
    const double u = static_cast<double>(next() + 1) / 9007199254740992.0;
    const double w = static_cast<double>(next()) / 9007199254740992.0;
    normals.push_back(
        static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * w)));
  }
  return normals;
}

int64_t ReadAtLeastOne(const Request& request, std::string_view name, int64_t fallback) {
  const int64_t value = ReadCount(request, name).value_or(fallback);
  if (value < 1) throw Error(ErrorCode::kRange, std::string(name) + " must be at least 1");
  return value;
}

void RefuseRankOfLengths(const Request& request) {
  const AnyTensor* lengths = FindInput(request, "key_lengths");
  if (lengths == nullptr || lengths->rank == 1) return;
  throw Error(ErrorCode::kShape, "key_lengths is one length per batch entry");
}

void RefuseLengthsPerQuery(const Request& request) {
  const AnyTensor* lengths = FindInput(request, "key_lengths");
  if (lengths == nullptr || lengths->rank < 2) return;
  if (lengths->shape[0] == 0 || lengths->shape[1] <= 1) return;  // as many values as entries
  throw Error(ErrorCode::kUnsupported, "key_lengths per query: choices need one per batch entry");
}

std::vector<Result> RunOverChosen(InnerRequest& inner, const Qkv& qkv, const KeysOfRow& keep) {
  std::vector<uint8_t> cells;
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t h = 0; h < qkv.num_heads; ++h) {
      for (int64_t i = 0; i < qkv.q_len; ++i) {
        for (const bool seen : keep(b, h, i)) cells.push_back(seen ? 1 : 0);
      }
    }
  }
  inner.SetKeep({qkv.batch, qkv.num_heads, qkv.q_len, qkv.kv_len}, std::move(cells));
  return inner.RunAll();
}

std::vector<Result> RunOverChosen(const Request& request, const Qkv& qkv,
                                  const std::vector<std::string_view>& without,
                                  const KeysOfRow& keep) {
  InnerRequest inner(request, "scaled_dot_product", without);
  return RunOverChosen(inner, qkv, keep);
}

}  // namespace heed::reference
