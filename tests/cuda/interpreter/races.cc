#include "races.h"

#include <algorithm>
#include <string>

#include "program.h"

namespace heed::interpreter {
namespace {

void Join(Races::Clocks& to, const Races::Clocks& from) {
  for (size_t n = 0; n < to.size(); ++n) to[n] = std::max(to[n], from[n]);
}

std::string NameOf(size_t warp) {
  return warp == Races::kCopies ? "a copy" : "warp " + std::to_string(warp);
}

[[noreturn]] void Report(const char* what, uint32_t address, size_t before, size_t after) {
  Fail("a race: " + std::string(what) + " at " + std::to_string(address) + " by " + NameOf(after) +
       ", not ordered after " + NameOf(before));
}

}  // namespace

void Races::Restart() {
  std::fill(places_.begin(), places_.end(), Place{});
  barriers_.clear();
  clocks_ = {};
  for (size_t warp = 0; warp < kWarps; ++warp) clocks_[warp][warp] = 1;
}

void Races::Read(size_t warp, uint32_t address, uint32_t bytes) {
  const Clocks& clocks = clocks_[warp];
  for (uint32_t n = address / kGrain; n <= (address + bytes - 1) / kGrain; ++n) {
    Place& place = places_[n];
    if (place.writer < kWarps && place.writer != warp && place.written > clocks[place.writer]) {
      Report("a read", address, place.writer, warp);
    }
    place.read[warp] = clocks[warp];
  }
}

void Races::CheckWrite(const Clocks& clocks, size_t warp, uint32_t address,
                       const Place& place) const {
  if (place.writer < kWarps && place.writer != warp && place.written > clocks[place.writer]) {
    Report("a write after a write", address, place.writer, warp);
  }
  for (size_t reader = 0; reader < kWarps; ++reader) {
    if (reader != warp && place.read[reader] > clocks[reader]) {
      Report("a write after a read", address, reader, warp);
    }
  }
}

void Races::Write(size_t warp, uint32_t address, uint32_t bytes) {
  for (uint32_t n = address / kGrain; n <= (address + bytes - 1) / kGrain; ++n) {
    CheckWrite(clocks_[warp], warp, address, places_[n]);
    places_[n] = {static_cast<uint32_t>(warp), clocks_[warp][warp], {}};
  }
}

Races::Clocks Races::Start(size_t warp) { return clocks_[warp]; }

// The copies' own writes are in order where their barriers are waited for before they are reused:
// what started them has seen them then.
void Races::CopyWrites(const Clocks& started, uint32_t address, uint32_t bytes) {
  for (uint32_t n = address / kGrain; n <= (address + bytes - 1) / kGrain; ++n) {
    CheckWrite(started, kCopies, address, places_[n]);
    places_[n] = {static_cast<uint32_t>(kCopies), clocks_[kCopies][kCopies], {}};
  }
}

void Races::Arrive(size_t warp, uint32_t barrier) {
  Join(barriers_[barrier].coming, clocks_[warp]);
  ++clocks_[warp][warp];
}

void Races::CopyArrives(uint32_t barrier) {
  Barrier& b = barriers_[barrier];
  b.coming[kCopies] = std::max(b.coming[kCopies], clocks_[kCopies][kCopies]);
  ++clocks_[kCopies][kCopies];
}

void Races::Complete(uint32_t barrier) {
  Barrier& b = barriers_[barrier];
  b.complete = b.coming;
  b.coming = {};
}

void Races::Leave(size_t warp, uint32_t barrier) {
  Join(clocks_[warp], barriers_[barrier].complete);
}

}  // namespace heed::interpreter
