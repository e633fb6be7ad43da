// Work on rows [batch, heads, len] of a composition, and tensors that live between its calls.
#ifndef HEED_SRC_COMPOSE_ROWS_H_
#define HEED_SRC_COMPOSE_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "heed/error.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"
#include "src/message.h"
#include "src/parallel/worker_scratch.h"

namespace heed {

// A contiguous float tensor, not initialised. Throws Error(kMemory).
class OwnedTensor {
 public:
  OwnedTensor() = default;
  explicit OwnedTensor(const Extents& shape)
      : memory_(Count(shape)),
        view_(Contiguous(memory_.get(), shape[0], shape[1], shape[2], shape[3])) {}
  const TensorView<float>& view() const { return view_; }

 private:
  static size_t Count(const Extents& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) {
      if (__builtin_mul_overflow(count, extent, &count) || count > (int64_t{1} << 60)) {
        Fail(ErrorCode::kMemory, "a tensor between two steps is too large to address");
      }
    }
    return std::max<size_t>(1, static_cast<size_t>(count));  // an absent view would mean "none"
  }

  AlignedFloats memory_;
  TensorView<float> view_;
};

// Where a row of [batch, heads, len, width] begins.
template <class T>
T* RowOf(const TensorView<T>& x, int64_t b, int64_t h, int64_t i) {
  return x.data + b * x.strides[0] + h * x.strides[1] + i * x.strides[2];
}

// Calls body(b, h, i) for every row of [batch, heads, len]; each row is one thread's alone.
template <class Body>
void ForEachRow(const Extents& shape, ThreadPool& pool, Body&& body) {
  constexpr int64_t kRowsPerTask = 64;
  const int64_t rows = shape[0] * shape[1] * shape[2];
  pool.Run((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) {
      body(row / shape[2] / shape[1], row / shape[2] % shape[1], row % shape[2]);
    }
  });
}

inline ThreadPool& PoolOrDefault(ThreadPool* pool) {
  return pool != nullptr ? *pool : DefaultThreadPool();
}

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_ROWS_H_
