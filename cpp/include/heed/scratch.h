// Scratch memory that calls leave for the next ones.
#ifndef HEED_SCRATCH_H_
#define HEED_SCRATCH_H_

#include <cstdint>

namespace heed {

// Bytes of scratch memory that heed keeps when nobody says otherwise: 64 MiB.
inline constexpr int64_t kDefaultKeptScratch = int64_t{64} << 20;

// How many bytes of scratch memory the process may keep when calls are over, for calls to come;
// what is too much is given back at once, the oldest first. Memory that the system has just handed
// out is cleared page by page when it is first touched, which takes longer than much of what small
// layers compute. 0 keeps none: for programs that call heed rarely.
//
// What calls need does not depend on it (EstimateCost()), nor do results. Any thread may call it at
// any time. WebAssembly keeps none: what an instance has once taken stays with it anyway.
//
// Errors  Error(kRange) for bytes < 0.
void SetKeptScratch(int64_t bytes);

// Bytes that are kept now, for no call in particular.
int64_t KeptScratch();

}  // namespace heed

#endif  // HEED_SCRATCH_H_
