// Lines of text under titles: aligned for a terminal, as CSV or as Markdown.
#ifndef HEED_NATIVE_BENCH_COLUMNS_H_
#define HEED_NATIVE_BENCH_COLUMNS_H_

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "native_bench/cases.h"

namespace heed::bench {

// What nobody has counted.
inline constexpr char kUnknown[] = "-";

enum class Align { kLeft, kRight };

struct Column {
  const char* title;
  Align align;
};
using Columns = std::vector<Column>;
using Cells = std::vector<std::string>;  // one for each column

// printf into a string of at most 63 characters.
template <typename... Values>
std::string Format(const char* format, Values... values) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}
std::string MillisecondsText(double seconds);
std::string BytesText(std::optional<int64_t> bytes);

// What every report says of a problem: mechanism, heads, dim, length, mask, type, threads.
Columns ShapeColumns();
Cells ShapeCells(const Case& c);

Cells Titles(const Columns& columns);
// Of the titles and the lines; 0 for a column without any entry, which Aligned() leaves out.
std::vector<size_t> Widths(const Columns& columns, const std::vector<Cells>& lines);
// Without spaces at its end, without a line break.
std::string Aligned(const Columns& columns, const Cells& cells, const std::vector<size_t>& widths);

void PrintCsv(std::ostream& out, const Columns& columns, const std::vector<Cells>& lines);
void PrintMarkdown(std::ostream& out, const Columns& columns, const std::vector<Cells>& lines);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_COLUMNS_H_
