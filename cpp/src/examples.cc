// The tables behind heed/examples.h, filled from examples.inc.
#include "heed/examples.h"

namespace heed {
namespace {

constexpr ExampleExtent kExtents[] = {
#define HEED_EXTENT(symbol, value) {#symbol, value},
#define HEED_EXAMPLE(id, inputs, extents, params)
#include "heed/examples.inc"
#undef HEED_EXTENT
#undef HEED_EXAMPLE
};

constexpr Example kExamples[] = {
#define HEED_EXTENT(symbol, value)
#define HEED_EXAMPLE(id, inputs, extents, params) {#id, inputs, extents, params},
#include "heed/examples.inc"
#undef HEED_EXTENT
#undef HEED_EXAMPLE
};

}  // namespace

std::span<const ExampleExtent> ExampleExtents() { return kExtents; }
std::span<const Example> Examples() { return kExamples; }

}  // namespace heed
