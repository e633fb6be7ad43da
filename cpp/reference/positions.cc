#include "positions.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace heed::reference {
namespace {

constexpr int64_t kMostPosition = int64_t{1} << 31;

std::vector<int64_t> ReadOffsets(const Request& request, int64_t batch) {
  const ParamValue* value = FindParam(request, "position_offset");
  if (value == nullptr) return std::vector<int64_t>(batch, 0);
  if (const double* number = std::get_if<double>(value)) {
    return std::vector<int64_t>(batch, WholeNumber(*number, "position_offset"));
  }
  const auto* list = std::get_if<std::vector<double>>(value);
  if (list == nullptr)
    throw Error(ErrorCode::kOption, "position_offset must be a number or a list");
  std::vector<int64_t> offsets;
  for (const double number : *list) offsets.push_back(WholeNumber(number, "position_offset"));
  if (offsets.empty()) throw Error(ErrorCode::kShape, "position_offset is an empty list");
  const size_t given = offsets.size();
  if (given == 1) offsets = std::vector(std::max<int64_t>(batch, 1), offsets[0]);
  if (given > 1 && static_cast<int64_t>(given) != batch) {
    throw Error(ErrorCode::kShape, "position_offset must have 1 or batch values");
  }
  return offsets;
}

double ReadPositive(const Request& request, const char* name, double fallback) {
  const double value = ReadNumber(request, name).value_or(fallback);
  if (value > 0) return value;
  throw Error(ErrorCode::kRange, std::string(name) + " must be positive");
}

double TrainedLength(const Request& request) {
  const std::optional<int64_t> length = ReadCount(request, "original_len");
  if (length && *length >= 1) return static_cast<double>(*length);
  throw Error(ErrorCode::kOption, "original_len is needed by this scaling, at least 1");
}

// base^(-2t / d).
std::vector<double> PlainFrequencies(int64_t rotary_dim, double base) {
  std::vector<double> frequency;
  for (int64_t t = 0; t < rotary_dim / 2; ++t) {
    frequency.push_back(std::pow(base, -2.0 * t / rotary_dim));
  }
  return frequency;
}

// NTK: the base at which the slowest of the pairs is divided by factor.
std::vector<double> NtkFrequencies(int64_t rotary_dim, double base, double factor) {
  if (rotary_dim == 2) return {1.0};
  const double d = static_cast<double>(rotary_dim);
  return PlainFrequencies(rotary_dim, base * std::pow(factor, d / (d - 2.0)));
}

// YaRN, as in the authors' code: the ramp runs over the index of the pair.
void Yarn(const Request& request, double base, double factor, Rotation& rotation) {
  const double length = TrainedLength(request);
  const double d = 2.0 * rotation.frequency.size();
  const auto pair_that_turns = [&](double turns) {
    return d * std::log(length / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(base));
  };
  const double fast = ReadPositive(request, "beta_fast", 32.0);
  const double slow = ReadPositive(request, "beta_slow", 1.0);
  if (fast < slow) throw Error(ErrorCode::kRange, "beta_fast must not be below beta_slow");
  const bool whole =
      ReadWord(request, "yarn_bounds", {"whole", "exact"}).value_or("whole") == "whole";
  double low = pair_that_turns(fast), high = pair_that_turns(slow);
  if (whole) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, d - 1.0);
  if (low == high) high += 0.001;
  for (size_t t = 0; t < rotation.frequency.size(); ++t) {
    const double stretched = std::clamp((static_cast<double>(t) - low) / (high - low), 0.0, 1.0);
    double& f = rotation.frequency[t];
    f = stretched * (f / factor) + (1.0 - stretched) * f;
  }
  const double usual = factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0;
  rotation.magnitude = ReadPositive(request, "attention_factor", usual);
}

// Llama 3.1: three bands of wavelengths.
void Llama3(const Request& request, double factor, Rotation& rotation) {
  const double length = TrainedLength(request);
  const double low = ReadPositive(request, "low_freq_factor", 1.0);
  const double high = ReadPositive(request, "high_freq_factor", 4.0);
  if (low > high) throw Error(ErrorCode::kRange, "low_freq_factor is above high_freq_factor");
  for (double& f : rotation.frequency) {
    const double wavelength = 2.0 * std::numbers::pi / f;
    if (wavelength > length / low) {
      f /= factor;
    } else if (low < high && wavelength >= length / high) {
      const double smooth = (length / wavelength - low) / (high - low);
      f = (1.0 - smooth) * f / factor + smooth * f;
    }
  }
}

}  // namespace

int64_t PositionedInput::LargestPosition() const {
  return position.empty() ? -1 : *std::max_element(position.begin(), position.end());
}

PositionedInput ReadPositioned(const Request& request) {
  const AnyTensor& x = *FindInput(request, "x");
  if (x.rank < 2) {
    throw Error(ErrorCode::kShape, Describe("x", x) + ": expected rank 2, 3 or 4");
  }
  PositionedInput in;
  in.rank = x.rank;
  in.x = ReadFloats(request, "x");
  if (x.rank == 3) std::swap(in.x.shape[0], in.x.shape[1]);  // [1, batch, len, dim]
  in.batch = in.x.shape[0], in.num_heads = in.x.shape[1];
  in.len = in.x.shape[2], in.dim = in.x.shape[3];
  const std::vector<int64_t> offset = ReadOffsets(request, in.batch);
  const std::optional<Array> rows = ReadIntegers(request, "positions");
  if (rows) {
    const AnyTensor& tensor = *FindInput(request, "positions");
    const bool fits = tensor.rank == 1 ? tensor.shape[0] == in.len
                                       : tensor.shape[0] == in.batch && tensor.shape[1] == in.len;
    if (!fits) {
      throw Error(ErrorCode::kShape, "positions must have the shape [len] or [batch, len]");
    }
  }
  const bool shared = rows && FindInput(request, "positions")->rank == 1;
  for (int64_t b = 0; b < in.batch; ++b) {
    for (int64_t i = 0; i < in.len; ++i) {
      const int64_t row =
          rows ? static_cast<int64_t>(rows->values[shared ? i : b * in.len + i]) : i;
      in.position.push_back(offset[b] + row);
      if (std::abs(in.position.back()) > kMostPosition || std::abs(offset[b]) > kMostPosition) {
        throw Error(ErrorCode::kRange, "positions lie within +-2^31");
      }
    }
  }
  return in;
}

std::string ReadChoice(const Request& request, const std::string& name,
                       const std::vector<std::string>& allowed) {
  const std::optional<std::string> word = ReadWord(request, name, allowed);
  if (!word) throw Error(ErrorCode::kOption, name + " is missing");
  return *word;
}

double ReadBase(const Request& request, const char* name) {
  const double base = ReadNumber(request, name).value_or(10000.0);
  if (!(base > 1.0)) throw Error(ErrorCode::kRange, std::string(name) + " must be above 1");
  return base;
}

int64_t ReadRotaryDim(const Request& request, const PositionedInput& in, int64_t multiple) {
  const std::optional<int64_t> given = ReadCount(request, "rotary_dim");
  const int64_t rotary_dim = given.value_or(in.dim);
  if (rotary_dim < multiple || rotary_dim > in.dim || rotary_dim % multiple != 0) {
    throw Error(given ? ErrorCode::kRange : ErrorCode::kShape,
                "rotary_dim must be a multiple of " + std::to_string(multiple) + " up to dim");
  }
  return rotary_dim;
}

Rotation ReadRotation(const Request& request, int64_t rotary_dim, int64_t call_len, double base) {
  const std::string scaling =
      ReadWord(request, "scaling", {"none", "linear", "ntk", "dynamic_ntk", "yarn", "llama3"})
          .value_or("none");
  Rotation rotation{.frequency = PlainFrequencies(rotary_dim, base)};
  if (scaling == "none") return rotation;
  if (FindParam(request, "scaling_factor") == nullptr) {
    throw Error(ErrorCode::kOption, "scaling_factor is missing");
  }
  const double factor = ReadPositive(request, "scaling_factor", 1.0);
  if (scaling == "linear") {
    for (double& f : rotation.frequency) f /= factor;
  } else if (scaling == "ntk") {
    rotation.frequency = NtkFrequencies(rotary_dim, base, factor);
  } else if (scaling == "dynamic_ntk") {
    const double trained = TrainedLength(request);
    const double len = ReadCount(request, "seq_len").value_or(call_len);
    if (len > trained) {
      rotation.frequency =
          NtkFrequencies(rotary_dim, base, factor * len / trained - (factor - 1.0));
    }
  } else if (scaling == "yarn") {
    Yarn(request, base, factor, rotation);
  } else {
    Llama3(request, factor, rotation);
  }
  return rotation;
}

PairOfDims DimsOfPair(const std::string& pairing, int64_t t, int64_t rotary_dim) {
  if (pairing == "interleaved") return {2 * t, 2 * t + 1};
  return {t, t + rotary_dim / 2};
}

std::vector<Result> OutputLike(const PositionedInput& in, std::vector<double> values) {
  Extents shape{in.batch, in.num_heads, in.len, in.dim};
  if (in.rank == 3) shape = {in.batch, in.len, in.dim, 0};
  if (in.rank == 2) shape = {in.len, in.dim, 0, 0};
  return {{"output", in.rank, shape, std::move(values)}};
}

}  // namespace heed::reference
