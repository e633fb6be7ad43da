// Which streams have counters of their own. No CUDA here.
#ifndef HEED_SRC_CUDA_STREAM_SLOTS_H_
#define HEED_SRC_CUDA_STREAM_SLOTS_H_

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace heed::cuda {

inline constexpr int64_t kStreamSlots = 256;
inline constexpr int64_t kCountersOfSlot = 1024;

// Gives the first streams that ask a slot each, for good: ids of streams (cudaStreamGetId) are
// never used twice in a program, and whether a stream still runs is not known. Any thread.
class StreamSlots {
 public:
  // -1 where other streams have all slots.
  int64_t Of(uint64_t stream_id) {
    const std::lock_guard lock(mutex_);
    const auto found = slots_.find(stream_id);
    if (found != slots_.end()) return found->second;
    const int64_t next = static_cast<int64_t>(slots_.size());
    if (next == kStreamSlots) return -1;
    slots_.emplace(stream_id, next);
    return next;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, int64_t> slots_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_STREAM_SLOTS_H_
