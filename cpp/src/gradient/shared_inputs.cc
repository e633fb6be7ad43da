#include "src/gradient/shared_inputs.h"

#include "heed/tensor.h"
#include "src/gradient/request.h"

namespace heed {
namespace {

TensorView<float> Room(std::vector<float>& memory, const Extents& shape) {
  memory.resize(static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  return Contiguous(memory.data(), shape[0], shape[1], shape[2], shape[3]);
}

}  // namespace

SharedGradients::SharedGradients(const AttentionRequest& r, std::span<const NamedTensor> gradients,
                                 AttentionGradients& to)
    : concat_(FindTensor(gradients, "concat_weight")),
      location_(FindTensor(gradients, "location_weight")) {
  if (concat_ != nullptr) {
    to.d_query_weight = Room(first_, r.options.query_weight.shape);
    to.d_key_weight = Room(second_, r.options.key_weight.shape);
  }
  if (location_ != nullptr) {
    location_shape_ = r.k.shape;
    to.d_k = Room(first_, r.k.shape);
  }
}

void SharedGradients::Write() const {
  if (concat_ != nullptr) WriteConcat();
  if (location_ != nullptr) WriteLocation();
}

void SharedGradients::WriteConcat() const {
  float* to = static_cast<float*>(concat_->data);
  const size_t rows = static_cast<size_t>(concat_->shape[0]);
  for (size_t r = 0; r < rows; ++r) {
    for (const std::vector<float>* part : {&first_, &second_}) {
      const size_t cols = part->size() / rows;
      to = std::copy_n(part->data() + r * cols, cols, to);
    }
  }
}

// Sums over batch entries, and over heads where they share it, in ascending order.
void SharedGradients::WriteLocation() const {
  const auto& [batch, heads, len, dim] = location_shape_;
  const int64_t tables = location_->rank == 2 ? 1 : heads;
  float* to = static_cast<float*>(location_->data);
  for (int64_t n = 0; n < tables * len * dim; ++n) {
    double sum = 0;
    for (int64_t from = n; from < batch * heads * len * dim; from += tables * len * dim) {
      sum += static_cast<double>(first_[static_cast<size_t>(from)]);
    }
    to[n] = static_cast<float>(sum);
  }
}

}  // namespace heed
