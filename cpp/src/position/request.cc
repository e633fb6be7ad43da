#include "src/position/request.h"

#include <string>
#include <utility>

#include "src/choice.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// [len, dim], [batch, len, dim] or [batch, num_heads, len, dim] as [batch, num_heads, len, dim].
template <typename T>
TensorView<T> AsHeads(std::string_view name, const AnyTensor& tensor) {
  T* data = static_cast<T*>(tensor.data);
  const auto& shape = tensor.shape;
  const auto& strides = tensor.strides;
  switch (tensor.rank) {
    case 4:
      return {data, shape, strides};
    case 3:
      return {data, {shape[0], 1, shape[1], shape[2]}, {strides[0], 0, strides[1], strides[2]}};
    case 2:
      return {data, {1, 1, shape[0], shape[1]}, {0, 0, strides[0], strides[1]}};
    default:
      Fail(ErrorCode::kShape,
           "{} has rank {}; expected [batch, num_heads, len, dim], [batch, len, dim] or [len, dim]",
           {name, tensor.rank});
  }
}

TensorView<const float> ReadX(const RequestReader& reader) {
  reader.FloatTensor("x");  // its element type
  const AnyTensor* x = reader.Input("x");
  if (x == nullptr) Fail(ErrorCode::kOption, "input x is missing");
  return AsHeads<const float>("x", *x);
}

Positions ReadPositions(const RequestReader& reader, const TensorView<const float>& x) {
  Positions positions;
  for (const double number : reader.Numbers("position_offset")) {
    positions.offset.push_back(WholeNumber("position_offset", number));
  }
  if (reader.Param("position_offset") != nullptr && positions.offset.empty()) {
    Fail(ErrorCode::kShape, "position_offset is an empty list; expected 1 or batch values");
  }
  const AnyTensor* tensor = reader.Input("positions");
  if (tensor == nullptr) return positions;
  const bool shared = tensor->rank == 1 && tensor->shape[0] == x.shape[2];
  const bool own =
      tensor->rank == 2 && tensor->shape[0] == x.shape[0] && tensor->shape[1] == x.shape[2];
  if (!shared && !own) {
    Fail(ErrorCode::kShape, "positions must have the shape [len] = [{}] or [batch, len] = [{}, {}]",
         {x.shape[2], x.shape[0], x.shape[2]});
  }
  positions.rows = reader.Ints("positions");
  return positions;
}

RopePairing ReadPairing(const RequestReader& reader) {
  static constexpr Choice<RopePairing> kWords[] = {{"half", RopePairing::kHalf},
                                                   {"interleaved", RopePairing::kInterleaved}};
  return ReadRequiredChoice(reader, "pairing", kWords);
}

std::optional<ImageGrid> ReadImage(const RequestReader& reader) {
  const std::optional<int64_t> height = reader.Count("image_height");
  const std::optional<int64_t> width = reader.Count("image_width");
  if (height.has_value() != width.has_value()) {
    Fail(ErrorCode::kOption, "image_height and image_width belong together; one is missing");
  }
  if (!height) return {};
  return ImageGrid{*height, *width};
}

// [rows, pairs] or [batch, rows, pairs] as [batch, 1, rows, pairs].
TensorView<const float> ReadTable(const RequestReader& reader, std::string_view name) {
  const TensorView<const float> view = reader.FloatTensor(name);
  const AnyTensor* tensor = reader.Input(name);
  if (tensor == nullptr) return {};
  if (tensor->rank != 2 && tensor->rank != 3) {
    Fail(ErrorCode::kShape, "{} has rank {}; expected [rows, pairs] or [batch, rows, pairs]",
         {name, tensor->rank});
  }
  return {view.data,
          {view.shape[1], 1, view.shape[2], view.shape[3]},
          {view.strides[1], 0, view.strides[2], view.strides[3]}};
}

}  // namespace

RopeScaling ReadScaling(const RequestReader& reader) {
  using Kind = RopeScaling::Kind;
  static constexpr Choice<Kind> kWords[] = {
      {"none", Kind::kNone}, {"linear", Kind::kLinear},
      {"ntk", Kind::kNtk},   {"dynamic_ntk", Kind::kDynamicNtk},
      {"yarn", Kind::kYarn}, {"llama3", Kind::kLlama3}};
  RopeScaling scaling;
  scaling.kind = ReadChoice(reader, "scaling", kWords).value_or(Kind::kNone);
  const std::optional<double> factor = reader.Number("scaling_factor");
  if (!factor && scaling.kind != Kind::kNone) {
    Fail(ErrorCode::kOption, "scaling_factor is missing: scaling needs it");
  }
  scaling.factor = factor.value_or(1);
  scaling.original_len = reader.Count("original_len").value_or(0);
  scaling.seq_len = reader.Count("seq_len");
  scaling.beta_fast = reader.Number("beta_fast").value_or(scaling.beta_fast);
  scaling.beta_slow = reader.Number("beta_slow").value_or(scaling.beta_slow);
  static constexpr Choice<RopeScaling::Bounds> kBounds[] = {{"whole", RopeScaling::Bounds::kWhole},
                                                            {"exact", RopeScaling::Bounds::kExact}};
  scaling.bounds = ReadChoice(reader, "yarn_bounds", kBounds).value_or(scaling.bounds);
  scaling.attention_factor = reader.Number("attention_factor");
  scaling.low_freq_factor = reader.Number("low_freq_factor").value_or(scaling.low_freq_factor);
  scaling.high_freq_factor = reader.Number("high_freq_factor").value_or(scaling.high_freq_factor);
  return scaling;
}

RotationProblem ReadRope(const RequestReader& reader) {
  const TensorView<const float> x = ReadX(reader);
  RopeOptions options;
  options.positions = ReadPositions(reader, x);
  options.rotary_dim = reader.Count("rotary_dim");
  options.base = reader.Number("base").value_or(options.base);
  options.scaling = ReadScaling(reader);
  options.image = ReadImage(reader);
  options.inverse = reader.Flag("inverse");
  options.cos = ReadTable(reader, "cos");
  options.sin = ReadTable(reader, "sin");
  if (reader.Input("cos") != nullptr && reader.Param("base") != nullptr) {
    Fail(ErrorCode::kOption, "base and cos are both given; the angles come from one of them");
  }
  return ValidateRope(x, ReadPairing(reader), options);
}

RotationProblem ReadXpos(const RequestReader& reader) {
  static constexpr Choice<XposSide> kSides[] = {{"query", XposSide::kQuery},
                                                {"key", XposSide::kKey}};
  const TensorView<const float> x = ReadX(reader);
  XposOptions options;
  options.positions = ReadPositions(reader, x);
  options.rotary_dim = reader.Count("rotary_dim");
  options.base = reader.Number("base").value_or(options.base);
  options.scaling = ReadScaling(reader);
  options.inverse = reader.Flag("inverse");
  options.gamma = reader.Number("gamma").value_or(options.gamma);
  options.scale_base = reader.Number("scale_base").value_or(options.scale_base);
  options.center = reader.Number("center").value_or(options.center);
  const XposSide side = ReadRequiredChoice(reader, "side", kSides);
  return ValidateXpos(x, ReadPairing(reader), side, options);
}

AdditionProblem ReadSinusoidal(const RequestReader& reader) {
  using Layout = SinusoidalLayout;
  using Spacing = SinusoidalSpacing;
  static constexpr Choice<Layout> kLayouts[] = {{"interleaved", Layout::kInterleaved},
                                                {"concatenated", Layout::kConcatenated}};
  static constexpr Choice<Spacing> kSpacings[] = {{"open", Spacing::kOpen},
                                                  {"closed", Spacing::kClosed}};
  const TensorView<const float> x = ReadX(reader);
  CheckInput("x", x);
  SinusoidalOptions options;
  options.positions = ReadPositions(reader, x);
  options.layout = ReadChoice(reader, "code_layout", kLayouts).value_or(options.layout);
  options.spacing = ReadChoice(reader, "spacing", kSpacings).value_or(options.spacing);
  options.base = reader.Number("base").value_or(options.base);
  return ValidateSinusoidal(x, options);
}

AdditionProblem ReadLearnedPosition(const RequestReader& reader) {
  const TensorView<const float> x = ReadX(reader);
  const AnyTensor* table = reader.Input("table");
  if (table == nullptr) Fail(ErrorCode::kOption, "input table is missing");
  LearnedPositionOptions options;
  options.positions = ReadPositions(reader, x);
  options.interpolate = reader.Flag("interpolate");
  return ValidateLearned(x, reader.FloatTensor("table"), options);
}

std::vector<OutputSpec> PlanLikeX(const RequestReader& reader) {
  const AnyTensor* x = reader.Input("x");
  return {{"output", x->rank, x->shape}};
}

TensorView<float> TensorLikeX(std::span<const NamedTensor> tensors, std::string_view name) {
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name != name) continue;
    if (tensor.tensor.dtype != DType::kFloat32) {
      Fail(ErrorCode::kDType, "{} must be float32", {name});
    }
    return AsHeads<float>(name, tensor.tensor);
  }
  return {};
}

}  // namespace heed
