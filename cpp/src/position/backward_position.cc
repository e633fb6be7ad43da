#include "src/position/backward_position.h"

#include <string_view>

#include "src/linear/backward_linear.h"
#include "src/parallel/pieces.h"
#include "src/position/request.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// What arrives at the output, [batch, num_heads, len, dim].
TensorView<const float> ReadArriving(std::span<const NamedTensor> d_results) {
  const TensorView<const float> d_output = TensorLikeX(d_results, "output");
  CheckInput("gradient of output", d_output);
  return d_output;
}

TensorView<float> PlaceOfX(const GradientPlaces& places) {
  return TensorLikeX(places.tensors(), "x");
}

// Where dimension t of a pair stands, and its partner.
struct Pair {
  int64_t first, second;
};
Pair PairOf(const RotationProblem& p, int64_t t) {
  if (p.pairing == RopePairing::kInterleaved) return {2 * t, 2 * t + 1};
  return {t, p.pairs() + t};
}

// With (y1, y2) = (x1 c - x2 s, x2 c + x1 s): dc = x . dy, ds = x1 dy2 - x2 dy1.
void TablesBackward(const RotationProblem& p, const TensorView<const float>& d_output,
                    const GradientPlaces& places, ThreadPool& pool) {
  const auto add = [&](std::string_view name, const auto& term) {
    const TensorView<float> table = places.Tensor(name);  // [1, batch or 1, rows, pairs]
    if (!table.has_value()) return;
    Clear({table.data, static_cast<size_t>(table.size())}, &pool);
    const int64_t len = p.x.shape[2], batch_rows = p.x.shape[1] * len;
    AddToTable(
        RowCount(p.x.shape), p.pairs(), &pool, table.data,
        [&](int64_t n) {
          const int64_t b = n / batch_rows, own = table.shape[1] > 1 ? b : 0;
          return own * table.shape[2] + p.positions(b, n % len);
        },
        [&](int64_t n) {
          return [&p, &term, x = RowOf(p.x, n), d = RowOf(d_output, n)](int64_t t) {
            return term(x, d, PairOf(p, t));
          };
        });
  };
  add("cos", [](const float* x, const float* d, const Pair& at) {
    return x[at.first] * d[at.first] + x[at.second] * d[at.second];
  });
  add("sin", [&p](const float* x, const float* d, const Pair& at) {
    return p.sign * (x[at.first] * d[at.second] - x[at.second] * d[at.first]);
  });
}

void RotationBackward(const RotationProblem& p, const TensorView<const float>& d_output,
                      const GradientPlaces& places, ThreadPool& pool) {
  const TensorView<float> d_x = PlaceOfX(places);
  if (d_x.has_value()) Rotate(TurnedBack(p, d_output), d_x, &pool);
  if (p.cos.has_value()) TablesBackward(p, d_output, places, pool);
}

void LearnedTableBackward(const AdditionProblem& p, const TensorView<const float>& d_output,
                          const TensorView<float>& table, ThreadPool& pool) {
  Clear({table.data, static_cast<size_t>(table.size())}, &pool);
  const int64_t len = d_output.shape[2], batch_rows = d_output.shape[1] * len;
  const auto shares = [&](int64_t n) -> TableShares {
    if (p.interpolate) return TableSharesOf(p, n % len);
    const int64_t row = p.positions(n / batch_rows, n % len);
    return {row, row, 0};
  };
  const auto add = [&](const auto& place, const auto& share) {
    AddToTable(RowCount(d_output.shape), table.shape[3], &pool, table.data, place, [&](int64_t n) {
      return [d = RowOf(d_output, n), factor = share(n)](int64_t c) { return factor * d[c]; };
    });
  };
  add([&](int64_t n) { return shares(n).low; }, [&](int64_t n) { return 1 - shares(n).of_high; });
  if (!p.interpolate) return;
  add([&](int64_t n) { return shares(n).of_high == 0 ? -1 : shares(n).high; },
      [&](int64_t n) { return shares(n).of_high; });
}

void AdditionBackward(const AdditionProblem& p, const TensorView<const float>& d_output,
                      const GradientPlaces& places, ThreadPool& pool) {
  const TensorView<float> d_x = PlaceOfX(places), d_table = places.Tensor("table");
  if (d_x.has_value()) CopyInto(d_output, d_x, pool);
  if (d_table.has_value()) LearnedTableBackward(p, d_output, d_table, pool);
}

}  // namespace

RotationProblem TurnedBack(RotationProblem problem, const TensorView<const float>& rows) {
  problem.x = rows;
  for (double& frequency : problem.spectrum.frequency) frequency = -frequency;
  problem.sign = -problem.sign;
  return problem;
}

void RopeBackward(const RequestReader& reader, std::span<const NamedTensor> d_results,
                  const GradientPlaces& places, ThreadPool& pool) {
  RotationBackward(ReadRope(reader), ReadArriving(d_results), places, pool);
}

void XposBackward(const RequestReader& reader, std::span<const NamedTensor> d_results,
                  const GradientPlaces& places, ThreadPool& pool) {
  RotationBackward(ReadXpos(reader), ReadArriving(d_results), places, pool);
}

void SinusoidalBackward(const RequestReader& reader, std::span<const NamedTensor> d_results,
                        const GradientPlaces& places, ThreadPool& pool) {
  AdditionBackward(ReadSinusoidal(reader), ReadArriving(d_results), places, pool);
}

void LearnedPositionBackward(const RequestReader& reader, std::span<const NamedTensor> d_results,
                             const GradientPlaces& places, ThreadPool& pool) {
  AdditionBackward(ReadLearnedPosition(reader), ReadArriving(d_results), places, pool);
}

}  // namespace heed
