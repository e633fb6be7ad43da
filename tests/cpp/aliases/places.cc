#include "places.h"

#include <cctype>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/error.h"

namespace heed::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string NameIn(const Function& function, const std::string& argument) {
  const auto spoken = function.spoken.find(argument);
  return spoken == function.spoken.end() ? argument : spoken->second;
}

void ExpectRefused(const Function& function, const std::string& output, const std::string& other) {
  SCOPED_TRACE(std::string(function.name) + ": " + output + " over " + other);
  Places places(output, other);
  const std::string a = NameIn(function, output), b = NameIn(function, other);
  try {
    function.call(places);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(ErrorCodeName(error.code()), "shape") << error.what();
    EXPECT_THAT(error.what(), AnyOf(HasSubstr(a + " overlaps " + b + " in memory"),
                                    HasSubstr(b + " overlaps " + a + " in memory")));
  }
  EXPECT_TRUE(places.IsUntouched()) << "memory was written before the call was refused";
}

}  // namespace

std::byte* Places::MiddleOf(const std::string& name) {
  Region& region = regions_[name];
  if (region.now.empty()) {
    region.now.assign(2 * kMiddle, std::byte{0});
    region.before = region.now;
  }
  return region.now.data() + kMiddle;
}

bool Places::IsUntouched() const {
  for (const auto& [name, region] : regions_) {
    if (region.now != region.before) return false;
  }
  return true;
}

std::string NameOf(const ::testing::TestParamInfo<Function>& info) {
  std::string name;
  bool starts_word = true;
  for (const char letter : std::string_view(info.param.name)) {
    const bool is_letter = std::isalnum(static_cast<unsigned char>(letter)) != 0;
    if (is_letter) name += starts_word ? static_cast<char>(std::toupper(letter)) : letter;
    starts_word = !is_letter;
  }
  return name;
}

void ExpectOverlapsAreRefused(const Function& function) {
  Places apart;
  ASSERT_NO_THROW(function.call(apart)) << function.name;
  ASSERT_FALSE(apart.outputs().empty()) << function.name;
  for (const std::string& output : apart.outputs()) {
    for (const std::string& input : apart.inputs()) ExpectRefused(function, output, input);
    for (const std::string& other : apart.outputs()) {
      if (other != output) ExpectRefused(function, output, other);
    }
  }
}

}  // namespace heed::testing
