// Results of a call: planned, allocated and handed to JavaScript in one crossing.
#ifndef HEED_BINDINGS_RESULTS_H_
#define HEED_BINDINGS_RESULTS_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heed/error.h"
#include "heed/request.h"

namespace heed::wire {

// Memory for every result of a plan, freed unless JavaScript takes it.
class Results {
 public:
  // `heads_last`: the output is [batch, len, heads, dim] in memory (layout "blhd").
  // Throws Error(kMemory).
  Results(const std::vector<OutputSpec>& specs, bool heads_last) {
    for (const OutputSpec& spec : specs) {
      const std::span<const int64_t> shape(spec.shape.data(), static_cast<size_t>(spec.rank));
      blocks_.emplace_back(std::malloc(BytesOf(spec, shape)), &std::free);
      if (blocks_.back() == nullptr) {
        throw Error(ErrorCode::kMemory, spec.name + ": the WebAssembly memory has no room for " +
                                            std::to_string(BytesOf(spec, shape)) + " more bytes");
      }
      AnyTensor tensor = ContiguousTensor(spec.dtype, blocks_.back().get(), shape);
      if (heads_last && spec.name == "output" && spec.rank == 4) {
        const auto [batch, heads, len, dim] = spec.shape;
        tensor.strides = {len * heads * dim, dim, heads * dim, 1};
      }
      tensors_.push_back({spec.name, tensor});
    }
  }

  std::span<const NamedTensor> tensors() const { return tensors_; }

  // "name dtype address extents...", separated by spaces, the results by semicolons. The memory is
  // JavaScript's from here on.
  std::string Release() {
    std::string text;
    for (const auto& [name, tensor] : tensors_) {
      if (!text.empty()) text += ';';
      text += name;
      Append(text, static_cast<int64_t>(tensor.dtype));
      Append(text, static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.data)));
      for (size_t axis = 0; axis < static_cast<size_t>(tensor.rank); ++axis) {
        Append(text, tensor.shape[axis]);
      }
    }
    for (auto& block : blocks_) static_cast<void>(block.release());
    return text;
  }

 private:
  static void Append(std::string& text, int64_t number) { text += ' ' + std::to_string(number); }

  // At least 16: an empty tensor has an address too.
  static size_t BytesOf(const OutputSpec& spec, std::span<const int64_t> shape) {
    int64_t bytes = ElementSize(spec.dtype);
    bool fits = true;
    for (const int64_t extent : shape) {
      if (extent == 0) return 16;
      fits = fits && !__builtin_mul_overflow(bytes, extent, &bytes);
    }
    if (fits && bytes <= INT64_C(0xffffffff)) return static_cast<size_t>(bytes < 16 ? 16 : bytes);
    throw Error(ErrorCode::kMemory,
                spec.name + ": a 32-bit WebAssembly memory has no room for a tensor of this shape");
  }

  std::vector<std::unique_ptr<void, void (*)(void*)>> blocks_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace heed::wire

#endif  // HEED_BINDINGS_RESULTS_H_
