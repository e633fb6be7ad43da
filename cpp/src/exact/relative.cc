#include "src/exact/relative.h"

#include <cmath>

namespace heed {
namespace {

// DeBERTa's buckets: exact up to a half of `buckets`, then logarithmic, with the distance's sign.
int64_t LogBucket(int64_t distance, int64_t buckets, int64_t max_distance) {
  const int64_t middle = buckets / 2;
  const int64_t size = std::abs(distance);
  if (size <= middle) return distance;
  const double half = static_cast<double>(middle);
  const double step = std::log(static_cast<double>(size) / half) /
                      std::log(static_cast<double>(max_distance - 1) / half) * (half - 1);
  const int64_t bucket = static_cast<int64_t>(std::ceil(step)) + middle;
  return distance < 0 ? -bucket : bucket;
}

// Beyond this distance a table has no further rows.
int64_t LastDistance(RelativeRows kind, int64_t num_rows, int64_t max_distance) {
  return kind == RelativeRows::kLogSpan ? max_distance : num_rows / 2;
}

}  // namespace

int64_t RelativeRow(RelativeRows kind, int64_t num_rows, int64_t max_distance, int64_t distance) {
  const int64_t half = num_rows / 2;
  if (kind == RelativeRows::kClip) return half + std::clamp(distance, -half, half);
  int64_t from_key = -distance;
  if (kind == RelativeRows::kLogSpan) from_key = LogBucket(from_key, half, max_distance);
  return std::clamp<int64_t>(from_key + half, 0, num_rows - 1);
}

RelativeIndex::RelativeIndex(const AttentionProblem& p)
    : reversed_(p.options.relative_rows != RelativeRows::kClip),
      num_rows_(p.relative_table_rows),
      reach_(std::min(
          LastDistance(p.options.relative_rows, num_rows_, p.options.relative_max_distance),
          FarthestDistance(p))) {
  for (int64_t n = -kMargin; n < 2 * reach_ + 2 * kMargin; ++n) {
    const int64_t distance = std::clamp(n - reach_, -reach_, reach_);
    const int64_t row =
        RelativeRow(p.options.relative_rows, num_rows_, p.options.relative_max_distance, distance);
    rows_.push_back(static_cast<int32_t>(reversed_ ? num_rows_ - 1 - row : row));
  }
}

}  // namespace heed
