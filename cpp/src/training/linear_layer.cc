#include <cmath>

#include "heed/linear.h"
#include "heed/training/layers.h"
#include "src/linear/backward_linear.h"
#include "src/parallel/pieces.h"
#include "src/training/checks.h"

namespace heed::training {
namespace {

TensorView<const float> ViewOf(const Parameter& weight) {
  return MatrixView<const float>(weight.value.data(), weight.shape[0], weight.shape[1]);
}

}  // namespace

LinearLayer::LinearLayer(ParameterSet& parameters, const std::string& name,
                         const LinearLayerOptions& options) {
  WithMemoryErrors("a linear map", [&] {
    CheckCount("in_dim", options.in_dim);
    CheckCount("out_dim", options.out_dim);
    const double deviation =
        options.deviation.value_or(1 / std::sqrt(static_cast<double>(options.in_dim)));
    weight_ = &parameters.Add(name + ".weight", {options.out_dim, options.in_dim},
                              {.deviation = deviation});
    if (options.bias) {
      bias_ = &parameters.Add(name + ".bias", {options.out_dim}, {.mean = options.bias_start});
    }
  });
}

LinearLayer::LinearLayer(Parameter& weight) : weight_(&weight) {
  WithMemoryErrors("a linear map", [&] {
    if (weight.shape.size() == 2) return;
    Fail(ErrorCode::kShape, "{} has {} extents; a weight has 2",
         {weight.name, weight.shape.size()});
  });
}

const Matrix& LinearLayer::Forward(const Matrix& x, ThreadPool* pool) {
  WithMemoryErrors("a linear map", [&] {
    CheckSize("x", x, x.rows(), weight_->shape[1]);
    x_ = nullptr;
    y_.Resize(x.rows(), weight_->shape[0]);
    std::span<const float> bias;
    if (bias_ != nullptr) bias = bias_->value;
    Linear(x.View(), ViewOf(*weight_), bias, y_.View(), pool);
    x_ = &x;
  });
  return y_;
}

const Matrix& LinearLayer::Backward(const Matrix& d_y, ThreadPool* pool) {
  WithMemoryErrors("a linear map", [&] {
    CheckHasForward(x_ != nullptr);
    CheckSize("d_y", d_y, y_.rows(), y_.dim());
    AddWeightGradient(d_y, pool);
    if (bias_ != nullptr) {
      AddColumnSums(d_y.rows(), d_y.dim(), pool, bias_->gradient.data(),
                    [&](int64_t i, int64_t c) { return d_y.Row(i)[c]; });
    }
    d_x_.Resize(x_->rows(), x_->dim());
    Linear(d_y.View(), TransposedView(ViewOf(*weight_)), {}, d_x_.View(), pool);
  });
  return d_x_;
}

void LinearLayer::AddWeightGradient(const Matrix& d_y, ThreadPool* pool) {
  transposed_.Resize(d_y.dim(), d_y.rows());
  TransposeRows(d_y.View(), transposed_.data(), pool);
  product_.Resize(weight_->shape[0], weight_->shape[1]);
  const Matrix& left = transposed_;
  Bmm(left.View(), x_->View(), product_.View(), pool);
  AddTo(product_.data(), product_.size(), pool, weight_->gradient.data());
}

}  // namespace heed::training
