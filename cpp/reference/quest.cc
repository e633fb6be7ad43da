// Quest: the pages in which the smallest and largest keys let the query score most, and its own.
//
// Source: Tang et al. 2024, arXiv:2406.10774, section 3.3, algorithm 1.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "choice.h"
#include "inner.h"
#include "inputs.h"
#include "visibility.h"

namespace heed::reference::quest {
namespace {

// Of the keys [begin, end): their largest numbers, dimension by dimension, then their smallest.
std::vector<double> BoundsOfPage(const Qkv& qkv, int64_t b, int64_t kv, int64_t begin,
                                 int64_t end) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> bounds(qkv.head_dim, -infinity);
  bounds.resize(2 * qkv.head_dim, infinity);
  for (int64_t j = begin; j < end; ++j) {
    for (int64_t d = 0; d < qkv.head_dim; ++d) {
      const double x = qkv.k(b, kv, j, d);
      double& largest = bounds[d];
      double& smallest = bounds[qkv.head_dim + d];
      if (std::isnan(x) || x > largest) largest = x;
      if (std::isnan(x) || x < smallest) smallest = x;
    }
  }
  return bounds;
}

// What meets the largest numbers, then what meets the smallest.
std::vector<double> SignedParts(std::span<const double> q) {
  std::vector<double> parts;
  for (const double x : q) parts.push_back(x < 0.0 ? 0.0 : x);
  for (const double x : q) parts.push_back(x > 0.0 ? 0.0 : x);
  return parts;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const int64_t size = ReadAtLeastOne(request, "page_size", 16);
  const int64_t most = ReadAtLeastOne(request, "top_pages", 64);
  RefuseLengthsPerQuery(request);
  InnerRequest causal(request, request.id, {});
  causal.SetParam("causal", true);
  const Visibility visible(causal.request(), qkv);
  return RunOverChosen(
      causal.request(), qkv, {"page_size", "top_pages"}, [&](int64_t b, int64_t h, int64_t i) {
        const int64_t length = visible.Length(b, i), position = visible.Position(b, i);
        const int64_t own = position < 0 ? -1 : position / size;
        std::vector<double> bounds;
        for (int64_t n = 0; n * size < length && n <= own; ++n) {
          const int64_t end = std::min(length, (n + 1) * size);
          bounds.push_back(DotInOrder(SignedParts(qkv.q.Row(b, h, i)),
                                      BoundsOfPage(qkv, b, qkv.KvHead(h), n * size, end)));
        }
        std::vector<int64_t> certain;
        if (own >= 0 && own < static_cast<int64_t>(bounds.size())) certain.push_back(own);
        std::vector<bool> keep(qkv.kv_len, false);
        for (const int64_t n : BestOf(bounds, most, certain)) {
          for (int64_t j = n * size; j < std::min(length, (n + 1) * size); ++j) keep[j] = true;
        }
        return keep;
      });
}

}  // namespace heed::reference::quest
