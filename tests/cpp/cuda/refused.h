// What a call is refused with.
#ifndef HEED_TESTS_CPP_CUDA_REFUSED_H_
#define HEED_TESTS_CPP_CUDA_REFUSED_H_

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/error.h"

namespace heed::testing {

// `call()` throws an Error of this code whose message holds `text`.
template <class Call>
void ExpectRefusedCall(ErrorCode code, const std::string& text, const Call& call) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr(text));
  }
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CPP_CUDA_REFUSED_H_
