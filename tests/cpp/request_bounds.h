// The largest errors that the results of any request may have: the constants of the public headers,
// as docs/accuracy.md says.
#ifndef HEED_TESTS_REQUEST_BOUNDS_H_
#define HEED_TESTS_REQUEST_BOUNDS_H_

#include <map>
#include <string>
#include <vector>

#include "random_request.h"
#include "request_builder.h"

namespace heed::testing {

// One bound for each element of each result. `expected` is the oracle's answer to the request.
std::map<std::string, std::vector<double>> BoundsOf(const DrawnRequest& request,
                                                    const Values& expected);

}  // namespace heed::testing

#endif  // HEED_TESTS_REQUEST_BOUNDS_H_
