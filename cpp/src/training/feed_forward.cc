#include "heed/training/layers.h"
#include "src/parallel/pieces.h"
#include "src/rows/activation.h"
#include "src/rows/backward_activation.h"
#include "src/training/checks.h"

namespace heed::training {
namespace {

LinearLayerOptions Into(const FeedForwardOptions& o) {
  return {.in_dim = o.embed_dim, .out_dim = o.ff_dim, .bias = o.bias};
}

void Multiply(const Matrix& a, const Matrix& b, Matrix& to, ThreadPool* pool) {
  to.Resize(a.rows(), a.dim());
  ForEachPiece(a.size(), kTaskElements, pool, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t n = begin; n < end; ++n) to.data()[n] = a.data()[n] * b.data()[n];
  });
}

}  // namespace

FeedForward::FeedForward(ParameterSet& parameters, const std::string& name,
                         const FeedForwardOptions& options) try
    : options_(options),
      up_(parameters, name + ".up_proj", Into(options)),
      down_(parameters, name + ".down_proj",
            {.in_dim = options.ff_dim,
             .out_dim = options.embed_dim,
             .bias = options.bias,
             .deviation = options.down_deviation}) {
  if (options.gated) gate_.emplace(parameters, name + ".gate_proj", Into(options));
} catch (...) {
  RethrowMemoryError("a feed-forward network");
}

const Matrix& FeedForward::Forward(const Matrix& x, ThreadPool* pool) {
  return *WithMemoryErrors("a feed-forward network", [&] {
    ups_ = nullptr;
    const Matrix& ups = up_.Forward(x, pool);
    gates_ = gate_ ? &gate_->Forward(x, pool) : &ups;
    activated_.Resize(ups.rows(), ups.dim());
    Activate(options_.activation, gates_->data(), gates_->size(), activated_.data(), pool);
    if (gate_) Multiply(activated_, ups, hidden_, pool);
    const Matrix& y = down_.Forward(gate_ ? hidden_ : activated_, pool);
    ups_ = &ups;
    return &y;
  });
}

const Matrix& FeedForward::Backward(const Matrix& d_y, ThreadPool* pool) {
  return *WithMemoryErrors("a feed-forward network", [&]() -> const Matrix* {
    CheckHasForward(ups_ != nullptr);
    const Matrix& d_hidden = down_.Backward(d_y, pool);
    d_gate_.Resize(d_hidden.rows(), d_hidden.dim());
    if (!gate_) {
      ActivateBackward(options_.activation, ups_->data(), d_hidden.data(), d_hidden.size(),
                       d_gate_.data(), pool);
      return &up_.Backward(d_gate_, pool);
    }
    Multiply(d_hidden, activated_, d_up_, pool);
    Multiply(d_hidden, *ups_, d_gate_, pool);
    ActivateBackward(options_.activation, gates_->data(), d_gate_.data(), d_gate_.size(),
                     d_gate_.data(), pool);
    d_x_ = up_.Backward(d_up_, pool);
    AddTo(gate_->Backward(d_gate_, pool).data(), d_x_.size(), pool, d_x_.data());
    return &d_x_;
  });
}

}  // namespace heed::training
