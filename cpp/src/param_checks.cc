#include "src/param_checks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "heed/registry.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr double kMaxWhole = 9007199254740992.0;  // 2^53: beyond, doubles skip integers

[[noreturn]] void FailType(std::string_view name, const char* expected) {
  Fail(ErrorCode::kOption, "{} must be {}", {name, expected});
}

void CheckWord(std::string_view name, std::string_view range, std::string_view given) {
  std::string known;
  for (std::string_view rest = range; !rest.empty();) {
    const size_t end = std::min(rest.find('|'), rest.size());
    const std::string_view word = rest.substr(0, end);
    if (word == given) return;
    known += (known.empty() ? "\"" : ", \"") + std::string(word) + "\"";
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  Fail(ErrorCode::kOption, "{} = \"{}\"; expected one of {}", {name, given, known});
}

void CheckNumber(std::string_view name, double value, bool whole, bool negative) {
  if (!std::isfinite(value)) {
    Fail(ErrorCode::kRange, "{} = {}; it must be finite", {name, value});
  }
  if (whole && (value != std::floor(value) || std::abs(value) > kMaxWhole)) {
    Fail(ErrorCode::kRange, "{} = {}; expected a whole number within +-2^53", {name, value});
  }
  if (!negative && value < 0) {
    Fail(ErrorCode::kRange, "{} = {}; it must be at least 0", {name, value});
  }
}

// One number, or a list where lists are allowed.
void CheckNumbers(const NamedParam& param, bool lists, bool whole, bool negative,
                  const char* expected) {
  const auto* number = std::get_if<double>(&param.value);
  const auto* list = std::get_if<std::vector<double>>(&param.value);
  if (number == nullptr && (list == nullptr || !lists)) FailType(param.name, expected);
  if (number != nullptr) CheckNumber(param.name, *number, whole, negative);
  if (list == nullptr) return;
  for (const double value : *list) CheckNumber(param.name, value, whole, negative);
}

// Offsets and seeds may be text, which their readers know.
void CheckOrText(const NamedParam& param, bool lists, bool negative, const char* expected) {
  if (std::holds_alternative<std::string>(param.value)) return;
  CheckNumbers(param, lists, true, negative, expected);
}

// How many extents a shape has: words separated by single spaces.
int RankOf(std::string_view shape) {
  while (shape.starts_with(' ')) shape.remove_prefix(1);
  while (shape.ends_with(' ')) shape.remove_suffix(1);
  return 1 + static_cast<int>(std::ranges::count(shape, ' '));
}

const Input* FindInput(std::string_view name) {
  for (const Input& row : Inputs()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

// Calls `visit` with every symbol of the first shape of this rank, its axis and whether it may be 1
// instead.
template <class Visit>
void ForEachSymbol(std::string_view shapes, int rank, const Visit& visit) {
  while (!shapes.empty()) {
    const size_t end = std::min(shapes.find('|'), shapes.size());
    std::string_view shape = shapes.substr(0, end);
    shapes.remove_prefix(std::min(end + 1, shapes.size()));
    if (RankOf(shape) != rank) continue;
    for (size_t axis = 0; !shape.empty();) {
      const size_t stop = std::min(shape.find(' '), shape.size());
      std::string_view symbol = shape.substr(0, stop);
      shape.remove_prefix(std::min(stop + 1, shape.size()));
      if (symbol.empty()) continue;
      const bool broadcasts = symbol.ends_with('?');
      if (broadcasts) symbol.remove_suffix(1);
      visit(symbol, axis++, broadcasts);
    }
    return;
  }
}

bool HasRank(std::string_view shapes, int rank) {
  for (std::string_view rest = shapes; !rest.empty();) {
    const size_t end = std::min(rest.find('|'), rest.size());
    if (RankOf(rest.substr(0, end)) == rank) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

bool HasZero(const NamedTensor& input) {
  const AnyTensor& tensor = input.tensor;
  return std::count(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, 0) > 0;
}

}  // namespace

void CheckTensor(const NamedTensor& input) {
  const AnyTensor& tensor = input.tensor;
  if (tensor.rank < 0 || tensor.rank > 4) {
    Fail(ErrorCode::kShape, "{} has rank {}; ranks are 0 to 4", {input.name, tensor.rank});
  }
  for (size_t axis = 0; axis < static_cast<size_t>(tensor.rank); ++axis) {
    if (tensor.shape[axis] < 0) Fail(ErrorCode::kShape, "{} has a negative extent", {input.name});
  }
}

void CheckData(const NamedTensor& input) {
  const AnyTensor& tensor = input.tensor;
  if (tensor.data != nullptr) return;
  for (int axis = 0; axis < tensor.rank; ++axis) {
    if (tensor.shape[static_cast<size_t>(axis)] == 0) return;
  }
  Fail(ErrorCode::kOption, "{} is missing: it has no data", {input.name});
}

void CheckOutputNames(std::span<const OutputSpec> planned, std::span<const NamedTensor> outputs) {
  for (const OutputSpec& spec : planned) {
    bool found = false;
    for (const NamedTensor& output : outputs) found = found || output.name == spec.name;
    if (!found) Fail(ErrorCode::kOption, "output tensor \"{}\" is missing", {spec.name});
  }
  for (const NamedTensor& output : outputs) {
    bool asked = false;
    for (const OutputSpec& spec : planned) asked = asked || spec.name == output.name;
    if (!asked) {
      Fail(ErrorCode::kOption, "output tensor \"{}\" was not asked for", {output.name});
    }
  }
}

void CheckRank(const NamedTensor& input) {
  const AnyTensor& tensor = input.tensor;
  const Input* row = FindInput(input.name);
  if (row == nullptr || HasRank(row->shape, tensor.rank)) return;
  const bool pairs = row->name == "keep" || row->name == "bias";
  Fail(ErrorCode::kShape, "{} has rank {}; expected [{}]{}",
       {input.name, tensor.rank, row->shape, (pairs ? ": other ranks are ambiguous" : "")});
}

void CheckZeros(const std::vector<NamedTensor>& inputs) {
  if (std::none_of(inputs.begin(), inputs.end(), HasZero)) return;
  struct Seen {
    std::string_view symbol, name;
    int64_t extent;
  };
  std::vector<Seen> seen;
  for (const NamedTensor& input : inputs) {
    const Input* row = FindInput(input.name);
    if (row == nullptr) continue;
    const auto compare = [&](std::string_view symbol, size_t axis, bool broadcasts) {
      const int64_t extent = input.tensor.shape[axis];
      // The width of k is its own where a score joins two widths.
      if ((input.name == "k" && axis == 3) || (broadcasts && extent == 1)) return;
      for (const Seen& other : seen) {
        if (other.symbol != symbol || (other.extent == 0) == (extent == 0)) continue;
        const bool first = other.extent == 0;
        Fail(ErrorCode::kShape, "{} has an extent of 0; {} is {} in {}",
             {(first ? std::string(other.name) : input.name), symbol, first ? extent : other.extent,
              (first ? input.name : std::string(other.name))});
      }
      seen.push_back({symbol, input.name, extent});
    };
    ForEachSymbol(row->shape, input.tensor.rank, compare);
  }
}

void CheckParam(const NamedParam& param) {
  for (const Parameter& row : Parameters()) {
    if (row.name != param.name) continue;
    const std::string_view type = row.type;
    const auto* word = std::get_if<std::string>(&param.value);
    if (type == "bool") {
      if (!std::holds_alternative<bool>(param.value)) FailType(param.name, "true or false");
    } else if (type == "word" || type == "choice") {
      if (word == nullptr) FailType(param.name, "a word");
      CheckWord(param.name, row.range, *word);
    } else if (type == "expression") {
      if (word == nullptr) FailType(param.name, "an expression");
    } else if (type == "number") {
      CheckNumbers(param, false, false, true, "a number");
    } else if (type == "count") {
      CheckNumbers(param, false, true, false, "a number");
    } else if (type == "numbers" || type == "integers") {
      CheckNumbers(param, true, type == "integers", true, "a number or a list of numbers");
    } else if (type == "offset") {
      CheckOrText(param, true, true, "a number, one per batch entry, or \"end\"");
    } else if (type == "seed") {
      CheckOrText(param, false, false, "a whole number in [0, 2^64)");
    }
    return;
  }
}

}  // namespace heed
