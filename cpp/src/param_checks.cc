#include "src/param_checks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "heed/registry.h"
#include "src/message.h"
#include "src/view_checks.h"
#include "src/word_lists.h"

namespace heed {
namespace {

constexpr double kMaxWhole = 9007199254740992.0;  // 2^53: beyond, doubles skip integers

[[noreturn]] void FailType(std::string_view name, const char* expected) {
  Fail(ErrorCode::kOption, "{} must be {}", {name, expected});
}

void CheckWord(std::string_view name, std::string_view range, std::string_view given) {
  std::string known;
  for (std::string_view words = range; !words.empty();) {
    const std::string_view word = NextWord(words, '|');
    if (word == given) return;
    known += (known.empty() ? "\"" : ", \"") + std::string(word) + "\"";
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

const Parameter* FindParameter(std::string_view name) {
  for (const Parameter& row : Parameters()) {
    if (row.name == name) return &row;
  }
  return nullptr;
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
    std::string_view shape = NextWord(shapes, '|');
    if (RankOf(shape) != rank) continue;
    for (size_t axis = 0; !shape.empty();) {
      std::string_view symbol = NextWord(shape);
      if (symbol.empty()) continue;
      const bool broadcasts = symbol.ends_with('?');
      if (broadcasts) symbol.remove_suffix(1);
      visit(symbol, axis++, broadcasts);
    }
    return;
  }
}

bool HasRank(std::string_view shapes, int rank) {
  while (!shapes.empty()) {
    if (RankOf(NextWord(shapes, '|')) == rank) return true;
  }
  return false;
}

// Whether the call has one of the readers (read_by.inc).
bool IsRead(std::string_view readers, const Mechanism& mechanism, const Request& request) {
  while (!readers.empty()) {
    std::string_view words = NextWord(readers);
    const std::string_view reader = NextWord(words, '=');
    if (!words.empty() && !HasWord(mechanism.params, reader)) return true;
    for (const NamedParam& param : request.params) {
      if (param.name != reader) continue;
      if (words.empty()) return true;
      const auto* word = std::get_if<std::string>(&param.value);
      if (word != nullptr && HasWord(words, *word, '|')) return true;
    }
    for (const NamedTensor& input : request.inputs) {
      if (input.name == reader) return true;
    }
  }
  return false;
}

void CheckReaders(std::string_view name, std::string_view readers, const Mechanism& mechanism,
                  const Request& request) {
  if (readers.empty() || IsRead(readers, mechanism, request)) return;
  std::string known;
  while (!readers.empty()) {
    std::string_view words = NextWord(readers);
    const std::string_view reader = NextWord(words, '=');
    if (!HasWord(mechanism.params, reader) && !HasWord(mechanism.inputs, reader)) continue;
    known += (known.empty() ? "" : ", or ") + std::string(reader);
    for (const char* before = " \""; !words.empty(); before = " or \"") {
      known += before + std::string(NextWord(words, '|')) + "\"";
    }
  }
  Fail(ErrorCode::kOption, "{} is read only by {}", {name, known});
}

bool HasZero(const NamedTensor& input) {
  const AnyTensor& tensor = input.tensor;
  return std::count(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, 0) > 0;
}

}  // namespace

uint64_t SeedOf(std::string_view name, const ParamValue& value) {
  if (const std::string* digits = std::get_if<std::string>(&value)) {
    uint64_t seed = 0;
    const char* end = digits->data() + digits->size();
    const auto [stop, error] = std::from_chars(digits->data(), end, seed);
    if (error == std::errc() && stop == end) return seed;
    Fail(ErrorCode::kRange, "{} = \"{}\"; expected a whole number in [0, 2^64)", {name, *digits});
  }
  const double number = std::get<double>(value);
  CheckNumber(name, number, true, true);
  if (number >= 0) return static_cast<uint64_t>(number);
  Fail(ErrorCode::kRange, "{} = {}; expected a whole number in [0, 2^64)", {name, number});
}

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
  const Parameter* row = FindParameter(param.name);
  if (row == nullptr) return;
  const std::string_view type = row->type;
  const auto* word = std::get_if<std::string>(&param.value);
  if (type == "bool") {
    if (!std::holds_alternative<bool>(param.value)) FailType(param.name, "true or false");
  } else if (type == "word" || type == "choice") {
    if (word == nullptr) FailType(param.name, "a word");
    CheckWord(param.name, row->range, *word);
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
}

void CheckRead(const Mechanism& mechanism, const Request& request) {
  for (const NamedParam& param : request.params) {
    CheckReaders(param.name, FindParameter(param.name)->read_by, mechanism, request);
  }
  for (const NamedTensor& input : request.inputs) {
    const std::string_view name = std::string_view(input.name).substr(0, input.name.find('.'));
    CheckReaders(name, FindInput(name)->read_by, mechanism, request);
  }
}

}  // namespace heed
