// Scratch memory that calls leave for the next ones.
#ifndef HEED_SCRATCH_H_
#define HEED_SCRATCH_H_

#include <cstdint>

#include "heed/standard.h"

namespace heed {

// Bytes of scratch memory that heed keeps when nobody says otherwise: 64 MiB.
inline constexpr int64_t kDefaultKeptScratch = int64_t{64} << 20;

// How many bytes of scratch memory the process may keep between calls; what exceeds it is given
// back at once, the oldest first. The system clears fresh memory page by page at first touch, which
// takes longer than much of what small layers compute. 0 keeps none: for programs that call heed
// rarely.
//
// Neither what calls need (EstimateCost()) nor results depend on it. Any thread may call it at any
// time. WebAssembly keeps none: an instance never gives memory back anyway.
//
// Errors  Error(kRange) for bytes < 0.
void SetKeptScratch(int64_t bytes);

// Bytes that are kept now, for no call in particular.
int64_t KeptScratch();

}  // namespace heed

#endif  // HEED_SCRATCH_H_
