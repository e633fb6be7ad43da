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

int64_t CheckTargets(std::span<const int32_t> targets, int64_t rows, int64_t classes) {
  if (static_cast<int64_t>(targets.size()) != rows) {
    Fail(ErrorCode::kShape, "targets has {} ids; expected one for each of {} rows of logits",
         {targets.size(), rows});
  }
  int64_t counted = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] >= classes) {
      Fail(ErrorCode::kRange,
           "targets[{}] = {}; targets lie in [0, {}), or are ignored if negative",
           {i, targets[i], classes});
    }
    if (targets[i] >= 0) ++counted;
  }
  return counted;
}

void CheckHasForward(bool has_forward) {
  if (!has_forward) Fail(ErrorCode::kOption, "Backward() is called before Forward()");
}

}  // namespace heed::training
