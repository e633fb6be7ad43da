// The tables behind heed/registry.h, filled from mechanisms.inc, inputs.inc, params.inc and
// read_by.inc.
#include "heed/registry.h"

namespace heed {
namespace {

constexpr Mechanism kMechanisms[] = {
#define HEED_MECHANISM(id, family, title, year, source, summary, formula, inputs, params, cost, \
                       capabilities)                                                            \
  {#id, family, title, year, source, summary, formula, inputs, params, cost, capabilities},
#include "heed/mechanisms.inc"
#undef HEED_MECHANISM
};

constexpr std::string_view ReadBy(std::string_view name) {
#define HEED_READ_BY(row, readers) \
  if (name == #row) return readers;
#include "heed/read_by.inc"
#undef HEED_READ_BY
  return {};
}

constexpr Input kInputs[] = {
#define HEED_INPUT(name, kind, shape, draw, summary) \
  {#name, kind, shape, draw, summary, ReadBy(#name)},
#include "heed/inputs.inc"
#undef HEED_INPUT
};

constexpr Parameter kParameters[] = {
#define HEED_PARAMETER(name, type, default_value, range, symbol, summary) \
  {#name, type, default_value, range, symbol, summary, ReadBy(#name)},
#include "heed/params.inc"
#undef HEED_PARAMETER
};

}  // namespace

std::span<const Mechanism> Mechanisms() { return kMechanisms; }
std::span<const Input> Inputs() { return kInputs; }
std::span<const Parameter> Parameters() { return kParameters; }

const Mechanism* FindMechanism(std::string_view id) {
  for (const Mechanism& mechanism : kMechanisms) {
    if (mechanism.id == id) return &mechanism;
  }
  return nullptr;
}

}  // namespace heed
