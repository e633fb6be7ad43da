// causal_conv behind heed::Run: channels side by side, [batch, len, channels].
#include "src/choice.h"
#include "src/message.h"
#include "src/recurrent/causal_conv_problem.h"
#include "src/recurrent/request.h"
#include "src/view_checks.h"

namespace heed {
namespace {

void CheckRank(const RequestReader& reader, const char* name, int rank, const char* meaning) {
  const AnyTensor* tensor = reader.Input(name);
  if (tensor != nullptr && tensor->rank != rank) {
    Fail(ErrorCode::kShape, "{} has rank {}; expected {}", {name, tensor->rank, meaning});
  }
}

// [batch, len, channels], which the reader has as [1, batch, len, channels], with one head.
template <class T>
TensorView<T> WithOneHead(const TensorView<T>& view) {
  return {view.data,
          {view.shape[1], 1, view.shape[2], view.shape[3]},
          {view.strides[1], 0, view.strides[2], view.strides[3]}};
}

}  // namespace

ConvRequest ReadConv(const RequestReader& reader) {
  static constexpr Choice<ConvActivation> kActivations[] = {{"none", ConvActivation::kNone},
                                                            {"silu", ConvActivation::kSilu}};
  CheckRank(reader, "signal", 3, "[batch, len, channels]");
  CheckRank(reader, "conv_weight", 2, "[channels, conv_width]");
  CheckRank(reader, "conv_bias", 1, "[channels]");
  CheckRank(reader, "conv_state", 3, "[batch, conv_width - 1, channels]");
  CheckRank(reader, "key_lengths", 1, "[batch]");
  ConvRequest r;
  r.x = WithOneHead(reader.FloatTensor("signal"));
  r.weight = reader.FloatTensor("conv_weight");
  r.options.bias = reader.Floats("conv_bias");
  // An empty span means no bias at all.
  if (reader.Input("conv_bias") != nullptr && r.options.bias.size() != size_t(r.x.shape[3])) {
    Fail(ErrorCode::kShape, "conv_bias has {} values; expected one per channel ({})",
         {r.options.bias.size(), r.x.shape[3]});
  }
  r.options.activation =
      ReadChoice(reader, "conv_activation", kActivations).value_or(ConvActivation::kNone);
  r.options.lengths = reader.Ints("key_lengths");
  if (reader.Input("conv_state") != nullptr) {
    r.options.initial_state = WithOneHead(reader.FloatTensor("conv_state"));
  }
  r.return_state = reader.Flag("return_state");
  return r;
}

std::vector<OutputSpec> PlanCausalConv(const RequestReader& reader) {
  const ConvRequest r = ReadConv(reader);
  const ConvProblem p = ValidateConv(r.x, r.weight, r.options);
  std::vector<OutputSpec> specs = {{"output", 3, {p.batch, p.len, p.dim}}};
  if (r.return_state) specs.push_back({"state", 3, {p.batch, p.width - 1, p.dim}});
  return specs;
}

void RunCausalConv(const RequestReader& reader, std::span<const NamedTensor> outputs,
                   ThreadPool* pool) {
  const ConvRequest r = ReadConv(reader);
  // OutputView has them as [batch, len, channels, 1].
  const auto view = [&](std::string_view name) -> TensorView<float> {
    const TensorView<float> given = OutputView(outputs, name);
    return {given.data,
            {given.shape[0], 1, given.shape[1], given.shape[2]},
            {given.strides[0], 0, given.strides[1], given.strides[2]}};
  };
  CausalConv(r.x, r.weight, r.options,
             {view("output"), r.return_state ? view("state") : TensorView<float>{}}, pool);
}

}  // namespace heed
