// Functions of rows after validation.
#ifndef HEED_SRC_ROWS_PROBLEM_H_
#define HEED_SRC_ROWS_PROBLEM_H_

#include <cstdint>
#include <span>

#include "heed/rows.h"

namespace heed {

enum class SoftmaxResult { kWeights, kLogs };

struct SoftmaxProblem {
  TensorView<const float> x;
  TensorView<float> out;
  SoftmaxResult result = SoftmaxResult::kWeights;
  size_t axis = 3;
  // Only for weights along axis 3.
  std::span<const int32_t> lengths;  // empty, [batch] or [batch, len]
  TensorView<const uint8_t> keep;  // absent, or of the shape of x with stride 0 where it broadcasts

  // How many entries of a row the lengths leave.
  int64_t Length(int64_t b, int64_t i) const {
    if (lengths.empty()) return x.shape[3];
    const bool per_row = lengths.size() != static_cast<size_t>(x.shape[0]);
    return lengths[static_cast<size_t>(per_row ? b * x.shape[2] + i : b)];
  }
};

enum class NormKind { kLayer, kRms };

struct NormProblem {
  TensorView<const float> x;
  TensorView<float> out;
  NormKind kind;
  RowNormOptions options;
  RowStatistics statistics;
};

// Run validated problems.
void RunRows(const SoftmaxProblem& problem, ThreadPool* pool);
void RunRows(const NormProblem& problem, ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_ROWS_PROBLEM_H_
