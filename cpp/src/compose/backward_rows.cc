#include "src/compose/backward_rows.h"

#include <algorithm>
#include <array>

#include "src/compose/rows.h"

namespace heed {
namespace {

// Columns that are summed side by side.
constexpr int64_t kColumns = 64;

struct Range {
  int64_t begin, end;
};

// The indices of an axis of `from` that go to index n of `to`.
Range Sources(const TensorView<const float>& from, const TensorView<float>& to, size_t axis,
              int64_t n) {
  if (to.shape[axis] == from.shape[axis]) return {n, n + 1};
  return {0, from.shape[axis]};
}

// Sums to columns [first, first + count) of one row of `to`.
void SumColumns(const TensorView<const float>& from, const TensorView<float>& to,
                const std::array<int64_t, 3>& row, int64_t first, int64_t count) {
  const bool whole = to.shape[3] != from.shape[3];  // all columns go to one
  const Range columns = whole ? Range{0, from.shape[3]} : Range{first, first + count};
  const auto [b0, b1] = Sources(from, to, 0, row[0]);
  const auto [h0, h1] = Sources(from, to, 1, row[1]);
  const auto [i0, i1] = Sources(from, to, 2, row[2]);
  double sums[kColumns] = {};
  for (int64_t b = b0; b < b1; ++b) {
    for (int64_t h = h0; h < h1; ++h) {
      for (int64_t i = i0; i < i1; ++i) {
        for (int64_t d = columns.begin; d < columns.end; ++d) {
          sums[whole ? 0 : d - first] += static_cast<double>(from(b, h, i, d));
        }
      }
    }
  }
  for (int64_t d = 0; d < count; ++d) {
    to(row[0], row[1], row[2], first + d) = static_cast<float>(sums[d]);
  }
}

}  // namespace

void SumOver(const TensorView<const float>& from, const TensorView<float>& to, ThreadPool& pool) {
  if (!to.has_value()) return;
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    for (int64_t d = 0; d < to.shape[3]; d += kColumns) {
      SumColumns(from, to, {b, h, i}, d, std::min(kColumns, to.shape[3] - d));
    }
  });
}

void AddRows(const TensorView<const float>& from, const TensorView<float>& to, ThreadPool& pool) {
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    for (int64_t d = 0; d < to.shape[3]; ++d) to(b, h, i, d) += from(b, h, i, d);
  });
}

void ClearRows(const TensorView<float>& to, ThreadPool& pool) {
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    for (int64_t d = 0; d < to.shape[3]; ++d) to(b, h, i, d) = 0;
  });
}

}  // namespace heed
