// The plan of a call that the row kernel runs, made on the host: when it is needed, its parameters
// and its memory. No CUDA here.
#ifndef HEED_SRC_CUDA_ROW_PLAN_H_
#define HEED_SRC_CUDA_ROW_PLAN_H_

#include <cstdint>
#include <vector>

#include "src/cuda/plan.h"
#include "src/cuda/row_params.h"

namespace heed::cuda {

// Does the call ask for something that the tile kernel does not do?
bool NeedsRows(const DeviceProblem& call);

// Dimensions of q, k and v, and hidden_dim, that the row kernel takes: two rows of so many floats
// fit the shared memory that every block has.
inline constexpr int64_t kMaxRowDim = 4096;

class RowPlan {
 public:
  RowPlan(const DeviceProblem& call, int64_t processors);

  bool IsEmpty() const { return params_.num_rows == 0; }
  int64_t num_slots() const { return params_.num_slots; }
  // Keys that the first kernel multiplies by key_weight; 0 without one.
  int64_t num_projections() const;

  // What the device needs besides the tensors.
  const std::vector<char>& shared_arrays() const { return shared_.host_arrays(); }
  const std::vector<char>& row_arrays() const { return arrays_.bytes(); }
  int64_t scratch_floats() const;

  // The parameters, given where copies of the arrays and scratch_floats() floats lie.
  RowParams Params(const char* shared_arrays, const char* row_arrays, float* scratch,
                   Fault* fault) const;

 private:
  void SetScore(const AttentionProblem& p);
  void SetDistances(const AttentionProblem& p);
  void SetOutputs(const AttentionProblem& p);

  AttentionPlan shared_;  // for the parameters that all kernels have
  RowParams params_{};
  HostArrays arrays_;
  // Offsets in arrays_; -1: absent.
  int64_t width_ = -1, head_scale_ = -1, score_bias_ = -1, relative_ = -1, buckets_ = -1;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ROW_PLAN_H_
