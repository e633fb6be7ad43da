// Checks that layers make at their boundary. All throw Error.
#ifndef HEED_SRC_TRAINING_CHECKS_H_
#define HEED_SRC_TRAINING_CHECKS_H_

#include <string_view>

#include "heed/training/parameter.h"
#include "src/message.h"

namespace heed::training {

// At least 1, at most 2^31 - 1.
void CheckCount(std::string_view name, int64_t value);

void CheckSize(std::string_view name, const Matrix& matrix, int64_t rows, int64_t dim);

// Backward() comes after Forward().
void CheckHasForward(const void* input);

}  // namespace heed::training

#endif  // HEED_SRC_TRAINING_CHECKS_H_
