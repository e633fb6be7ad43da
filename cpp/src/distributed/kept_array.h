// Arrays that grow with the tokens of a rank, in memory that calls leave for the next ones
// (heed/scratch.h): to touch fresh memory takes as long as a tenth of what is computed with it.
#ifndef HEED_SRC_DISTRIBUTED_KEPT_ARRAY_H_
#define HEED_SRC_DISTRIBUTED_KEPT_ARRAY_H_

#include <cstddef>
#include <span>
#include <type_traits>

#include "src/parallel/worker_scratch.h"

namespace heed::distributed {

// Cache-line aligned, not initialised.
template <typename T>
class KeptArray {
  static_assert(std::is_trivial_v<T>);

 public:
  KeptArray() = default;
  explicit KeptArray(size_t count)
      : memory_((count * sizeof(T) + sizeof(float) - 1) / sizeof(float)), count_(count) {}

  T* data() const { return reinterpret_cast<T*>(memory_.get()); }
  size_t size() const { return count_; }
  std::span<T> first(size_t count) const { return std::span<T>(data(), count); }

 private:
  AlignedFloats memory_;
  size_t count_ = 0;
};

}  // namespace heed::distributed

#endif  // HEED_SRC_DISTRIBUTED_KEPT_ARRAY_H_
