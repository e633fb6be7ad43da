// heed::DrawRandomFeatures and heed::RandomFeatureVariance.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "heed/recurrent.h"
#include "hwy/highway.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/simd/philox-inl.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// What the numbers of a row are for.
enum class Purpose : uint32_t { kDirection = 0, kLength = 1 };

// Normal numbers of one row: word pairs of Philox by Box and Muller.
void DrawNormals(uint64_t seed, int64_t row, Purpose purpose, int64_t width, double* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<uint32_t, 1> d;
  const uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int64_t c = 0; c < width; c += 4) {
    hn::Vec<decltype(d)> counter[4] = {hn::Set(d, static_cast<uint32_t>(c / 4)),
                                       hn::Set(d, static_cast<uint32_t>(row)),
                                       hn::Set(d, static_cast<uint32_t>(purpose)), hn::Zero(d)};
    HWY_NAMESPACE::Philox(d, counter, key);
    for (int64_t pair = 0; pair < 2; ++pair) {
      const double first = (hn::GetLane(counter[2 * pair]) + 0.5) * 0x1p-32;
      const double second = (hn::GetLane(counter[2 * pair + 1]) + 0.5) * 0x1p-32;
      const double radius = std::sqrt(-2 * std::log(first)), angle = 2 * std::numbers::pi * second;
      const int64_t at = c + 2 * pair;
      if (at < width) to[at] = radius * std::cos(angle);
      if (at + 1 < width) to[at + 1] = radius * std::sin(angle);
    }
  }
}

double Length(const double* row, int64_t width) {
  double squares = 0;
  for (int64_t c = 0; c < width; ++c) squares += row[c] * row[c];
  return std::sqrt(squares);
}

// Takes off what lies along `count` unit rows, twice: once leaves a rest of rounding errors.
void Orthogonalise(const double* rows, int64_t count, int64_t width, double* row) {
  for (int64_t n = 0; n < 2 * count; ++n) {
    const double* other = rows + n % count * width;
    double product = 0;
    for (int64_t c = 0; c < width; ++c) product += row[c] * other[c];
    for (int64_t c = 0; c < width; ++c) row[c] -= product * other[c];
  }
  const double length = Length(row, width);
  for (int64_t c = 0; c < width; ++c) row[c] /= length;
}

void Draw(uint64_t seed, const TensorView<float>& projection) {
  const int64_t features = projection.shape[2], width = projection.shape[3];
  ScratchVector<double> block(static_cast<size_t>(std::min(features, width) * width));
  ScratchVector<double> lengths(static_cast<size_t>(width));
  for (int64_t r = 0; r < features && width > 0; ++r) {
    double* row = block.data() + r % width * width;
    DrawNormals(seed, r, Purpose::kDirection, width, row);
    Orthogonalise(block.data(), r % width, width, row);
    DrawNormals(seed, r, Purpose::kLength, width, lengths.data());
    const double length = Length(lengths.data(), width);
    for (int64_t c = 0; c < width; ++c) {
      projection(0, 0, r, c) = static_cast<float>(length * row[c]);
    }
  }
}

}  // namespace

void DrawRandomFeatures(uint64_t seed, TensorView<float> projection) {
  WithMemoryErrors("random features", [&] {
    const int64_t features = projection.shape[2];
    if (features < 1 || features > kMaxRandomFeatures) {
      Fail(ErrorCode::kRange, "num_features = {}; it must lie in [1, {}]",
           {features, kMaxRandomFeatures});
    }
    CheckOutput("projection", StoredOutput(projection), {1, 1, features, projection.shape[3]},
                "[1, 1, num_features, head_dim]");
    Draw(seed, projection);
  });
}

double RandomFeatureVariance(std::span<const float> q, std::span<const float> k, double scale,
                             int64_t num_features) {
  if (q.size() != k.size()) {
    Fail(ErrorCode::kShape, "q has {} values and k {}; expected as many", {q.size(), k.size()});
  }
  CheckFinite("scale", scale);
  if (num_features < 1) {
    Fail(ErrorCode::kRange, "num_features = {}; it must be at least 1", {num_features});
  }
  const double sign = scale < 0 ? -1 : 1;
  double squares = 0;
  for (size_t c = 0; c < q.size(); ++c) {
    const double sum = sign * double{q[c]} + double{k[c]};
    squares += sum * sum;
  }
  return std::expm1(std::abs(scale) * squares) / static_cast<double>(num_features);
}

}  // namespace heed
