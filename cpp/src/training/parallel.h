// Loops over fixed pieces, and rows that are copied.
#ifndef HEED_SRC_TRAINING_PARALLEL_H_
#define HEED_SRC_TRAINING_PARALLEL_H_

#include <algorithm>

#include "heed/training/parameter.h"
#include "src/parallel/pieces.h"

namespace heed::training {

// Throws Error(kMemory).
inline void Copy(const Matrix& from, Matrix& to) {
  to.Resize(from.rows(), from.dim());
  std::copy_n(from.data(), from.size(), to.data());
}

}  // namespace heed::training

#endif  // HEED_SRC_TRAINING_PARALLEL_H_
