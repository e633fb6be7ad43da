// What the oracle has said within the test that runs, for the other SIMD targets that ask the same.
#ifndef HEED_TESTS_ORACLE_MEMO_H_
#define HEED_TESTS_ORACLE_MEMO_H_

#include <functional>
#include <string>

#include "heed/request.h"
#include "request_builder.h"

namespace heed::testing {

// From here on answers are kept, those of the test of this name; those of another are forgotten.
void KeepAnswersOf(const std::string& test);

// Answers are neither kept nor given.
void StopKeepingAnswers();

// What `ask` answers to the request, or has answered while answers are kept. Requests are the same
// where all their names, parameters, shapes and elements are, bit for bit.
Values Remembered(const Request& request, const std::function<Values(const Request&)>& ask);

}  // namespace heed::testing

#endif  // HEED_TESTS_ORACLE_MEMO_H_
