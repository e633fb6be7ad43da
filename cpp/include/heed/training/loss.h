// Losses, each with the gradient of what it judges.
#ifndef HEED_TRAINING_LOSS_H_
#define HEED_TRAINING_LOSS_H_

#include <cstdint>
#include <span>

#include "heed/thread_pool.h"
#include "heed/training/parameter.h"

namespace heed::training {

struct Loss {
  double value = 0;     // mean over the rows that count
  int64_t counted = 0;  // how many do
};

// The mean of -log softmax(logits_i)[targets_i] over the rows whose target is not negative, in
// nats; the others are ignored. d_logits = (softmax - one-hot) / counted, 0 for ignored rows.
//
// Shapes   logits [rows, classes], one target a row in [.., classes); d_logits is resized.
// Edges    no row that counts: value 0 and gradients 0. NaN or +inf in a row that counts makes the
//          value NaN; in an ignored row it is not looked at.
// Errors   Error(kShape | kRange | kMemory), and Error(kOption) where d_logits is logits, before
//          anything is written; kMemory may leave d_logits resized.
// Accuracy 1e-6 of max(1, value): the softmax is heed::Softmax(), the sum over rows float64.
// Threads  `pool` or the default pool. Same bits for any number of threads.
Loss CrossEntropy(const Matrix& logits, std::span<const int32_t> targets, Matrix& d_logits,
                  ThreadPool* pool = nullptr);

// The mean of (y - target)^2 over all elements, summed in float64; d_y = 2 (y - target) / elements.
// `counted` is the number of elements. d_y may be y or the target. Errors and threads as
// CrossEntropy().
Loss MeanSquaredError(const Matrix& y, const Matrix& target, Matrix& d_y,
                      ThreadPool* pool = nullptr);

}  // namespace heed::training

#endif  // HEED_TRAINING_LOSS_H_
