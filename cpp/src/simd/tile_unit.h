// Which unit multiplies tiles of bfloat16 pairs (tile_products-inl.h): Intel's AMX where the
// processor has it and the system lets the program use it.
#ifndef HEED_SRC_SIMD_TILE_UNIT_H_
#define HEED_SRC_SIMD_TILE_UNIT_H_

#include <optional>

namespace heed {

enum class TileUnit {
  kNone,      // vectors multiply pairs
  kAmx,       // tdpbf16ps
  kEmulated,  // the same numbers from vectors, slowly: where tests have no AMX
};

// Found once, by the first caller that `has_code` for AMX: asks the system for the tile registers,
// which it grants to the whole program. The environment variable HEED_AMX=off makes it kNone,
// HEED_AMX=emulated kEmulated; other words mean nothing.
TileUnit CurrentTileUnit(bool has_code = true);

// What CurrentTileUnit() says from now on; nothing: what was found. Not while attention runs.
void SetTileUnitForTest(std::optional<TileUnit> unit);

}  // namespace heed

#endif  // HEED_SRC_SIMD_TILE_UNIT_H_
