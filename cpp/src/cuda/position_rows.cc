// Positions and the short convolution by name, on the device.
#include <vector>

#include "src/cuda/layer_steps.h"
#include "src/cuda/request_rows.h"
#include "src/position/request.h"
#include "src/recurrent/causal_conv_problem.h"
#include "src/recurrent/request.h"

namespace heed::cuda {
namespace {

template <auto kRead>
void RunRotationRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                    ComposedSteps& steps) {
  RotateRows(steps, kRead(reader), TensorLikeX(outputs, "output"));
}

// Which rows of a table each row lies between.
void SendShares(ComposedSteps& steps, const AdditionProblem& p, PositionCodeParams& params) {
  std::vector<int32_t> low, high;
  std::vector<float> share;
  for (int64_t i = 0; i < p.positions.len; ++i) {
    const TableShares shares = TableSharesOf(p, i);
    low.push_back(Narrow(shares.low));
    high.push_back(Narrow(shares.high));
    share.push_back(shares.of_high);
  }
  params.low = steps.SendArray(std::span<const int32_t>(low));
  params.high = steps.SendArray(std::span<const int32_t>(high));
  params.share = steps.SendArray(std::span<const float>(share));
}

template <auto kRead>
void RunAdditionRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                    ComposedSteps& steps) {
  const AdditionProblem p = kRead(reader);
  const TensorView<float> output = TensorLikeX(outputs, "output");
  PositionCodeParams params{};
  params.x = RowsOf(p.x);
  params.out = RowsOf(output);
  params.places = SendPlaces(steps, p.positions);
  params.phases = SendPhases(steps, p.spectrum);
  params.pairs = Narrow(static_cast<int64_t>(p.spectrum.frequency.size()));
  params.interleaved = p.interleaved;
  params.table = RowsOf(p.table);
  if (p.interpolate) SendShares(steps, p, params);
  SetHeads(output.shape, params);
  params.len = Narrow(output.shape[2]);
  params.width = Narrow(output.shape[3]);
  steps.Run(params);
}

void RunConvRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                ComposedSteps& steps) {
  const ConvRequest r = ReadConv(reader);
  const ConvProblem p = ValidateConv(r.x, r.weight, r.options);
  // [batch, len, channels] as one head.
  const auto rows_of = [&](std::string_view name) {
    const TensorView<float> view = OutputView(outputs, name);
    return FloatRows<float>{view.data, {view.strides[0], 0, view.strides[1]}};
  };
  ShortConvParams params{};
  params.x = RowsOf(p.x);
  params.initial = RowsOf(p.initial_state);
  params.weight = NumbersOf(p.weight);
  params.bias = {steps.SendArray(p.bias), {0, p.filters == 1 ? 0 : p.dim, 0, 1}};
  params.lengths = steps.SendArray(p.lengths);
  params.out = rows_of("output");
  params.silu = p.activation == ConvActivation::kSilu;
  params.batch = Narrow(p.batch);
  params.heads = Narrow(p.num_heads);
  params.len = Narrow(p.len);
  params.width = Narrow(p.dim);
  params.taps = Narrow(p.width);
  steps.Run(params);
  if (!r.return_state) return;
  params.out = rows_of("state");
  steps.Run(ConvStateParams{params});
}

constexpr InPlace kRowsOfX = {"output", "x"};
constexpr DeviceRow kRows[] = {
    {"rope", PlanPosition<ReadRope>, RunRotationRow<ReadRope>, kRowsOfX},
    {"xpos", PlanPosition<ReadXpos>, RunRotationRow<ReadXpos>, kRowsOfX},
    {"sinusoidal", PlanPosition<ReadSinusoidal>, RunAdditionRow<ReadSinusoidal>, kRowsOfX},
    {"learned_position", PlanPosition<ReadLearnedPosition>, RunAdditionRow<ReadLearnedPosition>,
     kRowsOfX},
    {"causal_conv", PlanCausalConv, RunConvRow, {"state", "conv_state"}}};

}  // namespace

std::span<const DeviceRow> PositionRows() { return kRows; }

}  // namespace heed::cuda
