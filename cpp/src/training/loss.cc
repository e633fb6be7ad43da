#include "heed/training/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "heed/rows.h"
#include "src/parallel/pieces.h"
#include "src/training/checks.h"

namespace heed::training {
namespace {

// -log of the weight of `target`. The largest weight is never small, so its logarithm is exact
// where that of a small one would not be: log sum exp(x) = x_m - log p_m.
double RowLoss(const float* logits, const float* weights, int64_t classes, int32_t target) {
  const float* largest = std::max_element(logits, logits + classes);
  const double log_weight = std::log(static_cast<double>(weights[largest - logits]));
  return static_cast<double>(*largest) - static_cast<double>(logits[target]) - log_weight;
}

// (weights - one-hot) * factor, in place.
void ToGradient(float* weights, int64_t classes, int32_t target, float factor) {
  weights[target] -= 1;
  for (int64_t c = 0; c < classes; ++c) weights[c] *= factor;
}

}  // namespace

Loss CrossEntropy(const Matrix& logits, std::span<const int32_t> targets, Matrix& d_logits,
                  ThreadPool* pool) {
  return WithMemoryErrors("a loss", [&] {
    if (&logits == &d_logits) Fail(ErrorCode::kOption, "d_logits is logits, which are read");
    const int64_t classes = logits.dim(), counted = CheckTargets(targets, logits.rows(), classes);
    std::vector<double> losses;
    MakeRoom("losses", logits.rows(), losses);
    d_logits.Resize(logits.rows(), classes);
    Softmax(logits.View(), d_logits.View(), 3, pool);
    const float factor = 1 / static_cast<float>(std::max<int64_t>(1, counted));
    ForEachRows(logits.rows(), classes, pool, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int32_t target = targets[static_cast<size_t>(i)];
        float* row = d_logits.Row(i);
        if (target < 0) {
          std::fill_n(row, classes, 0.0f);
          continue;
        }
        losses[static_cast<size_t>(i)] = RowLoss(logits.Row(i), row, classes, target);
        ToGradient(row, classes, target, factor);
      }
    });
    const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
    return Loss{sum / static_cast<double>(std::max<int64_t>(1, counted)), counted};
  });
}

Loss MeanSquaredError(const Matrix& y, const Matrix& target, Matrix& d_y, ThreadPool* pool) {
  return WithMemoryErrors("a loss", [&] {
    CheckSize("target", target, y.rows(), y.dim());
    const int64_t count = y.size();
    const double share = 1 / static_cast<double>(std::max<int64_t>(1, count));
    std::vector<double> sums;
    MakeRoom("the sums of squares", PiecesOf(count, kTaskElements), sums);
    d_y.Resize(y.rows(), y.dim());
    ForEachPiece(count, kTaskElements, pool, [&](int64_t begin, int64_t end, int64_t piece) {
      double sum = 0;
      for (int64_t n = begin; n < end; ++n) {
        const double away =
            static_cast<double>(y.data()[n]) - static_cast<double>(target.data()[n]);
        d_y.data()[n] = static_cast<float>(2 * away * share);
        sum += away * away;
      }
      sums[static_cast<size_t>(piece)] = sum;
    });
    return Loss{std::accumulate(sums.begin(), sums.end(), 0.0) * share, count};
  });
}

}  // namespace heed::training
