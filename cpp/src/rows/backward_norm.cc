#include "src/rows/backward_norm.h"

#include <algorithm>
#include <cmath>

#include "src/linear/backward_linear.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/parallel/pieces.h"

namespace heed {
namespace {

// Of a row that counts; one at which nothing arrives has an inverse of 0.
struct Moments {
  double mean = 0, inverse = 0;
};

class NormWay {
 public:
  NormWay(Norm norm, const RowNormOptions& options, const TensorView<const float>& x,
          const TensorView<const float>& d_y)
      : centered_(norm == Norm::kLayer), o_(options), x_(x), d_y_(d_y), dim_(x.shape[3]) {
    WithMemoryErrors("the moments of rows",
                     [&] { moments_.resize(static_cast<size_t>(RowCount(x.shape))); });
  }

  // The moments of a row, from which WriteRow() and Term() go on.
  void FindMoments(int64_t row) {
    const float* x = RowOf(x_, row);
    const float* d = RowOf(d_y_, row);
    if (std::all_of(d, d + dim_, [](float g) { return g == 0; })) return;
    double mean = 0, squares = 0;
    for (int64_t c = 0; c < dim_ && centered_; ++c) mean += static_cast<double>(x[c]) / count();
    for (int64_t c = 0; c < dim_; ++c) {
      const double away = static_cast<double>(x[c]) - mean;
      squares += away * away;
    }
    moments_[static_cast<size_t>(row)] = {mean, 1 / std::sqrt(squares / count() + o_.epsilon)};
  }

  void WriteRow(int64_t row, float* to) const {
    const auto [mean, inverse] = moments_[static_cast<size_t>(row)];
    if (inverse == 0) return static_cast<void>(std::fill_n(to, dim_, 0.0f));
    const float* x = RowOf(x_, row);
    const float* d = RowOf(d_y_, row);
    double sum = 0, along = 0;
    for (int64_t c = 0; c < dim_; ++c) {
      sum += Scaled(d, c);
      along += Scaled(d, c) * (static_cast<double>(x[c]) - mean);
    }
    const double shift = centered_ ? sum / count() : 0;
    const double pull = along * inverse * inverse / count();
    for (int64_t c = 0; c < dim_; ++c) {
      const double away = static_cast<double>(x[c]) - mean;
      to[c] = static_cast<float>(inverse * (Scaled(d, c) - shift - away * pull));
    }
  }

  // What element c of a row adds to the gradient of its factor.
  double Term(int64_t row, int64_t c) const {
    const Moments& m = moments_[static_cast<size_t>(row)];
    if (m.inverse == 0) return 0;
    const double away = static_cast<double>(RowOf(x_, row)[c]) - m.mean;
    return static_cast<double>(RowOf(d_y_, row)[c]) * away * m.inverse;
  }

 private:
  double count() const { return static_cast<double>(dim_); }
  double Scaled(const float* d, int64_t c) const {
    const double g = static_cast<double>(d[c]);
    return o_.weight.empty() ? g : g * static_cast<double>(o_.weight[static_cast<size_t>(c)]);
  }

  const bool centered_;
  const RowNormOptions& o_;
  const TensorView<const float>& x_;
  const TensorView<const float>& d_y_;
  const int64_t dim_;
  ScratchVector<Moments> moments_;
};

}  // namespace

void NormBackward(Norm norm, const RowNormOptions& options, const TensorView<const float>& x,
                  const TensorView<const float>& d_y, const NormGradients& to, ThreadPool* pool) {
  const int64_t rows = RowCount(x.shape), dim = x.shape[3];
  NormWay way(norm, options, x, d_y);
  ForEachRows(rows, dim, pool, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      way.FindMoments(row);
      way.WriteRow(row, RowOf(to.d_x, row));
    }
  });
  if (!to.d_scale.empty()) {
    AddColumnSums(rows, dim, pool, to.d_scale.data(),
                  [&](int64_t i, int64_t c) { return way.Term(i, c); });
  }
  if (!to.d_bias.empty()) {
    AddColumnSums(rows, dim, pool, to.d_bias.data(),
                  [&](int64_t i, int64_t c) { return RowOf(d_y, i)[c]; });
  }
}

}  // namespace heed
