// Checks that layers make at their boundary, and what their constructors catch. All throw Error.
#ifndef HEED_SRC_TRAINING_CHECKS_H_
#define HEED_SRC_TRAINING_CHECKS_H_

#include <cstdint>
#include <new>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "heed/training/parameter.h"
#include "src/memory_errors.h"
#include "src/message.h"

namespace heed::training {

// At least 1, at most 2^31 - 1.
void CheckCount(std::string_view name, int64_t value);

void CheckSize(std::string_view name, const Matrix& matrix, int64_t rows, int64_t dim);

// Makes `to` hold `count` elements; new ones are zero. Throws Error(kMemory).
template <class T>
void MakeRoom(std::string_view name, int64_t count, std::vector<T>& to) {
  try {
    to.resize(static_cast<size_t>(count));
  } catch (const std::bad_alloc&) {
    Fail(ErrorCode::kMemory, "could not allocate {} elements of {}", {count, name});
  } catch (const std::length_error&) {
    Fail(ErrorCode::kMemory, "{} elements of {} cannot be addressed", {count, name});
  }
}

// One for each of `rows` rows, each below `classes`. How many are not negative.
int64_t CheckTargets(std::span<const int32_t> targets, int64_t rows, int64_t classes);

// Backward() comes after a Forward() that returned.
void CheckHasForward(bool has_forward);

// Throws what a constructor caught, as WithMemoryErrors() would around it: members that allocate
// are made before its body.
[[noreturn]] inline void RethrowMemoryError(const char* what) {
  WithMemoryErrors(what, [] { throw; });
  __builtin_unreachable();
}

}  // namespace heed::training

#endif  // HEED_SRC_TRAINING_CHECKS_H_
