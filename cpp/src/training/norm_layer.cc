#include <cmath>

#include "heed/rows.h"
#include "heed/training/layers.h"
#include "src/training/checks.h"
#include "src/training/parallel.h"

namespace heed::training {
namespace {

// The same rows, one group of `dim` values after the other.
template <class View>
View Groups(const View& view, int64_t dim) {
  const int64_t rows = view.size() / dim;
  return {view.data, {1, 1, rows, dim}, {rows * dim, rows * dim, dim, 1}};
}

}  // namespace

NormLayer::NormLayer(ParameterSet& parameters, const std::string& name,
                     const NormLayerOptions& options)
    : options_(options) {
  CheckCount("dim", options.dim);
  if (!(options.epsilon > 0) || !std::isfinite(options.epsilon)) {
    Fail(ErrorCode::kRange, "epsilon = {}; it must be positive and finite", {options.epsilon});
  }
  weight_ = &parameters.Add(name + ".weight", {options.dim}, {.mean = 1});
  if (options.norm == Norm::kLayer) bias_ = &parameters.Add(name + ".bias", {options.dim}, {});
}

const Matrix& NormLayer::Forward(const Matrix& x, ThreadPool* pool) {
  if (x.dim() % options_.dim != 0) {
    Fail(ErrorCode::kShape, "x has rows of {} values; expected a multiple of {}",
         {x.dim(), options_.dim});
  }
  y_.Resize(x.rows(), x.dim());
  RowNormOptions options = {weight_->value, {}, options_.epsilon};
  if (bias_ != nullptr) options.bias = bias_->value;
  const auto from = Groups(x.View(), options_.dim);
  const auto to = Groups(y_.View(), options_.dim);
  if (options_.norm == Norm::kLayer) {
    LayerNorm(from, options, to, {}, pool);
  } else {
    RmsNorm(from, options, to, pool);
  }
  x_ = &x;
  return y_;
}

// Of groups [begin, end), and their moments for the gradients of the factors.
void NormLayer::InputGradients(const Matrix& d_y, int64_t begin, int64_t end) {
  const int64_t dim = options_.dim;
  const bool centered = options_.norm == Norm::kLayer;
  const double count = static_cast<double>(dim);
  for (int64_t group = begin; group < end; ++group) {
    const float* x = x_->data() + group * dim;
    const float* d = d_y.data() + group * dim;
    const float* w = weight_->value.data();
    double mean = 0, squares = 0, sum = 0, along = 0;
    for (int64_t c = 0; c < dim && centered; ++c) mean += static_cast<double>(x[c]) / count;
    for (int64_t c = 0; c < dim; ++c) {
      const double away = static_cast<double>(x[c]) - mean;
      const double g = static_cast<double>(d[c]) * static_cast<double>(w[c]);
      squares += away * away;
      sum += g;
      along += g * away;
    }
    const double inverse = 1 / std::sqrt(squares / count + options_.epsilon);
    const double shift = centered ? sum / count : 0;
    const double pull = along * inverse * inverse / count;
    for (int64_t c = 0; c < dim; ++c) {
      const double g = static_cast<double>(d[c]) * static_cast<double>(w[c]);
      const double away = static_cast<double>(x[c]) - mean;
      d_x_.data()[group * dim + c] = static_cast<float>(inverse * (g - shift - away * pull));
    }
    moments_[static_cast<size_t>(group)] = {mean, inverse};
  }
}

const Matrix& NormLayer::Backward(const Matrix& d_y, ThreadPool* pool) {
  CheckHasForward(x_);
  CheckSize("d_y", d_y, y_.rows(), y_.dim());
  const int64_t dim = options_.dim, groups = d_y.size() / dim;
  d_x_.Resize(d_y.rows(), d_y.dim());
  MakeRoom("moments", groups, moments_);
  ForEachRows(groups, dim, pool,
              [&](int64_t begin, int64_t end) { InputGradients(d_y, begin, end); });
  AddColumnSums(groups, dim, pool, weight_->gradient.data(), [&](int64_t i, int64_t c) {
    const Moments& m = moments_[static_cast<size_t>(i)];
    const int64_t at = i * dim + c;
    return static_cast<double>(d_y.data()[at]) * (static_cast<double>(x_->data()[at]) - m.mean) *
           m.inverse;
  });
  if (bias_ != nullptr) {
    AddColumnSums(groups, dim, pool, bias_->gradient.data(),
                  [&](int64_t i, int64_t c) { return d_y.data()[i * dim + c]; });
  }
  return d_x_;
}

}  // namespace heed::training
