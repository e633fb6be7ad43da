#include "native_bench/columns.h"

#include <algorithm>
#include <string_view>

namespace heed::bench {
namespace {

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
  if (c.alibi) text += " alibi";
  if (c.key_length.has_value()) {
    text +=
        std::string(c.device_lengths ? " device_keys" : " keys") + std::to_string(*c.key_length);
  }
  return text;
}

std::string Padded(const std::string& text, size_t width, Align align) {
  const std::string gap(width - std::min(width, text.size()), ' ');
  return align == Align::kLeft ? text + gap : gap + text;
}

}  // namespace

std::string MillisecondsText(double seconds) {
  const double ms = seconds * 1e3;
  return Format(ms < 10 ? "%.4f" : ms < 1000 ? "%.2f" : "%.0f", ms);
}

std::string BytesText(std::optional<int64_t> bytes) {
  if (!bytes.has_value()) return kUnknown;
  const double kib = static_cast<double>(*bytes) / 1024;
  return kib < 10240 ? Format("%.0f KiB", kib) : Format("%.0f MiB", kib / 1024);
}

Columns ShapeColumns() {
  return {{"mechanism", Align::kLeft}, {"heads", Align::kRight}, {"dim", Align::kRight},
          {"length", Align::kRight},   {"mask", Align::kLeft},   {"type", Align::kLeft},
          {"threads", Align::kRight}};
}

Cells ShapeCells(const Case& c) {
  return {c.model.empty() ? c.mechanism : c.model,
          HeadsText(c.heads),
          DimText(c),
          LengthsText(c.lengths),
          MaskText(c),
          DTypeName(c.dtype),
          std::to_string(c.threads)};
}

Cells Titles(const Columns& columns) {
  Cells titles;
  for (const Column& column : columns) titles.push_back(column.title);
  return titles;
}

std::vector<size_t> Widths(const Columns& columns, const std::vector<Cells>& lines) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns.size(); ++i) {
    widths.push_back(0);
    for (const Cells& cells : lines) widths[i] = std::max(widths[i], cells[i].size());
    if (widths[i] > 0) widths[i] = std::max(widths[i], std::string_view(columns[i].title).size());
  }
  return widths;
}

std::string Aligned(const Columns& columns, const Cells& cells, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (widths[i] == 0) continue;
    line += Padded(cells[i], widths[i], columns[i].align) + "  ";
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

void PrintCsv(std::ostream& out, const Columns& columns, const std::vector<Cells>& lines) {
  const auto print = [&](const Cells& cells) {
    for (size_t i = 0; i < cells.size(); ++i) out << (i == 0 ? "" : ",") << cells[i];
    out << "\n";
  };
  print(Titles(columns));
  for (const Cells& cells : lines) print(cells);
}

void PrintMarkdown(std::ostream& out, const Columns& columns, const std::vector<Cells>& lines) {
  const auto print = [&](const Cells& cells) {
    for (const std::string& cell : cells) out << "| " << cell << " ";
    out << "|\n";
  };
  print(Titles(columns));
  for (const Column& column : columns) out << (column.align == Align::kLeft ? "|---" : "|--:");
  out << "|\n";
  for (const Cells& cells : lines) print(cells);
}

}  // namespace heed::bench
