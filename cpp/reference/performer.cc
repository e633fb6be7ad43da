// Performer: products of positive random features estimate exp(scale q.k) without bias.
//
// Source: Choromanski et al. 2020, arXiv:2009.14794: FAVOR+, section 2.3, with the orthogonal rows
// of section 2.4, as long as rows of independent normal numbers.
#include <cmath>
#include <numbers>
#include <vector>

#include "dropout.h"
#include "recurrent.h"

namespace heed::reference::performer {
namespace {

using Row = std::vector<double>;

// Normal numbers by Box and Muller from Philox words: four columns a counter.
Row Normals(uint64_t seed, int64_t row, uint32_t purpose, int64_t width) {
  Row normals;
  for (int64_t c = 0; c < width; ++c) {
    const auto words =
        Philox({static_cast<uint32_t>(c / 4), static_cast<uint32_t>(row), purpose, 0},
               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const uint32_t first = words[c % 4 / 2 * 2], second = words[c % 4 / 2 * 2 + 1];
    const double radius = std::sqrt(-2 * std::log((first + 0.5) / 4294967296.0));
    const double angle = 2 * std::numbers::pi * ((second + 0.5) / 4294967296.0);
    normals.push_back(radius * (c % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }
  return normals;
}

double Dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

void Scale(Row& row, double factor) {
  for (double& x : row) x *= factor;
}

// Blocks of `width` orthogonal rows by Gram and Schmidt, twice; as floats, which the library has.
std::vector<Row> DrawProjection(uint64_t seed, int64_t features, int64_t width) {
  std::vector<Row> directions, projection;
  for (int64_t r = 0; r < features; ++r) {
    if (width == 0 || r % width == 0) directions.clear();
    Row row = Normals(seed, r, 0, width);
    for (int pass = 0; pass < 2; ++pass) {
      for (const Row& other : directions) {
        const double along = Dot(row, other);
        for (size_t c = 0; c < row.size(); ++c) row[c] -= along * other[c];
      }
    }
    Scale(row, 1 / std::sqrt(Dot(row, row)));
    directions.push_back(row);
    const Row lengths = Normals(seed, r, 1, width);
    Scale(row, std::sqrt(Dot(lengths, lengths)));
    for (double& x : row) x = static_cast<float>(x);
    projection.push_back(row);
  }
  return projection;
}

void CheckFeatures(int64_t features) {
  if (features < 1 || features > 65536) {
    throw Error(ErrorCode::kRange, "num_features must lie in [1, 65536]");
  }
}

std::vector<Row> ReadProjection(const Request& request, int64_t width) {
  const std::optional<int64_t> features = ReadCount(request, "num_features");
  const uint64_t seed = ReadSeed(request, "feature_seed");
  const std::optional<Array> given = ReadFloats(request, "projection", 2);
  if (!given) {
    CheckFeatures(features.value_or(256));
    return DrawProjection(seed, features.value_or(256), width);
  }
  if (features || FindParam(request, "feature_seed") != nullptr) {
    throw Error(ErrorCode::kOption, "projection, or num_features and feature_seed");
  }
  CheckFeatures(given->shape[2]);
  if (given->shape[3] != width) {
    throw Error(ErrorCode::kShape, "projection must be [num_features, head_dim]");
  }
  std::vector<Row> projection;
  for (int64_t f = 0; f < given->shape[2]; ++f) {
    const auto row = given->Row(0, 0, f);
    projection.emplace_back(row.begin(), row.end());
  }
  return projection;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r = Estimate(request);
  const double scale = ReadScale(request, qkv);
  const std::vector<Row> projection = ReadProjection(request, qkv.head_dim);
  r.log_features = true;
  r.feature_dim = static_cast<int64_t>(projection.size());
  r.features = [&](Row row, const Place& place) {
    // exp(scale q.k) is exp(x.y) of x and y, both by half of the scale.
    const double sign = place.side == Side::kQuery && scale < 0 ? -1 : 1;
    Scale(row, sign * std::sqrt(std::abs(scale)));
    Row logarithms;
    for (const Row& w : projection) {
      // A factor of a query cancels where weights are divided by their sum.
      const double half = place.side == Side::kQuery ? 0 : Dot(row, row) / 2;
      logarithms.push_back(Dot(w, row) - half);
    }
    return logarithms;
  };
  std::vector<Result> results = RunRecurrence(request, qkv, r);
  if (ReadFlag(request, "return_projection")) {
    results.push_back({"projection", 2, {r.feature_dim, qkv.head_dim, 1, 1}, {}});
    for (const Row& w : projection) {
      results.back().values.insert(results.back().values.end(), w.begin(), w.end());
    }
  }
  return results;
}

}  // namespace heed::reference::performer
