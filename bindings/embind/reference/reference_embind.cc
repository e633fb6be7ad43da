// The WebAssembly face of the float64 oracle: its own module, so that the package's main binary
// carries none of it.
#include <emscripten/bind.h>
#include <emscripten/val.h>

#include <string>
#include <vector>

#include "../label.h"
#include "../wire.h"
#include "heed/reference.h"

HEED_LABEL("reference");

namespace {

using emscripten::val;

// [{name, shape, data: Float64Array}] owning ordinary memory, or {code, message}.
val Run(const std::string& id, const std::string& input_names, uintptr_t inputs,
        const std::string& param_names, val param_values) {
  return heed::wire::Guarded([&] {
    const heed::Request request{id, heed::wire::ReadTensors(input_names, inputs),
                                heed::wire::ReadParams(param_names, param_values)};
    val results = val::array();
    int index = 0;
    for (const heed::reference::Result& result : heed::reference::Run(request)) {
      val row = val::object();
      row.set("name", result.name);
      row.set("shape", heed::wire::ShapeToJs(result.rank, result.shape));
      row.set("data", val(emscripten::typed_memory_view(result.values.size(), result.values.data()))
                          .call<val>("slice"));
      results.set(index++, row);
    }
    return results;
  });
}

}  // namespace

EMSCRIPTEN_BINDINGS(heed_reference) { emscripten::function("run", &Run); }
