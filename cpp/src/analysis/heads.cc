// heed::HeadImportance and heed::PruneHeads.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "heed/analysis.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// |o W|^2, where W are columns [first, first + width) of w_o, or |o|^2.
double SquaredContribution(const float* o, int64_t width, const TensorView<const float>& w_o,
                           int64_t first) {
  double sum = 0;
  if (!w_o.has_value()) {
    for (int64_t d = 0; d < width; ++d) {
      sum += static_cast<double>(o[d]) * static_cast<double>(o[d]);
    }
    return sum;
  }
  for (int64_t e = 0; e < w_o.shape[2]; ++e) {
    double projected = 0;
    for (int64_t d = 0; d < width; ++d) {
      projected += static_cast<double>(o[d]) * static_cast<double>(w_o(0, 0, e, first + d));
    }
    sum += projected * projected;
  }
  return sum;
}

}  // namespace

std::vector<float> HeadImportance(TensorView<const float> output, TensorView<const float> w_o) {
  return WithMemoryErrors("the importance of heads", [&] {
    CheckInput("output", output);
    const auto [batch, num_heads, len, width] = output.shape;
    if (w_o.has_value()) {
      CheckInput("w_o", w_o);
      CheckShape("w_o", w_o.shape, {1, 1, w_o.shape[2], num_heads * width},
                 "[embed_dim, num_heads * head_dim_v]");
    }
    std::vector<float> importance;
    for (int64_t h = 0; h < num_heads; ++h) {
      double sum = 0;
      for (int64_t b = 0; b < batch && width > 0; ++b) {
        for (int64_t i = 0; i < len; ++i) {
          sum += std::sqrt(SquaredContribution(&output(b, h, i, 0), width, w_o, h * width));
        }
      }
      const double rows = static_cast<double>(std::max<int64_t>(1, batch * len));
      importance.push_back(static_cast<float>(sum / rows));
    }
    return importance;
  });
}

std::vector<uint8_t> PruneHeads(std::span<const float> importance, int64_t num_kept) {
  const int64_t num_heads = static_cast<int64_t>(importance.size());
  if (num_kept < 0 || num_kept > num_heads) {
    Fail(ErrorCode::kRange, "num_kept = {}; it lies in [0, {}], the number of heads",
         {num_kept, num_heads});
  }
  for (const float x : importance) CheckFinite("importance", static_cast<double>(x));
  std::vector<size_t> order = VectorOf("places of heads", num_heads, size_t{0});
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return importance[a] > importance[b]; });
  std::vector<uint8_t> kept = VectorOf("marks of heads", num_heads, uint8_t{0});
  for (size_t n = 0; n < static_cast<size_t>(num_kept); ++n) kept[order[n]] = 1;
  return kept;
}

}  // namespace heed
