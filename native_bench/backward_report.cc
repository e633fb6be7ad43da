// The report of --backward: aligned table, CSV, Markdown and JSON.
#include <nlohmann/json.hpp>

#include "native_bench/backward.h"
#include "native_bench/columns.h"

namespace heed::bench {
namespace {

constexpr char kFlopOfBackward[] = "2.5 times what heed::EstimateCost counts for forward";
constexpr char kErrorOfBackward[] =
    "along a random direction of each input against differences of the oracle, relative to the "
    "terms of the sum";

bool HasPeers(const BackwardReport& report) {
  return !report.rows.empty() && !report.rows.front().peer.empty();
}

Columns BackwardColumns(const BackwardReport& report) {
  Columns columns = ShapeColumns();
  if (HasPeers(report)) columns.push_back({"peer", Align::kLeft});
  for (const char* title : {"ms", "p10", "p90", "forward ms", "x forward", "GFLOP/s", "% of peak",
                            "memory", "reps", "max error"}) {
    columns.push_back({title, Align::kRight});
  }
  return columns;
}

Cells RowCells(const BackwardRow& row) {
  Cells cells = ShapeCells(row.shape);
  if (!row.peer.empty()) cells.push_back(row.peer);
  if (row.status == Status::kTimed) {
    const bool rated = row.flop > 0 && row.peak_gflops > 0;
    const Cells numbers = {MillisecondsText(row.seconds.median),
                           MillisecondsText(row.seconds.p10),
                           MillisecondsText(row.seconds.p90),
                           MillisecondsText(row.forward.median),
                           Format("%.2f", row.OverForward()),
                           row.flop > 0 ? Format("%.1f", row.Gflops()) : kUnknown,
                           rated ? Format("%.1f", 100 * row.Gflops() / row.peak_gflops) : kUnknown,
                           BytesText(row.peak_bytes),
                           std::to_string(row.seconds.count)};
    cells.insert(cells.end(), numbers.begin(), numbers.end());
  } else {
    cells.push_back(StatusName(row.status));
    cells.resize(cells.size() + 8);
  }
  const bool ran = row.status != Status::kRefused;
  cells.push_back(ran ? Format("%.1e", row.verdict.max_error) : "");
  return cells;
}

std::vector<Cells> AllCells(const BackwardReport& report) {
  std::vector<Cells> lines;
  for (const BackwardRow& row : report.rows) lines.push_back(RowCells(row));
  return lines;
}

nlohmann::json RowJson(const BackwardRow& row) {
  nlohmann::json entry = {{"case", row.shape.Name()},
                          {"mechanism", row.shape.mechanism},
                          {"num_heads", row.shape.heads.num_heads},
                          {"num_kv_heads", row.shape.heads.num_kv_heads},
                          {"head_dim", row.shape.head_dim},
                          {"q_len", row.shape.lengths.q_len},
                          {"kv_len", row.shape.lengths.kv_len},
                          {"mask", MaskName(row.shape.mask)},
                          {"threads", row.shape.threads},
                          {"status", StatusName(row.status)}};
  if (!row.peer.empty()) entry["peer"] = row.peer;
  if (!row.reason.empty()) entry["reason"] = row.reason;
  if (row.status == Status::kRefused) return entry;
  entry["max_error"] = row.verdict.max_error;
  entry["error_bound"] = row.verdict.bound;
  if (row.status != Status::kTimed) return entry;
  entry["ms"] = TimesJson(row.seconds);
  entry["forward_ms"] = TimesJson(row.forward);
  entry["reps"] = row.seconds.count;
  if (row.peak_bytes.has_value()) entry["peak_bytes"] = *row.peak_bytes;
  if (row.flop == 0) return entry;
  entry["flop"] = row.flop;
  entry["gflops"] = row.Gflops();
  if (row.peak_gflops > 0) entry["fraction_of_peak"] = row.Gflops() / row.peak_gflops;
  return entry;
}

}  // namespace

void PrintBackward(std::ostream& out, const BackwardReport& report) {
  const Columns columns = BackwardColumns(report);
  const std::vector<Cells> lines = AllCells(report);
  const std::vector<size_t> widths = Widths(columns, lines);
  out << Aligned(columns, Titles(columns), widths) << "\n";
  for (const Cells& cells : lines) out << Aligned(columns, cells, widths) << "\n";
  for (const BackwardRow& row : report.rows) {
    if (row.reason.empty()) continue;
    out << StatusName(row.status) << ": " << row.shape.Name()
        << (row.peer.empty() ? "" : " by " + row.peer) << ": " << row.reason << "\n";
  }
  out << "GFLOP/s: " << kFlopOfBackward << "\nmax error: " << kErrorOfBackward << ", on "
      << kBackwardCheckedLen << " tokens\n";
}

void PrintCsv(std::ostream& out, const BackwardReport& report) {
  PrintCsv(out, BackwardColumns(report), AllCells(report));
}

void PrintMarkdown(std::ostream& out, const BackwardReport& report) {
  PrintMarkdown(out, BackwardColumns(report), AllCells(report));
}

nlohmann::json ToJson(const BackwardReport& report) {
  nlohmann::json object = ContextJson(report.context);
  object["schema"] = "heed-bench-backward";
  object["flop_formula"] = kFlopOfBackward;
  nlohmann::json& rows = object["rows"] = nlohmann::json::array();
  for (const BackwardRow& row : report.rows) rows.push_back(RowJson(row));
  return object;
}

}  // namespace heed::bench
