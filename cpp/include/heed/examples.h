// How to make an example of any mechanism: the rows of examples.inc.
#ifndef HEED_EXAMPLES_H_
#define HEED_EXAMPLES_H_

#include <span>
#include <string_view>

#include "heed/standard.h"

namespace heed {

// How large an extent of inputs.inc is in an example.
struct ExampleExtent {
  std::string_view symbol;
  std::string_view value;  // numbers and symbols to be multiplied, "/2" to divide and round up
};

// What an example of a mechanism holds beside its required inputs. Lists of words separated by one
// space.
struct Example {
  std::string_view id;
  std::string_view inputs;   // optional inputs of the row
  std::string_view extents;  // "symbol=number": other than in ExampleExtents()
  std::string_view params;   // "name=value": a number, a word, a symbol, or sqrt:symbol
};

// All rows. Static memory. Mechanisms without a row need nothing.
std::span<const ExampleExtent> ExampleExtents();
std::span<const Example> Examples();

}  // namespace heed

#endif  // HEED_EXAMPLES_H_
