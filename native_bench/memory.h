// How much memory a piece of work holds at its highest, as the system counts it.
#ifndef HEED_NATIVE_BENCH_MEMORY_H_
#define HEED_NATIVE_BENCH_MEMORY_H_

#include <cstdint>
#include <optional>

namespace heed::bench {

// The high-water mark of this process's resident memory above what was resident at construction.
// What the allocator still holds from earlier work is given back to the system first, so that it is
// not taken for free. One at a time.
class HighWater {
 public:
  HighWater();
  // Bytes so far, to some tens of pages; absent where the system does not say (it does on Linux).
  std::optional<int64_t> Bytes() const;

 private:
  std::optional<int64_t> before_;
};

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_MEMORY_H_
