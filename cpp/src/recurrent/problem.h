// What the recurrent loop works on: the caller's arguments after validation.
#ifndef HEED_SRC_RECURRENT_PROBLEM_H_
#define HEED_SRC_RECURRENT_PROBLEM_H_

#include "heed/recurrent.h"

namespace heed {

struct RecurrentProblem {
  TensorView<const float> q, k, v;
  RecurrentOptions options;  // log_decay and beta have stride 0 where they broadcast
  RecurrentOutputs outputs;
  int64_t batch = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t group = 1;
  int64_t q_len = 0;
  int64_t kv_len = 0;
  int64_t head_dim = 0;
  int64_t head_dim_v = 0;
  int64_t state_cols = 0;        // head_dim_v, and one more with normalize
  bool decays_channels = false;  // does a channel have a decay of its own?
  float scale = 1;

  int64_t KeyLength(int64_t b) const {
    return options.key_lengths.empty() ? kv_len : options.key_lengths[static_cast<size_t>(b)];
  }
};

// Throws Error; fills defaults in.
RecurrentProblem ValidateRecurrent(const TensorView<const float>& q,
                                   const TensorView<const float>& k,
                                   const TensorView<const float>& v,
                                   const RecurrentOptions& options);

// Multiplications and additions of the chunked form, as heed/recurrent.h counts them.
double RecurrentFlops(const RecurrentProblem& p);

// Extents of the state.
Extents StateShape(const RecurrentProblem& p);

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_PROBLEM_H_
