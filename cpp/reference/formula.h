// The oracle's reading of user expressions (heed/expression.h): every pair evaluated by itself.
#ifndef HEED_REFERENCE_FORMULA_H_
#define HEED_REFERENCE_FORMULA_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "inputs.h"

namespace heed::reference {

// What an expression can see.
struct Point {
  double value;  // `score`, `prob`, or `x` of feature maps
  // Of feature maps, j is the dimension `d`, and i `isKey`.
  int64_t b, h, i, j, position;
};

using Formula = std::function<double(const Point&)>;

// The expression in this parameter with the request's captured tensors; absent when the request
// does not have it. `value` names what the expression starts from; empty = nothing.
std::optional<Formula> ReadFormula(const Request& request, std::string_view param,
                                   const std::string& value);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_FORMULA_H_
