#include "src/distributed/row_sums.h"

#include <algorithm>

namespace heed::distributed {

RowSums::RowSums(const Extents& shape)
    : shape_(shape), values_(static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3])) {
  std::fill_n(values_.data(), values_.size(), 0.0);
}

void RowSums::Add(int64_t begin, const TensorView<const float>& part) {
  for (int64_t b = 0; b < shape_[0]; ++b) {
    for (int64_t h = 0; h < shape_[1]; ++h) {
      for (int64_t i = 0; i < part.shape[2]; ++i) {
        double* sums = values_.data() + Row(b, h, begin + i);
        const float* terms = &part(b, h, i, 0);
        for (int64_t d = 0; d < shape_[3]; ++d) sums[d] += static_cast<double>(terms[d]);
      }
    }
  }
}

void RowSums::Write(const StoredOutput& to) const {
  for (int64_t b = 0; b < shape_[0]; ++b) {
    for (int64_t h = 0; h < shape_[1]; ++h) {
      for (int64_t i = 0; i < shape_[2]; ++i) {
        const double* sums = values_.data() + Row(b, h, i);
        void* row = to.Row(b, h, i);
        for (int64_t d = 0; d < shape_[3]; ++d) StoreElement(sums[d], to.dtype, row, d);
      }
    }
  }
}

}  // namespace heed::distributed
