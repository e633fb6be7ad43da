// The float64 oracle: every mechanism once more, as plain loops from its paper. Slow on purpose;
// shares no code with the kernels. Linked separately (heed::reference).
#ifndef HEED_REFERENCE_H_
#define HEED_REFERENCE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/request.h"

namespace heed::reference {

// A result in double, contiguous.
struct Result {
  std::string name;  // output, lse, weights, scores, state
  int rank = 0;
  Extents shape{};
  std::vector<double> values;
};

// Runs the oracle on a request. Inputs may be float32 or float64 (masks uint8, lengths int32).
// Same names, same meaning and same edge rules as heed::Run. Throws Error.
std::vector<Result> Run(const Request& request);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_H_
