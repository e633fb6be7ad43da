// Parameters of tests that look at every row of the registry.
#ifndef HEED_TESTS_CPP_EVERY_ROW_H_
#define HEED_TESTS_CPP_EVERY_ROW_H_

#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "heed/registry.h"

namespace heed::testing {

inline std::string RowName(const ::testing::TestParamInfo<std::string_view>& info) {
  return std::string(info.param);
}

inline std::vector<std::string_view> AllRows() {
  std::vector<std::string_view> ids;
  for (const Mechanism& row : Mechanisms()) ids.push_back(row.id);
  return ids;
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CPP_EVERY_ROW_H_
