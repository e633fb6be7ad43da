// The activations of feed-forward networks.
#ifndef HEED_SRC_ROWS_ACTIVATION_H_
#define HEED_SRC_ROWS_ACTIVATION_H_

#include <cstdint>

#include "heed/layers.h"
#include "heed/thread_pool.h"

namespace heed {

// y[n] = act(x[n]). y may be x.
void Activate(Activation activation, const float* x, int64_t count, float* y, ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_ROWS_ACTIVATION_H_
