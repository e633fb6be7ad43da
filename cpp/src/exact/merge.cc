#include "heed/merge.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "src/memory_errors.h"
#include "src/message.h"
#include "src/output_spans.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

struct RowPlace {
  int64_t b, h, i;
};

double LseOf(const PartialAttention& state, const RowPlace& at) {
  return static_cast<double>(state.lse(at.b, at.h, at.i, 0));
}

// The largest lse of a row; NaN when one is NaN or +inf.
double Largest(std::span<const PartialAttention> states, const RowPlace& at) {
  double largest = kMinusInf;
  for (const PartialAttention& state : states) {
    const double lse = LseOf(state, at);
    if (!(lse < -kMinusInf)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, lse);
  }
  return largest;
}

// Columns [first, first + kColumns) of a row. They are written after they were read from every
// state, so the output may be that of a state.
constexpr int64_t kColumns = 64;
void MergeColumns(std::span<const PartialAttention> states, const RowPlace& at, double largest,
                  double sum, int64_t first, const TensorView<float>& output) {
  double values[kColumns] = {};
  const int64_t count = std::min(kColumns, output.shape[3] - first);
  for (const PartialAttention& state : states) {
    const double of_state = LseOf(state, at);
    if (of_state == kMinusInf) continue;
    const double factor = std::exp(of_state - largest);
    const float* from = &state.output(at.b, at.h, at.i, first);
    for (int64_t d = 0; d < count; ++d) values[d] += factor * static_cast<double>(from[d]);
  }
  // A row that is empty everywhere has sum 0 and values 0; NaN stays NaN.
  const double divisor = sum == 0 ? 1 : sum;
  float* to = &output(at.b, at.h, at.i, first);
  for (int64_t d = 0; d < count; ++d) to[d] = static_cast<float>(values[d] / divisor);
}

void MergeRow(std::span<const PartialAttention> states, const RowPlace& at,
              const TensorView<float>& output, const TensorView<float>& lse) {
  const double largest = Largest(states, at);
  double sum = 0;
  for (const PartialAttention& state : states) {
    const double of_state = LseOf(state, at);
    if (of_state != kMinusInf) sum += std::exp(of_state - largest);
  }
  for (int64_t d = 0; d < output.shape[3]; d += kColumns) {
    MergeColumns(states, at, largest, sum, d, output);
  }
  if (!lse.has_value()) return;
  const double total = largest == kMinusInf ? kMinusInf : largest + std::log(sum);
  lse(at.b, at.h, at.i, 0) = static_cast<float>(total);
}

void CheckStates(std::span<const PartialAttention> states, const TensorView<float>& output,
                 const TensorView<float>& lse) {
  if (states.empty()) Fail(ErrorCode::kOption, "states is empty; give at least one");
  CheckInput("states[0].output", states[0].output);
  const Extents shape = states[0].output.shape;
  const Extents rows = {shape[0], shape[1], shape[2], 1};
  const std::string shape_text = "[batch, num_heads, q_len, head_dim_v], as states[0]";
  const std::string rows_text = "[batch, num_heads, q_len, 1]";
  if (!output.has_value() && states[0].output.size() > 0) {
    Fail(ErrorCode::kOption, "output is missing");
  }
  CheckOutput("output", output, shape, shape_text);
  if (lse.has_value()) CheckOutput("lse", lse, rows, rows_text);
  for (size_t n = 0; n < states.size(); ++n) {
    const std::string name = "states[" + std::to_string(n) + "]";
    CheckInput(name + ".output", states[n].output);
    CheckInput(name + ".lse", states[n].lse);
    CheckShape(name + ".output", states[n].output.shape, shape, shape_text);
    CheckShape(name + ".lse", states[n].lse.shape, rows, rows_text);
    CheckSameOrApart("output", output, name + ".output", states[n].output);
    CheckNoAlias("output", output, name + ".lse", states[n].lse);
    CheckNoAlias("lse", lse, name + ".output", states[n].output);
    CheckSameOrApart("lse", lse, name + ".lse", states[n].lse);
  }
  CheckNoAlias("output", output, "lse", lse);
}

}  // namespace

void Merge(std::span<const PartialAttention> states, TensorView<float> output,
           TensorView<float> lse, ThreadPool* pool) {
  WithMemoryErrors("merged attention", [&] {
    CheckStates(states, output, lse);
    const auto [batch, heads, len, width] = states[0].output.shape;
    ThreadPool& threads = pool != nullptr ? *pool : DefaultThreadPool();
    // A task is a run of rows long enough to be worth one.
    constexpr int64_t kRows = 64;
    const int64_t rows = batch * heads * len;
    threads.Run((rows + kRows - 1) / kRows, [&](int64_t task, int) {
      for (int64_t row = task * kRows; row < std::min(rows, (task + 1) * kRows); ++row) {
        MergeRow(states, {row / len / heads, row / len % heads, row % len}, output, lse);
      }
    });
  });
}

}  // namespace heed
