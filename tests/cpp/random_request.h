// Random requests for any row of the registry, drawn from what its tables say.
#ifndef HEED_TESTS_RANDOM_REQUEST_H_
#define HEED_TESTS_RANDOM_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "heed/registry.h"
#include "heed/request.h"
#include "random.h"

namespace heed::testing {

// A tensor with its numbers in double, as its element type rounds them.
struct DrawnTensor {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape{};
  std::vector<double> values{};     // in the order of the shape, without gaps
  bool padded = false;              // rows have gaps between them
  std::vector<std::byte> memory{};  // what Pack() wrote

  // Writes the numbers to memory that lives as long as this. NaN fills gaps.
  void Pack();
  // Points into what Pack() wrote.
  AnyTensor any() const;
  int64_t size() const;
};

// One call of a mechanism.
struct DrawnRequest {
  std::string id;
  std::map<std::string, int64_t> extents;  // by the symbols of inputs.inc
  std::map<std::string, DrawnTensor> inputs;
  std::map<std::string, ParamValue> params;
  double added_score = 0;  // what score_mod adds to a score at most

  // Points into this.
  Request request() const;
  // Sizes, inputs and parameters, for failure messages.
  std::string Describe() const;

  bool has_input(const std::string& name) const { return inputs.count(name) > 0; }
  const ParamValue* param(const std::string& name) const;
  // The word of a parameter, or `fallback` when it is absent.
  std::string Word(const std::string& name, const std::string& fallback = "") const;
  double Number(const std::string& name, double fallback) const;
};

// How much of a row is drawn.
enum class Draw {
  kLeast,  // what the row needs, at small sizes
  kTidy,   // any combination that the rules of the row's options allow, as far as they are known
           // here
  kWild,   // any combination; many must be refused
};

// The same seed gives the same request on every machine. Packed.
DrawnRequest DrawRequest(const Mechanism& row, Draw draw, uint64_t seed);

// Whether a list of the registry has a word; a '?' behind it does not count.
bool Lists(std::string_view list, std::string_view word);

// The words of a list of the registry.
std::vector<std::string> WordsOf(std::string_view list, char separator = ' ');

// The row of a parameter or an input.
const Parameter& ParameterRow(std::string_view name);
const Input& InputRow(std::string_view name);

}  // namespace heed::testing

#endif  // HEED_TESTS_RANDOM_REQUEST_H_
