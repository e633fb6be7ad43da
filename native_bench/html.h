// The report as one page that needs nothing else: no server, no network, no other file.
#ifndef HEED_NATIVE_BENCH_HTML_H_
#define HEED_NATIVE_BENCH_HTML_H_

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string_view>

namespace heed::bench {

// The files of html/, put into the program by embed.cmake.
extern const std::string_view kReportPage;
extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

// Writes the page of a JSON report with rows of programs: schemas heed-bench and heed-bench-web.
// Throws heed::Error(kOption) for another kind.
void PrintHtml(std::ostream& out, const nlohmann::json& report);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_HTML_H_
