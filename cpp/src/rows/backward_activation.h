// The derivatives of the activations of feed-forward networks.
#ifndef HEED_SRC_ROWS_BACKWARD_ACTIVATION_H_
#define HEED_SRC_ROWS_BACKWARD_ACTIVATION_H_

#include <cstdint>

#include "heed/layers.h"
#include "heed/thread_pool.h"

namespace heed {

// d_x[n] = d_y[n] act'(x[n]). d_x may be d_y. Relu's derivative at 0 is 0. Where
// exactly 0 arrives the gradient is 0, whatever x is.
void ActivateBackward(Activation activation, const float* x, const float* d_y, int64_t count,
                      float* d_x, ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_ROWS_BACKWARD_ACTIVATION_H_
