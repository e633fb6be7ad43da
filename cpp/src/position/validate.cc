// The boundary of the position functions: everything that can be wrong with a call is found here.
#include <algorithm>
#include <cmath>
#include <string>

#include "src/message.h"
#include "src/output_spans.h"
#include "src/position/problem.h"
#include "src/power.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr char kMeaning[] = "[batch, num_heads, len, dim], as x";

RowPositions CheckPositions(const Positions& given, TensorView<const float> x) {
  const auto [batch, heads, len, dim] = x.shape;
  RowPositions positions;
  positions.len = len;
  positions.offset = given.offset.empty() ? std::vector<int64_t>{0} : given.offset;
  if (positions.offset.size() != 1 && static_cast<int64_t>(positions.offset.size()) != batch) {
    Fail(ErrorCode::kShape, "offset has {} values; expected 1 or batch = {}",
         {positions.offset.size(), batch});
  }
  const int64_t rows = static_cast<int64_t>(given.rows.size());
  if (given.rows.data() != nullptr && rows != len && rows != batch * len) {
    Fail(ErrorCode::kShape, "positions has {} values; expected len = {} or batch * len = {}",
         {rows, len, batch * len});
  }
  positions.rows = given.rows;
  positions.per_batch = positions.offset.size() > 1 || rows > len;
  for (const int64_t offset : positions.offset) {
    if (offset > kMaxRowPosition || offset < -kMaxRowPosition) {
      Fail(ErrorCode::kRange, "offset = {}; positions lie within +-2^31", {offset});
    }
  }
  const PositionRange range = RangeOf(positions, batch);
  if (range.first < -kMaxRowPosition || range.last > kMaxRowPosition) {
    Fail(ErrorCode::kRange, "positions reach from {} to {}; they lie within +-2^31",
         {range.first, range.last});
  }
  return positions;
}

int64_t CheckRotaryDim(const std::optional<int64_t>& given, int64_t dim, int64_t multiple) {
  const int64_t rotary_dim = given.value_or(dim);
  if (rotary_dim < multiple || rotary_dim > dim || rotary_dim % multiple != 0) {
    const std::string text = "rotary_dim = " + std::to_string(rotary_dim) +
                             (given ? "" : " (the last extent of x)") +
                             "; it must be a multiple of " + std::to_string(multiple) + " from " +
                             std::to_string(multiple) + " to dim = " + std::to_string(dim);
    Fail(given ? ErrorCode::kRange : ErrorCode::kShape, text);
  }
  return rotary_dim;
}

void CheckNoPositions(const Positions& given, std::string_view other) {
  const bool zero = given.offset.empty() || (given.offset.size() == 1 && given.offset[0] == 0);
  if (!zero || given.rows.data() != nullptr) {
    Fail(ErrorCode::kOption, "positions and {} are both given; give one", {other});
  }
}

void CheckImage(RotationProblem& p, const RopeOptions& options) {
  const ImageGrid& image = *options.image;
  CheckNoPositions(options.positions, "image");
  const int64_t len = p.x.shape[2];
  if (image.height < 0 || image.width < 0 ||
      (image.height > 0 && image.width > len / image.height) || image.height * image.width != len) {
    Fail(ErrorCode::kShape, "image is {} x {} patches, but x has len = {}",
         {image.height, image.width, len});
  }
  p.grid_width = std::max<int64_t>(image.width, 1);
}

// Both tables as [batch, 1, rows, pairs]; every position has a row.
void CheckTables(RotationProblem& p, const RopeOptions& options) {
  p.cos = options.cos;
  p.sin = options.sin;
  if (!p.cos.has_value() || !p.sin.has_value()) {
    Fail(ErrorCode::kOption, "cos and sin belong together; one of them is missing");
  }
  if (options.image || options.scaling.kind != RopeScaling::Kind::kNone) {
    Fail(ErrorCode::kOption,
         "cos and sin replace the angles; scaling and image have nothing to act on");
  }
  const int64_t batch = p.x.shape[0];
  const int64_t rows = p.cos.shape[2];
  for (const auto& [name, view] : {std::pair("cos", &p.cos), std::pair("sin", &p.sin)}) {
    const Extents expected = {view->shape[0] == 1 ? 1 : batch, 1, rows, p.pairs()};
    CheckInput(name, *view);
    CheckShape(name, view->shape, expected, "[1 or batch, 1, rows, rotary_dim / 2], cos as sin");
    if (view->shape[0] == 1) view->strides[0] = 0;
  }
  const PositionRange range = RangeOf(p.positions, batch);
  if (range.first < 0 || range.last >= rows) {
    if (range.first <= range.last) {
      Fail(ErrorCode::kRange, "positions reach from {} to {}, but cos and sin have {} rows",
           {range.first, range.last, rows});
    }
  }
  p.sign = options.inverse ? -1.0f : 1.0f;
}

void Invert(Spectrum& spectrum) {
  for (double& f : spectrum.frequency) f = -f;
  for (double& g : spectrum.growth) g = -g;
  spectrum.magnitude = 1 / spectrum.magnitude;
}

// The spectrum of a rotation without image: frequencies and magnitude.
Spectrum RotationSpectrum(const RotationProblem& p, double base, const RopeScaling& scaling) {
  const int64_t seq_len = RangeOf(p.positions, p.x.shape[0]).last + 1;
  return {.frequency = RopeFrequencies(p.rotary_dim, base, scaling, seq_len),
          .growth = {},
          .magnitude = RopeMagnitude(scaling)};
}

RotationProblem StartRotation(TensorView<const float> x, RopePairing pairing,
                              const Positions& positions) {
  CheckInput("x", x);
  CheckEnum("pairing", pairing, RopePairing::kInterleaved);
  RotationProblem p;
  p.x = x;
  p.pairing = pairing;
  p.positions = CheckPositions(positions, x);
  return p;
}

// zeta_t^(distance / scale_base) for all distances of the call stays a float.
void CheckGrowth(const RotationProblem& p, double center) {
  const PositionRange range = RangeOf(p.positions, p.x.shape[0]);
  double distance = 64;  // what the kernel's tables reach beyond a position
  if (range.first <= range.last) {
    distance = std::max({distance, std::abs(static_cast<double>(range.first) - center),
                         std::abs(static_cast<double>(range.last) - center)});
  }
  double fastest = 0;
  for (const double g : p.spectrum.growth) fastest = std::max(fastest, std::abs(g));
  if (!(fastest * distance <= 80)) {
    Fail(ErrorCode::kRange,
         "xPos scales reach e^{} at the positions of this call; they must stay within e^+-80 "
         "(raise scale_base or gamma, or set center to the middle of the positions)",
         {fastest * distance});
  }
}

// An absent x has its shape only.
AdditionProblem StartAddition(TensorView<const float> x, const Positions& positions) {
  if (x.has_value()) CheckInput("x", x);
  CheckExtents("x", x.shape, x.strides, sizeof(float));
  AdditionProblem p;
  p.x = x;
  p.positions = CheckPositions(positions, x);
  return p;
}

}  // namespace

PositionRange RangeOf(const RowPositions& positions, int64_t batch) {
  if (positions.len == 0 || batch == 0) return {};
  const auto [low, high] = std::minmax_element(positions.offset.begin(), positions.offset.end());
  if (positions.rows.empty()) return {*low, *high + positions.len - 1};
  PositionRange range = {positions(0, 0), positions(0, 0)};
  for (int64_t b = 0; b < (positions.per_batch ? batch : 1); ++b) {
    for (int64_t i = 0; i < positions.len; ++i) {
      const int64_t position = positions(b, i);
      range.first = std::min(range.first, position);
      range.last = std::max(range.last, position);
    }
  }
  return range;
}

void SetOutput(RotationProblem& problem, TensorView<float> output) {
  CheckOutput("output", output, problem.x.shape, kMeaning);
  OutputSpans({{"output", output}})
      .MayReplace("x", problem.x)
      .ApartFrom("cos", problem.cos)
      .ApartFrom("sin", problem.sin)
      .ApartFrom("positions.rows", problem.positions.rows);
  problem.output = output;
}

void SetOutput(AdditionProblem& problem, TensorView<float> output) {
  CheckOutput("output", output, problem.x.shape, kMeaning);
  OutputSpans({{"output", output}})
      .MayReplace("x", problem.x)
      .ApartFrom("table", problem.table)
      .ApartFrom("positions.rows", problem.positions.rows);
  problem.output = output;
}

RotationProblem ValidateRope(TensorView<const float> x, RopePairing pairing,
                             const RopeOptions& options) {
  RotationProblem p = StartRotation(x, pairing, options.positions);
  p.rotary_dim = CheckRotaryDim(options.rotary_dim, x.shape[3], options.image ? 4 : 2);
  if (options.cos.has_value() || options.sin.has_value()) {
    CheckTables(p, options);
    return p;
  }
  if (options.image) {
    CheckImage(p, options);
    RotationProblem half = p;
    half.rotary_dim /= 2;
    half.positions.len = std::max(options.image->height, options.image->width);
    p.spectrum = RotationSpectrum(half, options.base, options.scaling);
    const std::vector<double> one_axis = p.spectrum.frequency;
    p.spectrum.frequency.insert(p.spectrum.frequency.end(), one_axis.begin(), one_axis.end());
  } else {
    p.spectrum = RotationSpectrum(p, options.base, options.scaling);
  }
  if (options.inverse) Invert(p.spectrum);
  return p;
}

RotationProblem ValidateXpos(TensorView<const float> x, RopePairing pairing, XposSide side,
                             const XposOptions& options) {
  CheckEnum("side", side, XposSide::kKey);
  RotationProblem p = StartRotation(x, pairing, options.positions);
  p.rotary_dim = CheckRotaryDim(options.rotary_dim, x.shape[3], 2);
  p.spectrum = RotationSpectrum(p, options.base, options.scaling);
  for (const auto& [name, value] :
       {std::pair("gamma", options.gamma), std::pair("scale_base", options.scale_base)}) {
    if (!(value > 0) || !std::isfinite(value)) {
      Fail(ErrorCode::kRange, "{} = {}; it must be positive and finite", {name, value});
    }
  }
  CheckFinite("center", options.center);
  p.spectrum.center = options.center;
  const double sign = side == XposSide::kQuery ? 1 : -1;
  for (int64_t t = 0; t < p.pairs(); ++t) {
    const double part = 2 * static_cast<double>(t) / static_cast<double>(p.rotary_dim);
    const double zeta = (part + options.gamma) / (1 + options.gamma);
    p.spectrum.growth.push_back(sign * std::log(zeta) / options.scale_base);
  }
  CheckGrowth(p, options.center);
  if (options.inverse) Invert(p.spectrum);
  return p;
}

AdditionProblem ValidateSinusoidal(TensorView<const float> x, const SinusoidalOptions& options) {
  AdditionProblem p = StartAddition(x, options.positions);
  if (!(options.base > 1) || !std::isfinite(options.base)) {
    Fail(ErrorCode::kRange, "base = {}; it must be finite and above 1", {options.base});
  }
  CheckEnum("layout", options.layout, SinusoidalLayout::kConcatenated);
  CheckEnum("spacing", options.spacing, SinusoidalSpacing::kClosed);
  p.interleaved = options.layout == SinusoidalLayout::kInterleaved;
  const int64_t dim = p.x.shape[3];
  const int64_t count = p.interleaved ? (dim + 1) / 2 : dim / 2;
  const bool closed = options.spacing == SinusoidalSpacing::kClosed;
  // Open spacing counts columns: 2t / dim when interleaved, t / n when concatenated; they are the
  // same for an even dim.
  const double steps = closed          ? static_cast<double>(std::max<int64_t>(count - 1, 1))
                       : p.interleaved ? static_cast<double>(dim) / 2
                                       : static_cast<double>(count);
  for (int64_t t = 0; t < count; ++t) {
    p.spectrum.frequency.push_back(Power(options.base, -static_cast<double>(t) / steps));
  }
  return p;
}

AdditionProblem ValidateLearned(TensorView<const float> x, TensorView<const float> table,
                                const LearnedPositionOptions& options) {
  CheckPresent("x", x);
  AdditionProblem p = StartAddition(x, options.positions);
  CheckInput("table", table);
  const int64_t max_len = table.shape[2];
  CheckShape("table", table.shape, {1, 1, max_len, x.shape[3]},
             "[1, 1, max_len, dim], dim as in x");
  p.table = table;
  p.interpolate = options.interpolate;
  if (options.interpolate) CheckNoPositions(options.positions, "interpolate");
  const PositionRange range = RangeOf(p.positions, x.shape[0]);
  if (range.first > range.last) return p;
  if (options.interpolate ? max_len == 0 : range.first < 0 || range.last >= max_len) {
    Fail(ErrorCode::kRange, "positions reach from {} to {}, but table has {} rows",
         {range.first, range.last, max_len});
  }
  return p;
}

}  // namespace heed
