// cosFormer: weights relu(q).relu(k) cos(pi (i - j) / (2 M)), split by the cosine of a difference.
//
// Source: Qin et al. 2022, arXiv:2202.08791, section 3.2.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "recurrent.h"

namespace heed::reference::cosformer {
std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r = Estimate(request);
  r.scale = ReadScale(request, qkv, 1.0);
  if (r.causal && qkv.q_len != qkv.kv_len) {
    throw Error(ErrorCode::kShape, "q_len and kv_len must be the same when causal");
  }
  const std::vector<int64_t> offsets = ReadOffsets(request, qkv.batch);
  const int64_t len = std::max({qkv.q_len, qkv.kv_len, int64_t{1}});
  const int64_t last = std::max(*std::ranges::max_element(offsets), int64_t{0});
  const int64_t period = ReadCount(request, "period").value_or(last + len);
  if (period < 1) throw Error(ErrorCode::kRange, "period must be at least 1");
  for (const int64_t offset : offsets) {
    const int64_t end = offset + std::max(qkv.q_len, qkv.kv_len);
    if (qkv.batch > 0 && (offset < 0 || end > period)) {
      throw Error(ErrorCode::kRange, "positions must lie in [0, period)");
    }
  }
  r.feature_dim = 2 * qkv.head_dim;
  r.features = [&](std::vector<double> row, const Place& place) {
    const double angle = std::numbers::pi * static_cast<double>(offsets[place.b] + place.t) /
                         (2 * static_cast<double>(period));
    std::vector<double> features;
    for (const double factor : {std::cos(angle), std::sin(angle)}) {
      for (const double x : row) features.push_back((x < 0 ? 0 : x) * factor);
    }
    return features;
  };
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::cosformer
