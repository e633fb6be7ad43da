// Rows in float64, to which rows of parts are added.
#ifndef HEED_SRC_DISTRIBUTED_ROW_SUMS_H_
#define HEED_SRC_DISTRIBUTED_ROW_SUMS_H_

#include <cstddef>
#include <cstdint>

#include "heed/tensor.h"
#include "src/distributed/kept_array.h"

namespace heed::distributed {

// Element d of a row of a storage type, rounded to it once more.
inline void StoreElement(double value, DType dtype, void* row, int64_t d) {
  const float rounded = static_cast<float>(value);
  switch (dtype) {
    case DType::kFloat16:
      static_cast<Float16*>(row)[d] = ToFloat16(rounded);
      return;
    case DType::kBFloat16:
      static_cast<BFloat16*>(row)[d] = ToBFloat16(rounded);
      return;
    default:
      static_cast<float*>(row)[d] = rounded;
  }
}

class RowSums {
 public:
  // Zeros.
  explicit RowSums(const Extents& shape);

  // Adds to rows [begin, begin + part.shape[2]) of every head.
  void Add(int64_t begin, const TensorView<const float>& part);
  void Write(const StoredOutput& to) const;

 private:
  size_t Row(int64_t b, int64_t h, int64_t i) const {
    return static_cast<size_t>(((b * shape_[1] + h) * shape_[2] + i) * shape_[3]);
  }

  Extents shape_;
  KeptArray<double> values_;
};

}  // namespace heed::distributed

#endif  // HEED_SRC_DISTRIBUTED_ROW_SUMS_H_
