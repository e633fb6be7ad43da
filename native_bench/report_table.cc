// The report for people and spreadsheets: aligned table, CSV, Markdown, from one list of columns.
#include <algorithm>

#include "native_bench/columns.h"
#include "native_bench/report.h"

namespace heed::bench {
namespace {

Columns ReportColumns() {
  Columns columns = ShapeColumns();
  columns.push_back({"peer", Align::kLeft});
  for (const char* title : {"ms", "p10", "p90", "GFLOP/s", "% of peak", "GB/s", "x heed", "scratch",
                            "memory", "reps", "cold ms", "sending ms", "max error"}) {
    columns.push_back({title, Align::kRight});
  }
  columns.push_back({"best", Align::kLeft});
  return columns;
}

Cells RowCells(const Report& report, const Row& row) {
  Cells cells = ShapeCells(row.shape);
  cells.push_back(row.peer);
  const size_t times = cells.size();
  if (row.status == Status::kTimed) {
    const double ratio = TimeOverHeed(report.rows, row);
    const bool counted = row.cost.flops.has_value();
    const bool cold = row.cold_seconds.count > 0;
    const bool rated = counted && row.peak_gflops > 0;
    const Cells numbers = {MillisecondsText(row.seconds.median),
                           MillisecondsText(row.seconds.p10),
                           MillisecondsText(row.seconds.p90),
                           counted ? Format("%.1f", row.Gflops()) : kUnknown,
                           rated ? Format("%.1f", 100 * row.PeakFraction()) : kUnknown,
                           Format("%.1f", row.Gbps()),
                           ratio > 0 ? Format("%.2f", ratio) : "",
                           BytesText(row.peer == "heed" ? row.cost.scratch_bytes : std::nullopt),
                           BytesText(row.peak_bytes),
                           std::to_string(row.seconds.count),
                           cold ? MillisecondsText(row.cold_seconds.median) : "",
                           cold ? MillisecondsText(row.sending_seconds) : ""};
    cells.insert(cells.end(), numbers.begin(), numbers.end());
  } else {
    cells.resize(times + 12);
    cells[times] = StatusName(row.status);
  }
  const bool ran = row.status != Status::kRefused;
  cells.push_back(ran ? Format("%.1e", row.verdict.max_error) : "");
  cells.push_back("");  // best
  return cells;
}

std::vector<Cells> AllCells(const Report& report) {
  std::vector<Cells> lines;
  for (const Row& row : report.rows) lines.push_back(RowCells(report, row));
  for (size_t best : BestRows(report.rows)) lines[best].back() = "*";
  return lines;
}

void PrintReasons(std::ostream& out, const Report& report) {
  for (const Row& row : report.rows) {
    if (row.reason.empty()) continue;
    out << StatusName(row.status) << ": " << row.peer << " on " << row.shape.Name() << ": "
        << row.reason << "\n";
  }
}

void PrintGpu(std::ostream& out, const Gpu& gpu) {
  out << gpu.name << ", compute capability " << gpu.compute_capability << ", "
      << gpu.multiprocessors << " multiprocessors, " << (gpu.memory_bytes >> 20) << " MiB, L2 "
      << (gpu.l2_bytes >> 10) << " KiB, driver " << gpu.driver << ", CUDA " << gpu.runtime << "\n";
  if (!gpu.missing.empty()) out << "no sensors: " << gpu.missing << "\n";
}

void PrintPeaks(std::ostream& out, const std::vector<FmaPeak>& peaks, const char* when) {
  for (const FmaPeak& peak : peaks) {
    const std::string of =
        peak.dtype.empty() ? "threads " + std::to_string(peak.threads) : peak.dtype;
    out << "FMA peak " << peak.target << ", " << of << ": " << Format("%.1f", peak.gflops)
        << " GFLOP/s" << when << "\n";
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
  if (report.gpu.has_value()) PrintGpu(out, *report.gpu);
  out << report.build.compiler << ", " << report.build.build_type << ", commit "
      << (report.build.commit.empty() ? "unknown" : report.build.commit) << ", SIMD target "
      << report.simd_chosen << "\n";
  PrintPeaks(out, report.peaks, "");
  PrintPeaks(out, report.peaks_after, " after the rows");
  for (const StreamRate& rate : report.streams) {
    const bool on_gpu = rate.copy_gbps > 0;
    out << "memory, " << (on_gpu ? "GPU" : "threads " + std::to_string(rate.threads)) << ": read "
        << Format("%.1f", rate.read_gbps) << " GB/s, " << (on_gpu ? "copy " : "triad ")
        << Format("%.1f", on_gpu ? rate.copy_gbps : rate.triad_gbps) << " GB/s\n";
  }
  if (report.plan.clock == Clock::kCpu) out << "times are processor time, not wall time\n";
  out << "FLOP = " << kFlopFormula << "\n";
}

void PrintTable(std::ostream& out, const Report& report, Style style) {
  const Columns columns = ReportColumns();
  const std::vector<Cells> lines = AllCells(report);
  const std::vector<size_t> widths = Widths(columns, lines);
  out << Aligned(columns, Titles(columns), widths) << "\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool new_case = i > 0 && !(report.rows[i].shape == report.rows[i - 1].shape);
    if (new_case && report.peers.size() > 1) out << "\n";
    const bool bold = style == Style::kColour && lines[i].back() == "*";
    const bool red = style == Style::kColour && report.rows[i].status == Status::kWrong;
    if (bold) out << "\x1b[1m";
    if (red) out << "\x1b[31m";
    out << Aligned(columns, lines[i], widths) << (bold || red ? "\x1b[0m\n" : "\n");
  }
  PrintReasons(out, report);
}

void PrintCsv(std::ostream& out, const Report& report) {
  PrintCsv(out, ReportColumns(), AllCells(report));
}

void PrintMarkdown(std::ostream& out, const Report& report) {
  PrintMarkdown(out, ReportColumns(), AllCells(report));
}

}  // namespace heed::bench
