// Tensors of any mechanism, drawn by the registry: extents from examples.inc, numbers by the `draw`
// of inputs.inc. Nothing here knows a mechanism by name.
#ifndef HEED_NATIVE_BENCH_DRAW_H_
#define HEED_NATIVE_BENCH_DRAW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "heed/registry.h"
#include "heed/request.h"
#include "native_bench/cases.h"

namespace heed::bench {

// Extents by symbol.
using Extent = std::map<std::string, int64_t, std::less<>>;

// Extents of every symbol that examples.inc lists, for a case and its mechanism. Throws
// heed::Error(kUnsupported) when the case has two lengths and the mechanism one.
Extent ExtentsOf(const Case& c);

// A tensor on cache lines that owns its memory: contiguous, rank 0 to 4.
class OwnedTensor {
 public:
  // Uninitialised. Throws std::bad_alloc.
  OwnedTensor(std::string name, DType dtype, std::vector<int64_t> shape);

  const std::string& name() const { return name_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t size() const;
  float* floats() const { return static_cast<float*>(static_cast<void*>(data_.get())); }
  int32_t* ints() const { return static_cast<int32_t*>(static_cast<void*>(data_.get())); }
  uint16_t* halves() const { return static_cast<uint16_t*>(static_cast<void*>(data_.get())); }
  uint8_t* bytes() const { return static_cast<uint8_t*>(static_cast<void*>(data_.get())); }
  AnyTensor any() const;

 private:
  struct Release {
    void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t{64}); }
  };
  std::string name_;
  DType dtype_;
  std::vector<int64_t> shape_;
  std::unique_ptr<std::byte[], Release> data_;
};

// The row of inputs.inc. The name is one of its.
const Input& FindInput(std::string_view name);

// The input, of the first of its shapes, filled as it wants. The same seed gives the same numbers
// in every run of one binary. Throws heed::Error(kUnsupported) for a symbol without an extent.
OwnedTensor DrawInput(const Input& input, const Extent& extents, uint64_t seed);

// The same numbers in float16 or bfloat16, to which those of `floats` are rounded as well.
OwnedTensor StoredAs(const OwnedTensor& floats, DType dtype);

// The names of the inputs that an example of a mechanism has: required ones, and those of its row
// of examples.inc.
std::vector<std::string_view> ExampleInputs(const Mechanism& mechanism);

// Its parameters: those of examples.inc, and the first word of choices that have no default.
std::vector<NamedParam> ExampleParams(const Mechanism& mechanism, const Extent& extents);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_DRAW_H_
