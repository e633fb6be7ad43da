// The report for people and spreadsheets: aligned table, CSV, Markdown, from one list of columns.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "native_bench/report.h"

namespace heed::bench {
namespace {

template <typename... Values>
std::string Format(const char* format, Values... values) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::string Milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return Format(ms < 10 ? "%.4f" : ms < 1000 ? "%.2f" : "%.0f", ms);
}

std::string HeadsText(const Heads& heads) {
  std::string text = std::to_string(heads.num_heads);
  if (heads.num_kv_heads != heads.num_heads) text += ":" + std::to_string(heads.num_kv_heads);
  return text;
}

std::string LengthsText(const Lengths& lengths) {
  std::string text = std::to_string(lengths.q_len);
  if (lengths.kv_len != lengths.q_len) text += "x" + std::to_string(lengths.kv_len);
  return text;
}

std::string DimText(const Case& c) {
  std::string text = std::to_string(c.head_dim);
  if (c.ValueDim() != c.head_dim) text += ":" + std::to_string(c.ValueDim());
  return text;
}

// "causal w127 cap50 sinks"
std::string MaskText(const Case& c) {
  std::string text = MaskName(c.mask);
  if (c.window_left.has_value()) text += " w" + std::to_string(*c.window_left);
  if (c.softcap.has_value()) text += Format(" cap%.3g", *c.softcap);
  if (c.sinks) text += " sinks";
  return text;
}

enum class Align { kLeft, kRight };

struct Column {
  const char* title;
  Align align;
};

constexpr std::array kColumns = {
    Column{"mechanism", Align::kLeft},  Column{"heads", Align::kRight},
    Column{"dim", Align::kRight},       Column{"length", Align::kRight},
    Column{"mask", Align::kLeft},       Column{"type", Align::kLeft},
    Column{"threads", Align::kRight},   Column{"peer", Align::kLeft},
    Column{"ms", Align::kRight},        Column{"p10", Align::kRight},
    Column{"p90", Align::kRight},       Column{"GFLOP/s", Align::kRight},
    Column{"% of peak", Align::kRight}, Column{"GB/s", Align::kRight},
    Column{"x heed", Align::kRight},    Column{"scratch", Align::kRight},
    Column{"memory", Align::kRight},    Column{"reps", Align::kRight},
    Column{"max error", Align::kRight}, Column{"best", Align::kLeft},
};
constexpr size_t kTimeColumn = 8;
constexpr size_t kErrorColumn = 18;
// What nobody has counted.
constexpr char kUnknown[] = "-";
using Cells = std::array<std::string, kColumns.size()>;

Cells ShapeCells(const Row& row) {
  const Case& c = row.shape;
  return {c.model.empty() ? c.mechanism : c.model,
          HeadsText(c.heads),
          DimText(c),
          LengthsText(c.lengths),
          MaskText(c),
          DTypeName(c.dtype),
          std::to_string(c.threads),
          row.peer};
}

std::string BytesText(std::optional<int64_t> bytes) {
  if (!bytes.has_value()) return kUnknown;
  const double kib = static_cast<double>(*bytes) / 1024;
  return kib < 10240 ? Format("%.0f KiB", kib) : Format("%.0f MiB", kib / 1024);
}

Cells RowCells(const Report& report, const Row& row) {
  Cells cells = ShapeCells(row);
  if (row.status != Status::kRefused) cells[kErrorColumn] = Format("%.1e", row.verdict.max_error);
  if (row.status != Status::kTimed) {
    cells[kTimeColumn] = StatusName(row.status);
    return cells;
  }
  const double ratio = TimeOverHeed(report.rows, row);
  const bool counted = row.cost.flops.has_value();
  const bool rated = counted && row.peak_gflops > 0;
  size_t next = kTimeColumn;
  const auto put = [&](const std::string& text) { cells[next++] = text; };
  put(Milliseconds(row.seconds.median));
  put(Milliseconds(row.seconds.p10));
  put(Milliseconds(row.seconds.p90));
  put(counted ? Format("%.1f", row.Gflops()) : kUnknown);
  put(rated ? Format("%.1f", 100 * row.PeakFraction()) : kUnknown);
  put(Format("%.1f", row.Gbps()));
  put(ratio > 0 ? Format("%.2f", ratio) : "");
  put(BytesText(row.peer == "heed" ? row.cost.scratch_bytes : std::nullopt));
  put(BytesText(row.peak_bytes));
  put(std::to_string(row.seconds.count));
  return cells;
}

std::vector<Cells> AllCells(const Report& report) {
  std::vector<Cells> lines;
  for (const Row& row : report.rows) lines.push_back(RowCells(report, row));
  for (size_t best : BestRows(report.rows)) lines[best].back() = "*";
  return lines;
}

Cells Titles() {
  Cells titles;
  for (size_t i = 0; i < titles.size(); ++i) titles[i] = kColumns[i].title;
  return titles;
}

std::string Padded(const std::string& text, size_t width, Align align) {
  const std::string gap(width - std::min(width, text.size()), ' ');
  return align == Align::kLeft ? text + gap : gap + text;
}

void PrintLine(std::ostream& out, const Cells& cells,
               const std::array<size_t, kColumns.size()>& w) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    line += Padded(cells[i], w[i], kColumns[i].align) + "  ";
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out << line;
}

void PrintReasons(std::ostream& out, const Report& report) {
  for (const Row& row : report.rows) {
    if (row.reason.empty()) continue;
    out << StatusName(row.status) << ": " << row.peer << " on " << row.shape.Name() << ": "
        << row.reason << "\n";
  }
}

}  // namespace

void PrintContext(std::ostream& out, const Report& report) {
  const Machine& machine = report.machine;
  out << machine.cpu_model << ", " << machine.cores << " cores";
  for (const Cache& cache : machine.caches) {
    if (cache.name != "L1i") out << ", " << cache.name << " " << (cache.bytes >> 10) << " KiB";
  }
  out << ", load " << Format("%.2f", machine.load_average) << "\n";
  out << report.build.compiler << ", " << report.build.build_type << ", commit "
      << (report.build.commit.empty() ? "unknown" : report.build.commit) << ", SIMD target "
      << report.simd_chosen << "\n";
  for (const FmaPeak& peak : report.peaks) {
    out << "FMA peak " << peak.target << ", threads " << peak.threads << ": "
        << Format("%.1f", peak.gflops) << " GFLOP/s\n";
  }
  for (const FmaPeak& peak : report.peaks_after) {
    out << "FMA peak " << peak.target << ", threads " << peak.threads << ": "
        << Format("%.1f", peak.gflops) << " GFLOP/s after the rows\n";
  }
  for (const StreamRate& rate : report.streams) {
    out << "memory, threads " << rate.threads << ": read " << Format("%.1f", rate.read_gbps)
        << " GB/s, triad " << Format("%.1f", rate.triad_gbps) << " GB/s\n";
  }
  if (report.plan.clock == Clock::kCpu) out << "times are processor time, not wall time\n";
  out << "FLOP = " << kFlopFormula << "\n";
}

void PrintTable(std::ostream& out, const Report& report, Style style) {
  const std::vector<Cells> lines = AllCells(report);
  std::array<size_t, kColumns.size()> widths;
  for (size_t i = 0; i < widths.size(); ++i) {
    widths[i] = std::string_view(kColumns[i].title).size();
    for (const Cells& cells : lines) widths[i] = std::max(widths[i], cells[i].size());
  }
  PrintLine(out, Titles(), widths);
  out << "\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool new_case = i > 0 && !(report.rows[i].shape == report.rows[i - 1].shape);
    if (new_case && report.peers.size() > 1) out << "\n";
    const bool bold = style == Style::kColour && lines[i].back() == "*";
    const bool red = style == Style::kColour && report.rows[i].status == Status::kWrong;
    if (bold) out << "\x1b[1m";
    if (red) out << "\x1b[31m";
    PrintLine(out, lines[i], widths);
    out << (bold || red ? "\x1b[0m\n" : "\n");
  }
  PrintReasons(out, report);
}

void PrintCsv(std::ostream& out, const Report& report) {
  const auto print = [&](const Cells& cells) {
    for (size_t i = 0; i < cells.size(); ++i) out << (i == 0 ? "" : ",") << cells[i];
    out << "\n";
  };
  print(Titles());
  for (const Cells& cells : AllCells(report)) print(cells);
}

void PrintMarkdown(std::ostream& out, const Report& report) {
  const auto print = [&](const Cells& cells) {
    for (const std::string& cell : cells) out << "| " << cell << " ";
    out << "|\n";
  };
  print(Titles());
  for (const Column& column : kColumns) out << (column.align == Align::kLeft ? "|---" : "|--:");
  out << "|\n";
  for (const Cells& cells : AllCells(report)) print(cells);
}

}  // namespace heed::bench
