#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <variant>

#include "native_bench/patterns.h"

namespace heed::bench {

void PrintPatterns(std::ostream& out, const PatternReport& report) {
  out << "rule                        visible   median ms         p10         p90   GFLOP/s  "
         "over dense  max error\n";
  for (const PatternRow& row : report.rows) {
    if (row.seconds.count == 0) {
      PrintUntimed(out, row.shape.Name(), 26, row.verdict);
      continue;
    }
    std::array<char, 200> text;
    std::snprintf(text.data(), text.size(),
                  "%-26s  %6.2f %%  %10.3f  %10.3f  %10.3f  %8.1f  %10.2f  %9.1e\n",
                  row.shape.Name().c_str(), 100 * row.visible, row.seconds.median * 1e3,
                  row.seconds.p10 * 1e3, row.seconds.p90 * 1e3,
                  row.flop / row.seconds.median * 1e-9, row.over_dense, row.verdict.max_error);
    out << text.data();
  }
  for (const Growth& growth : report.growths) {
    std::array<char, 120> text;
    std::snprintf(text.data(), text.size(), "%s: time grows as length^%.3f\n", growth.group.c_str(),
                  growth.exponent);
    out << text.data();
  }
  out << "over dense: time over what dense attention of the same group takes for as many pairs\n";
}

nlohmann::json ToJson(const PatternReport& report) {
  nlohmann::json object = ContextJson(report.context);
  object["schema"] = "heed-bench-patterns";
  nlohmann::json& rows = object["rows"] = nlohmann::json::array();
  for (const PatternRow& row : report.rows) {
    nlohmann::json entry = {{"case", row.shape.Name()},
                            {"group", row.shape.group},
                            {"mechanism", row.shape.mechanism},
                            {"length", row.shape.length},
                            {"num_heads", report.heads.num_heads},
                            {"num_kv_heads", report.heads.num_kv_heads},
                            {"head_dim", report.head_dim},
                            {"params", nlohmann::json::object()},
                            {"max_error", row.verdict.max_error},
                            {"error_bound", row.verdict.bound},
                            {"status", row.verdict.Passed() ? "verified" : "wrong"}};
    for (const NamedParam& param : row.shape.params) {
      std::visit([&](const auto& value) { entry["params"][param.name] = value; }, param.value);
    }
    if (row.shape.block > 0) entry["density"] = row.shape.density;
    if (row.seconds.count > 0) {
      entry["status"] = "timed";
      entry["ms"] = TimesJson(row.seconds);
      entry["reps"] = row.seconds.count;
      entry["flop"] = row.flop;
      entry["visible"] = row.visible;
      entry["over_dense"] = row.over_dense;
    }
    rows.push_back(std::move(entry));
  }
  nlohmann::json& growths = object["growths"] = nlohmann::json::array();
  for (const Growth& growth : report.growths) {
    growths.push_back({{"group", growth.group}, {"exponent", growth.exponent}});
  }
  return object;
}

}  // namespace heed::bench
