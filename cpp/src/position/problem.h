// Validated forms of a call of the position functions: what the kernels assume.
#ifndef HEED_SRC_POSITION_PROBLEM_H_
#define HEED_SRC_POSITION_PROBLEM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "heed/position.h"

namespace heed {

// Positions of the rows of a tensor, checked.
struct RowPositions {
  std::vector<int64_t> offset;    // one or batch values
  std::span<const int32_t> rows;  // empty, len, or batch * len values
  int64_t len = 0;
  bool per_batch = false;  // do batch entries differ?

  int64_t operator()(int64_t b, int64_t i) const {
    const int64_t start = offset.size() == 1 ? offset[0] : offset[static_cast<size_t>(b)];
    if (rows.empty()) return start + i;
    const bool shared = static_cast<int64_t>(rows.size()) == len;
    return start + rows[static_cast<size_t>(shared ? i : b * len + i)];
  }
};

// Smallest and largest position of a call. {0, -1} when there are no rows.
struct PositionRange {
  int64_t first = 0;
  int64_t last = -1;
};
PositionRange RangeOf(const RowPositions& positions, int64_t batch);

// Pairs of numbers that turn and grow with the position p: pair t is
// magnitude * exp(growth[t] * (p - center)) * (cos, sin)(frequency[t] * p).
struct Spectrum {
  std::vector<double> frequency;
  std::vector<double> growth;  // empty = no growth
  double magnitude = 1;
  double center = 0;
};

// Rope and Xpos.
struct RotationProblem {
  TensorView<const float> x;
  TensorView<float> output;
  RopePairing pairing = RopePairing::kHalf;
  RowPositions positions;
  int64_t rotary_dim = 0;
  Spectrum spectrum;                 // not read with tables
  int64_t grid_width = 0;            // > 0: the first half of the pairs turns by i / grid_width
  TensorView<const float> cos, sin;  // tables, batch broadcast
  float sign = 1;                    // -1: tables with negated sines

  int64_t pairs() const { return rotary_dim / 2; }
};

// Sinusoidal and learned codes: x + row(position).
struct AdditionProblem {
  TensorView<const float> x;  // absent = zeros
  TensorView<float> output;
  RowPositions positions;
  // Sinusoidal: cosines and sines of these frequencies, column 2t and 2t + 1 or t and n + t.
  Spectrum spectrum;
  bool interleaved = true;
  // Learned: rows of this table, or between them.
  TensorView<const float> table;
  bool interpolate = false;
};

// The rows of a learned table that row i of x lies between when the table is interpolated: `low`
// and, with the weight `of_high`, `high`.
struct TableShares {
  int64_t low, high;
  float of_high;
};
TableShares TableSharesOf(const AdditionProblem& problem, int64_t i);

// Everything but the output, which SetOutput checks.
RotationProblem ValidateRope(TensorView<const float> x, RopePairing pairing,
                             const RopeOptions& options);
RotationProblem ValidateXpos(TensorView<const float> x, RopePairing pairing, XposSide side,
                             const XposOptions& options);
AdditionProblem ValidateSinusoidal(TensorView<const float> x, const SinusoidalOptions& options);
AdditionProblem ValidateLearned(TensorView<const float> x, TensorView<const float> table,
                                const LearnedPositionOptions& options);
void SetOutput(RotationProblem& problem, TensorView<float> output);
void SetOutput(AdditionProblem& problem, TensorView<float> output);

// Check the output and run.
void Rotate(RotationProblem problem, TensorView<float> output, ThreadPool* pool);
void Add(AdditionProblem problem, TensorView<float> output, ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_POSITION_PROBLEM_H_
