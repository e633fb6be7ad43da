#include "native_bench/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "heed/error.h"

namespace heed::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json ReportWith(const std::string& command) {
  return {{"schema", "heed-bench"},
          {"schema_version", 2},
          {"command", command},
          {"rows", nlohmann::json::array()}};
}

std::string Page(const nlohmann::json& report) {
  std::ostringstream out;
  PrintHtml(out, report);
  return out.str();
}

// What stands between the tags of the report's script element.
std::string EmbeddedJson(const std::string& page) {
  const std::string open = "id=\"report\">";
  const size_t begin = page.find(open) + open.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

TEST(Html, ThePageCarriesTheReport) {
  const nlohmann::json report = ReportWith("heed-bench --html -");
  EXPECT_EQ(nlohmann::json::parse(EmbeddedJson(Page(report))), report);
}

TEST(Html, NoTextOfTheReportEndsItsElement) {
  const nlohmann::json report = ReportWith("</script><script>alert(1)</script>");
  EXPECT_EQ(nlohmann::json::parse(EmbeddedJson(Page(report))), report);
}

TEST(Html, NothingIsLoadedFromElsewhere) {
  const std::string page = Page(ReportWith(""));
  for (const char* word : {"src=", "href=", "@import", "url(", "fetch(", "{{", "}}\n</style>"}) {
    EXPECT_THAT(page, Not(HasSubstr(word)));
  }
  EXPECT_THAT(page, HasSubstr("<style>\n:root"));
  EXPECT_THAT(page, HasSubstr("showRows();"));
}

TEST(Html, GradientsHaveAPageToo) {
  nlohmann::json report = ReportWith("heed-bench --backward --html -");
  report["schema"] = "heed-bench-backward";
  EXPECT_EQ(nlohmann::json::parse(EmbeddedJson(Page(report))), report);
}

TEST(Html, ReportsOfAnotherKindAreRefused) {
  nlohmann::json report = ReportWith("");
  report["schema"] = "heed-bench-steps";
  EXPECT_THROW(Page(report), Error);
}

}  // namespace
}  // namespace heed::bench
