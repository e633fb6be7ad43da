#include "src/selective/hash.h"

#include <algorithm>
#include <cstddef>

namespace heed {
namespace {

int32_t BucketOf(const double* x, int64_t count) {
  double best = x[0];
  int64_t bucket = 0;
  for (int64_t n = 1; n < 2 * count; ++n) {
    const double product = n < count ? x[n] : -x[n - count];
    if (product > best) {
      best = product;
      bucket = n;
    }
  }
  return static_cast<int32_t>(bucket);
}

void FindBuckets(const TensorView<const float>& q, int64_t len, const DotPanels& rotations,
                 HashScratch& s) {
  const int64_t count = rotations.count();
  const size_t stride = s.products.size() / kDotRows;
  for (int64_t first = 0; first < len; first += static_cast<int64_t>(kDotRows)) {
    const float* rows[kDotRows] = {};
    const size_t num_rows = std::min(kDotRows, static_cast<size_t>(len - first));
    for (size_t r = 0; r < num_rows; ++r) {
      rows[r] = q.data + (first + static_cast<int64_t>(r)) * q.strides[2];
    }
    ExactDots(rows, num_rows, rotations, count, s.products.data(), stride);
    for (size_t r = 0; r < num_rows; ++r) {
      s.buckets[static_cast<size_t>(first) + r] = BucketOf(s.products.data() + r * stride, count);
    }
  }
}

}  // namespace

HashScratch::HashScratch(const HashRule& rule, int64_t len)
    : products(kDotRows * RoundUp(static_cast<size_t>(rule.hash_buckets), DotPanels::kPanel)),
      buckets(static_cast<size_t>(len)),
      starts(static_cast<size_t>(rule.hash_buckets) + 1) {}

void HashHead(const TensorView<const float>& q, int64_t len, const DotPanels& rotations,
              const HashRule& rule, HashScratch& s, HashPlace* places, int32_t* tokens) {
  std::fill(s.buckets.begin(), s.buckets.end(), 0);
  if (rule.hash_buckets > 1) FindBuckets(q, len, rotations, s);
  const auto bucket = [&](int64_t t) {
    return static_cast<size_t>(s.buckets[static_cast<size_t>(t)]);
  };
  std::fill(s.starts.begin(), s.starts.end(), 0);
  for (int64_t t = 0; t < len; ++t) ++s.starts[bucket(t) + 1];
  for (size_t n = 1; n < s.starts.size(); ++n) s.starts[n] += s.starts[n - 1];
  // Afterwards starts[n] is the end of bucket n.
  for (int64_t t = 0; t < len; ++t) {
    places[t].place = s.starts[bucket(t)]++;
    tokens[places[t].place] = static_cast<int32_t>(t);
  }
  for (int64_t t = 0; t < len; ++t) {
    const int64_t chunk = places[t].place / rule.chunk;
    const int64_t begin = bucket(t) == 0 ? 0 : s.starts[bucket(t) - 1];
    const int64_t end = s.starts[bucket(t)];
    places[t].begin = static_cast<int32_t>(std::max(begin, (chunk - 1) * rule.chunk));
    places[t].end = static_cast<int32_t>(std::min(end, (chunk + 1) * rule.chunk));
  }
}

}  // namespace heed
