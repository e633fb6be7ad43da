// Shapes of attention as well-known models have them, by name.
#ifndef HEED_NATIVE_BENCH_SHAPES_H_
#define HEED_NATIVE_BENCH_SHAPES_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "native_bench/cases.h"

namespace heed::bench {

// What one layer of a model computes in one phase.
struct NamedShape {
  std::string_view model;   // "llama3-8b"
  std::string_view phase;   // "prefill", "decode", "encode", ...
  std::string_view source;  // where the sizes are written down
  Case shape;               // all but mechanism, storage and threads

  std::string Name() const;  // "llama3-8b:prefill"
};

// All of them, models in order of their years.
std::span<const NamedShape> NamedShapes();

// The shapes with these names: a model stands for all its phases, "all" for every model. Each is
// marked with its name (Case::model). Throws heed::Error(kOption) for an unknown one.
std::vector<Case> FindShapes(const std::vector<std::string>& names);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_SHAPES_H_
