// Errors: one exception type with a stable code and a message that names the argument.
#ifndef HEED_ERROR_H_
#define HEED_ERROR_H_

#include <stdexcept>
#include <string>

#include "heed/standard.h"

namespace heed {

// What kind of mistake an `Error` reports. JavaScript sees the same words in lower case.
enum class ErrorCode {
  kShape,        // extents, strides or element counts do not fit together
  kDType,        // an element type is not accepted here
  kRange,        // a number is outside what the argument allows
  kOption,       // an option or input name is unknown, missing or contradicts another one
  kUnsupported,  // the combination is forbidden or not offered; the message says why
  kMemory,       // an allocation failed
};

// Returns the stable word of a code: "shape", "dtype", "range", "option", "unsupported", "memory".
const char* ErrorCodeName(ErrorCode code);

// All that public functions of heed throw, before any output is written. The message names the
// argument, its value and what is allowed. The library stays usable afterwards.
//
// Only kMemory may come later: functions that work in steps, such as layers, gradients and analyses
// of several passes, allocate for each step, and leave results half written where the memory of a
// later one is missing. Their comments say so.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace heed

#endif  // HEED_ERROR_H_
