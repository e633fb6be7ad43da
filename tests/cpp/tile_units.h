// The units that multiply tiles of bfloat16 (src/simd/tile_unit.h), one after the other.
#ifndef HEED_TESTS_CPP_TILE_UNITS_H_
#define HEED_TESTS_CPP_TILE_UNITS_H_

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/detect_targets.h"
#include "src/simd/tile_unit.h"

namespace heed::testing {

// Does the target multiply bfloat16 where everything is stored so?
inline bool MultipliesBFloat16(int64_t target) {
  return target == HWY_AVX3_ZEN4 || target == HWY_AVX3_SPR;
}

inline bool HasAmx() {
  SetTileUnitForTest({});
  return CurrentTileUnit() == TileUnit::kAmx;
}

// Those that the target can have here; kNone for one that has none.
inline std::vector<TileUnit> TileUnits(int64_t target) {
  std::vector<TileUnit> units = {TileUnit::kNone};
  if (MultipliesBFloat16(target)) units.push_back(TileUnit::kEmulated);
  if (target == HWY_AVX3_SPR && HasAmx()) units.push_back(TileUnit::kAmx);
  return units;
}

// Calls `body()` with each of them in use.
template <class Body>
void OnEveryTileUnit(int64_t target, const Body& body) {
  constexpr const char* kNames[] = {"vectors", "AMX", "emulated AMX"};
  for (const TileUnit unit : TileUnits(target)) {
    SCOPED_TRACE(kNames[static_cast<int>(unit)]);
    SetTileUnitForTest(unit);
    body();
  }
  SetTileUnitForTest({});
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CPP_TILE_UNITS_H_
