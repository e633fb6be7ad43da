// Which pool the scratch memory of a device comes from. No CUDA here.
#ifndef HEED_SRC_CUDA_DEVICE_POOLS_H_
#define HEED_SRC_CUDA_DEVICE_POOLS_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace heed::cuda {

// Bytes of a device's scratch that stay mapped over a wait; what its pool holds above them goes
// back to the system then. Mapping takes tens of microseconds, which short calls would notice, and
// those take little. Of long ones gated chunks have all of theirs here: kMaxPreparedBytes, and as
// much again for their states and for other streams.
inline constexpr uint64_t kKeptScratchBytes = uint64_t{128} << 20;

// Makes a pool for each device that asks, and keeps it for good. Any thread.
template <class Pool>
class DevicePools {
 public:
  // The first of a device is make()'s. Where make() throws the next call makes it.
  template <class Make>
  Pool Of(int device, const Make& make) {
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(device);
    if (found != pools_.end()) return found->second;
    return pools_.emplace(device, make()).first->second;
  }

  // Nothing for a device that has not asked.
  std::optional<Pool> Find(int device) {
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(device);
    if (found == pools_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int, Pool> pools_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_DEVICE_POOLS_H_
