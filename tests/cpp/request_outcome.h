// What a request gives, bit by bit, or how it is refused: by the library and by the oracle.
#ifndef HEED_TESTS_REQUEST_OUTCOME_H_
#define HEED_TESTS_REQUEST_OUTCOME_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "heed/error.h"
#include "heed/request.h"
#include "heed/thread_pool.h"
#include "request_builder.h"

namespace heed::testing {

// Every result by name: raw bytes, which tell NaN and -0 apart, and numbers.
struct Outcome {
  std::map<std::string, std::vector<std::byte>> bytes;
  Values values;
};

// Plans and runs the request; outputs have the types that were planned and are filled with NaN
// first.
Outcome RunOn(const Request& request, ThreadPool* pool = nullptr);

// What a call throws: the code and the text; both empty when it throws nothing.
struct Refusal {
  std::string code, text;
  bool thrown() const { return !code.empty(); }
};

template <class Call>
Refusal Try(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return {ErrorCodeName(error.code()), error.what()};
  }
  return {};
}

}  // namespace heed::testing

#endif  // HEED_TESTS_REQUEST_OUTCOME_H_
