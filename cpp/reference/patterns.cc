#include "patterns.h"

#include <cmath>

namespace heed::reference {
namespace {

// The pattern that a request names, or that its mechanism is; empty when there is none.
std::string PatternOf(const Request& request) {
  for (const char* id : {"longformer", "bigbird", "swin_window", "neighborhood"}) {
    if (request.id == id) return id;
  }
  return ReadWord(request, "pattern",
                  {"longformer", "bigbird", "strided", "fixed", "axial", "dilated", "swin_window",
                   "neighborhood"})
      .value_or("");
}

// Raffel et al. 2020, arXiv:1910.10683, section 3.2.1: the prefix is seen by all.
PairRule PrefixRule(const Request& request, const Qkv& qkv) {
  const std::vector<double> prefix = ReadIntegers(request, "prefix_lengths")->values;
  if (static_cast<int64_t>(prefix.size()) != qkv.batch) {
    throw Error(ErrorCode::kShape, "prefix_lengths: expected one a batch entry");
  }
  for (const double length : prefix) {
    if (length < 0 || length > static_cast<double>(qkv.kv_len)) {
      throw Error(ErrorCode::kRange, "prefix_lengths: expected 0 to kv_len");
    }
  }
  return
      [prefix](const Pair& at) { return at.j <= at.p || static_cast<double>(at.j) < prefix[at.b]; };
}

// Ids of [len] or [batch, len] tokens, spread to [batch, len].
std::vector<double> ReadIds(const Request& request, const char* name, int64_t batch, int64_t len) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) {
    throw Error(ErrorCode::kOption, std::string(name) + " is missing beside its other half");
  }
  const bool shared = tensor->rank == 1 && tensor->shape[0] == len;
  const bool each = tensor->rank == 2 && tensor->shape[0] == batch && tensor->shape[1] == len;
  if (!shared && !each) {
    throw Error(ErrorCode::kShape, Describe(name, *tensor) + ": expected [len] or [batch, len]");
  }
  const std::vector<double> given = ReadIntegers(request, name)->values;
  std::vector<double> ids;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t n = 0; n < len; ++n) ids.push_back(given[each ? b * len + n : n]);
  }
  return ids;
}

PairRule DocumentRule(const Request& request, const Qkv& qkv) {
  const auto queries = ReadIds(request, "query_documents", qkv.batch, qkv.q_len);
  const auto keys = ReadIds(request, "key_documents", qkv.batch, qkv.kv_len);
  const int64_t q_len = qkv.q_len, kv_len = qkv.kv_len;
  return [queries, keys, q_len, kv_len](const Pair& at) {
    const double id = queries[at.b * q_len + at.i];
    return id >= 0 && id == keys[at.b * kv_len + at.j];
  };
}

void CheckInside(const Qkv& qkv, const std::vector<int64_t>& offsets) {
  for (const int64_t offset : offsets) {
    if (qkv.q_len == 0 || (offset >= 0 && offset + qkv.q_len <= qkv.kv_len)) continue;
    throw Error(ErrorCode::kRange, "query_offset leaves the tokens of the pattern");
  }
}

PairRule NamedRule(const std::string& name, const Request& request, const Qkv& qkv) {
  if (name == "longformer" || name == "dilated") return LongformerRule(request, qkv);
  if (name == "strided") return StridedRule(request);
  if (name == "fixed") return FixedRule(request);
  if (name == "bigbird") return BigBirdRule(request, qkv);
  if (name == "axial") return AxialRule(request, qkv);
  if (name == "swin_window") return SwinWindowRule(request, qkv);
  return NeighborhoodRule(request, qkv);
}

}  // namespace

bool PatternsReadPositions(const Request& request) {
  return !PatternOf(request).empty() || FindInput(request, "prefix_lengths") != nullptr;
}

std::vector<PairRule> ReadPatterns(const Request& request, const Qkv& qkv,
                                   const std::vector<int64_t>& offsets) {
  std::vector<PairRule> rules = ListRules(request, qkv);
  const std::string name = PatternOf(request);
  if (!name.empty()) rules.push_back(NamedRule(name, request, qkv));
  for (const char* tokens : {"bigbird", "axial", "swin_window", "neighborhood"}) {
    if (name == tokens) CheckInside(qkv, offsets);
  }
  if (FindInput(request, "prefix_lengths") != nullptr) rules.push_back(PrefixRule(request, qkv));
  if (FindInput(request, "query_documents") != nullptr ||
      FindInput(request, "key_documents") != nullptr) {
    rules.push_back(DocumentRule(request, qkv));
  }
  return rules;
}

int64_t ReadWhole(const Request& request, const char* name, int64_t fallback, int64_t least) {
  const std::optional<double> number = ReadNumber(request, name);
  const int64_t value = number ? WholeNumber(*number, name) : fallback;
  if (value >= least) return value;
  throw Error(ErrorCode::kRange,
              std::string(name) + " is " + std::to_string(value) + ": too small");
}

std::vector<int64_t> ReadWholes(const Request& request, const char* name, int64_t least) {
  const ParamValue* param = FindParam(request, name);
  if (param == nullptr) return {};
  std::vector<double> numbers;
  if (const auto* list = std::get_if<std::vector<double>>(param)) {
    numbers = *list;
  } else {
    numbers = {*ReadNumber(request, name)};
  }
  if (numbers.empty()) throw Error(ErrorCode::kShape, std::string(name) + " has no values");
  std::vector<int64_t> wholes;
  for (const double number : numbers) {
    wholes.push_back(WholeNumber(number, name));
    if (wholes.back() < least) throw Error(ErrorCode::kRange, std::string(name) + " is too small");
  }
  return wholes;
}

std::vector<int64_t> ReadGrid(const Request& request, const Qkv& qkv, size_t least, size_t most) {
  std::vector<int64_t> grid = ReadWholes(request, "grid", 1);
  if (FindParam(request, "grid") == nullptr) {
    grid.assign(least, 1);
    grid.back() = qkv.kv_len;
  }
  int64_t tokens = 1;
  for (const int64_t extent : grid) tokens *= extent;
  if (grid.size() < least || grid.size() > most || tokens != qkv.kv_len) {
    throw Error(ErrorCode::kShape, "grid does not have kv_len tokens, or too many axes");
  }
  return grid;
}

std::vector<int64_t> Coordinates(int64_t token, const std::vector<int64_t>& grid) {
  std::vector<int64_t> at(grid.size());
  for (size_t axis = grid.size(); axis-- > 0;) {
    at[axis] = token % grid[axis];
    token /= grid[axis];
  }
  return at;
}

}  // namespace heed::reference
