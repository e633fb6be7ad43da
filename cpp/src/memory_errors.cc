#include "src/memory_errors.h"

#include <new>
#include <stdexcept>

#include "src/message.h"

namespace heed {

void CallWithMemoryErrors(const char* what, BodyRef body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    Fail(ErrorCode::kMemory, "could not allocate the memory of {}", {what});
  } catch (const std::length_error&) {
    Fail(ErrorCode::kMemory, "the memory of {} is more than can be addressed", {what});
  }
}

}  // namespace heed
