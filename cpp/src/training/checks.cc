#include "src/training/checks.h"

#include <limits>

namespace heed::training {
namespace {

// Products of two sizes and a small number then fit 64 bits.
constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

}  // namespace

void CheckCount(std::string_view name, int64_t value) {
  if (value < 1) Fail(ErrorCode::kRange, "{} = {}; it must be at least 1", {name, value});
  if (value > kMaxCount) {
    Fail(ErrorCode::kRange, "{} = {}; it must be at most {}", {name, value, kMaxCount});
  }
}

void CheckSize(std::string_view name, const Matrix& matrix, int64_t rows, int64_t dim) {
  if (matrix.rows() == rows && matrix.dim() == dim) return;
  Fail(ErrorCode::kShape, "{} has {} rows of {} values; expected {} of {}",
       {name, matrix.rows(), matrix.dim(), rows, dim});
}

void CheckHasForward(bool has_forward) {
  if (!has_forward) Fail(ErrorCode::kOption, "Backward() is called before Forward()");
}

}  // namespace heed::training
