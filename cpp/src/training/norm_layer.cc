#include <cmath>

#include "heed/rows.h"
#include "heed/training/layers.h"
#include "src/rows/backward_norm.h"
#include "src/training/checks.h"

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
  WithMemoryErrors("a norm", [&] {
    CheckCount("dim", options.dim);
    if (!(options.epsilon > 0) || !std::isfinite(options.epsilon)) {
      Fail(ErrorCode::kRange, "epsilon = {}; it must be positive and finite", {options.epsilon});
    }
    weight_ = &parameters.Add(name + ".weight", {options.dim}, {.mean = 1});
    if (options.norm == Norm::kLayer) bias_ = &parameters.Add(name + ".bias", {options.dim}, {});
  });
}

const Matrix& NormLayer::Forward(const Matrix& x, ThreadPool* pool) {
  WithMemoryErrors("a norm", [&] {
    if (x.dim() % options_.dim != 0) {
      Fail(ErrorCode::kShape, "x has rows of {} values; expected a multiple of {}",
           {x.dim(), options_.dim});
    }
    x_ = nullptr;
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
  });
  return y_;
}

const Matrix& NormLayer::Backward(const Matrix& d_y, ThreadPool* pool) {
  WithMemoryErrors("a norm", [&] {
    CheckHasForward(x_ != nullptr);
    CheckSize("d_y", d_y, y_.rows(), y_.dim());
    d_x_.Resize(d_y.rows(), d_y.dim());
    const auto groups = [&](const auto& view) { return Groups(view, options_.dim); };
    NormGradients to = {groups(d_x_.View()), weight_->gradient, {}};
    if (bias_ != nullptr) to.d_bias = bias_->gradient;
    NormBackward(options_.norm, {weight_->value, {}, options_.epsilon}, groups(x_->View()),
                 groups(d_y.View()), to, pool);
  });
  return d_x_;
}

}  // namespace heed::training
