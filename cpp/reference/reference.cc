// The oracle's front door: finds the mechanism of a request in THE LIST and runs it.
#include "heed/reference.h"

#include <new>
#include <stdexcept>
#include <string>

#include "inputs.h"

namespace heed::reference {

// Every row of mechanisms.inc has a function <id>::Run in <id>.cc; a row without one does not link.
#define HEED_MECHANISM(id, ...)                    \
  namespace id {                                   \
  std::vector<Result> Run(const Request& request); \
  }
#include "heed/mechanisms.inc"
#undef HEED_MECHANISM

namespace {

std::vector<Result> Dispatch(const Request& request) {
#define HEED_MECHANISM(name, family, title, year, source, summary, formula, inputs, params, ...) \
  if (request.id == #name) {                                                                     \
    CheckNames(request, inputs, params);                                                         \
    return name::Run(request);                                                                   \
  }
#include "heed/mechanisms.inc"
#undef HEED_MECHANISM
  throw Error(ErrorCode::kOption, "id \"" + request.id + "\" is not a mechanism");
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const std::string message = "the float64 copies of this request do not fit into memory";
  try {
    return Dispatch(request);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kMemory, message);
  } catch (const std::length_error&) {
    throw Error(ErrorCode::kMemory, message);
  }
}

}  // namespace heed::reference
