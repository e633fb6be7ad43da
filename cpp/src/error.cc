#include "heed/error.h"

namespace heed {

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kShape:
      return "shape";
    case ErrorCode::kDType:
      return "dtype";
    case ErrorCode::kRange:
      return "range";
    case ErrorCode::kOption:
      return "option";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kMemory:
      return "memory";
  }
  return "unknown";
}

}  // namespace heed
