// Gradients for JavaScript, in the full build only. vjp.ts checked the arguments; C++ checks again.
#include <emscripten/bind.h>
#include <emscripten/val.h>

#include <string>

#include "heed/gradient.h"
#include "instance.h"
#include "wire.h"

namespace {

using emscripten::val;
using heed::wire::InstancePool;
using heed::wire::ReadRequest;
using heed::wire::ReadTensors;

// {results, gradients}, each [{name, shape, dtype}], or {code, message}.
val PlanBackward(const std::string& id, const std::string& input_names, uintptr_t inputs,
                 const std::string& param_names, val param_values) {
  return heed::wire::Guarded([&] {
    const heed::BackwardPlan plan =
        heed::PlanBackward(ReadRequest(id, input_names, inputs, param_names, param_values));
    val row = val::object();
    row.set("results", heed::wire::SpecsToJs(plan.results));
    row.set("gradients", heed::wire::SpecsToJs(plan.gradients));
    return row;
  });
}

// Null when the results were written, or {code, message}.
val RunForward(const std::string& id, const std::string& input_names, uintptr_t inputs,
               const std::string& param_names, val param_values, const std::string& result_names,
               uintptr_t result_row) {
  return heed::wire::Guarded([&] {
    heed::RunForward(ReadRequest(id, input_names, inputs, param_names, param_values),
                     ReadTensors(result_names, result_row), InstancePool().get());
    return val::null();
  });
}

// Null when the gradients were written, or {code, message}. `tables` holds the addresses
// of the results', of what arrives at them, and of the gradients; `names` theirs, each list of
// words a string.
val RunBackward(const std::string& id, const std::string& input_names, uintptr_t inputs,
                const std::string& param_names, val param_values, val names, val tables) {
  return heed::wire::Guarded([&] {
    const auto tensors = [&](int n) {
      return ReadTensors(names[n].as<std::string>(), tables[n].as<uintptr_t>());
    };
    heed::RunBackward(ReadRequest(id, input_names, inputs, param_names, param_values), tensors(0),
                      tensors(1), tensors(2), InstancePool().get());
    return val::null();
  });
}

}  // namespace

EMSCRIPTEN_BINDINGS(heed_gradient) {
  emscripten::function("planBackward", &PlanBackward);
  emscripten::function("runForward", &RunForward);
  emscripten::function("runBackward", &RunBackward);
}
