#include "src/distributed/partial_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/distributed/row_sums.h"

namespace heed::distributed {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

}  // namespace

PartialSums::PartialSums(const Extents& shape)
    : shape_(shape),
      max_(static_cast<size_t>(shape[0] * shape[1] * shape[2]), kMinusInf),
      sum_(max_.size(), 0.0),
      values_(static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3])) {}

void PartialSums::Add(int64_t begin, TensorView<const float> part_output,
                      TensorView<const float> part_lse, ThreadPool& pool) {
  pool.Run(shape_[0] * shape_[1], [&](int64_t head, int) {
    const int64_t b = head / shape_[1], h = head % shape_[1];
    for (int64_t i = 0; i < part_output.shape[2]; ++i) {
      AddRow(Row(b, h, begin + i), &part_output(b, h, i, 0),
             static_cast<double>(part_lse(b, h, i, 0)));
    }
  });
}

// A part that saw nothing changes no bit. An lse that is NaN or +inf makes its row NaN: the factors
// are, from here on.
void PartialSums::AddRow(size_t row, const float* values, double lse) {
  if (lse == kMinusInf) return;
  double* sums = values_.data() + row * static_cast<size_t>(shape_[3]);
  const double largest = std::isnan(lse) ? lse : std::max(max_[row], lse);
  const double factor = std::exp(lse - largest);
  if (max_[row] == kMinusInf) {
    for (int64_t d = 0; d < shape_[3]; ++d) sums[d] = factor * static_cast<double>(values[d]);
    sum_[row] = factor;
  } else {
    const double old_factor = std::exp(max_[row] - largest);
    for (int64_t d = 0; d < shape_[3]; ++d) {
      sums[d] = sums[d] * old_factor + factor * static_cast<double>(values[d]);
    }
    sum_[row] = sum_[row] * old_factor + factor;
  }
  max_[row] = largest;
}

void PartialSums::Write(std::span<const float> sinks, const StoredOutput& output,
                        TensorView<float> lse, ThreadPool& pool) {
  pool.Run(shape_[0] * shape_[1], [&](int64_t head, int) {
    const int64_t b = head / shape_[1], h = head % shape_[1];
    for (int64_t i = 0; i < shape_[2]; ++i) WriteRow(b, h, i, sinks, output, lse);
  });
}

void PartialSums::WriteRow(int64_t b, int64_t h, int64_t i, std::span<const float> sinks,
                           const StoredOutput& output, const TensorView<float>& lse) {
  const size_t row = Row(b, h, i);
  const bool empty = max_[row] == kMinusInf;
  double total = empty ? kMinusInf : max_[row] + std::log(sum_[row]);
  if (!empty && !sinks.empty()) {
    const double sink = static_cast<double>(sinks[static_cast<size_t>(h)]);
    const double larger = std::max(total, sink), smaller = std::min(total, sink);
    if (!std::isnan(total)) total = larger + std::log1p(std::exp(smaller - larger));
  }
  const double factor = empty ? 0.0 : std::exp(max_[row] - total);
  const double* sums = values_.data() + row * static_cast<size_t>(shape_[3]);
  void* to = output.Row(b, h, i);
  for (int64_t d = 0; d < shape_[3]; ++d) {
    StoreElement(empty ? 0.0 : sums[d] * factor, output.dtype, to, d);
  }
  if (lse.has_value()) lse(b, h, i, 0) = static_cast<float>(total);
}

}  // namespace heed::distributed
