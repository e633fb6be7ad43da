#include "native_bench/html.h"

#include <nlohmann/json.hpp>
#include <string>

#include "heed/error.h"

namespace heed::bench {
namespace {

// JSON that cannot end the script element it stands in.
std::string ScriptSafe(const nlohmann::json& report) {
  std::string safe;
  for (char c : report.dump()) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

void PrintHtml(std::ostream& out, const nlohmann::json& report) {
  const std::string schema = report.value("schema", "");
  if (schema != "heed-bench" && schema != "heed-bench-web" && schema != "heed-bench-backward") {
    throw Error(ErrorCode::kOption, "--html: '" + schema +
                                        "' is no report of programs on problems; expected "
                                        "heed-bench, heed-bench-web or heed-bench-backward");
  }
  std::string_view page = kReportPage;
  for (size_t open = page.find("{{"); open != std::string_view::npos; open = page.find("{{")) {
    const size_t close = page.find("}}", open);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    out << page.substr(0, open);
    if (name == "style") out << kReportStyle;
    if (name == "script") out << kReportScript;
    if (name == "report") out << ScriptSafe(report);
    page.remove_prefix(close + 2);
  }
  out << page;
}

}  // namespace heed::bench
