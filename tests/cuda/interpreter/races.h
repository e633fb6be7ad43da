// Finds accesses to shared memory of two warps, one of them a write, that no barrier orders: clocks
// of vectors, as in FastTrack (Flanagan and Freund, PLDI 2009). Lanes of a warp are taken to be in
// order; asynchronous copies are one more warp, whose writes an mbarrier makes visible.
#ifndef HEED_TESTS_CUDA_INTERPRETER_RACES_H_
#define HEED_TESTS_CUDA_INTERPRETER_RACES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace heed::interpreter {

class Races {
 public:
  static constexpr size_t kWarps = 33;  // of a block, and the copies
  static constexpr size_t kCopies = 32;
  using Clocks = std::array<uint32_t, kWarps>;

  explicit Races(size_t shared_bytes) : places_((shared_bytes + kGrain - 1) / kGrain) {}
  void Restart();

  // By a warp, now.
  void Read(size_t warp, uint32_t address, uint32_t bytes);
  void Write(size_t warp, uint32_t address, uint32_t bytes);
  // Of a copy, which was started by a warp at these clocks.
  Clocks Start(size_t warp);
  void CopyWrites(const Clocks& started, uint32_t address, uint32_t bytes);

  // A warp comes to a barrier, and leaves the last one that was complete. Numbers of barriers and
  // addresses of mbarriers are far apart.
  void Arrive(size_t warp, uint32_t barrier);
  void CopyArrives(uint32_t barrier);
  void Complete(uint32_t barrier);
  void Leave(size_t warp, uint32_t barrier);

 private:
  static constexpr uint32_t kGrain = 2;  // bytes: those of different warps may share a word
  struct Place {
    uint32_t writer = kWarps, written = 0;
    std::array<uint32_t, kWarps> read{};
  };
  struct Barrier {
    Clocks coming{}, complete{};
  };
  void CheckWrite(const Clocks& clocks, size_t warp, uint32_t address, const Place& place) const;

  std::vector<Place> places_;
  std::array<Clocks, kWarps> clocks_{};
  std::map<uint32_t, Barrier> barriers_;
};

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_RACES_H_
