#include "src/simd/tile_unit.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#if defined(__x86_64__) && defined(__linux__)
#define HEED_MAY_HAVE_AMX 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#define HEED_MAY_HAVE_AMX 0
#endif

namespace heed {
namespace {

#if HEED_MAY_HAVE_AMX
// Both the instructions and a system that saves the registers (Intel SDM, CPUID leaves 7 and 0xD,
// XCR0).
bool HasAmx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAmxBFloat16 = 1u << 22, kAmxTile = 1u << 24, kOsXsave = 1u << 27;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBFloat16) == 0 || (edx & kAmxTile) == 0) return false;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsXsave) == 0) return false;
  constexpr unsigned kTileState = 3u << 17;
  unsigned xcr0 = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
  return (xcr0 & kTileState) == kTileState;
}

// Linux 5.16 and newer give a program the tile registers only when it asks.
bool MayUseAmx() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of arch_prctl
  constexpr long kTileData = 18;               // XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool HasAmx() { return false; }
bool MayUseAmx() { return false; }
#endif

enum class Wanted { kAny, kNone, kEmulated };

Wanted ReadWanted() {
  const char* const wanted = std::getenv("HEED_AMX");
  const std::string_view word = wanted == nullptr ? "" : wanted;
  return word == "off" ? Wanted::kNone : word == "emulated" ? Wanted::kEmulated : Wanted::kAny;
}

std::atomic<int> for_test{-1};

}  // namespace

TileUnit CurrentTileUnit(bool has_code) {
  const int test = for_test.load(std::memory_order_relaxed);
  if (test >= 0) return static_cast<TileUnit>(test);
  static const Wanted wanted = ReadWanted();
  if (wanted == Wanted::kEmulated) return TileUnit::kEmulated;
  if (wanted == Wanted::kNone || !has_code) return TileUnit::kNone;
  static const bool usable = HasAmx() && MayUseAmx();
  return usable ? TileUnit::kAmx : TileUnit::kNone;
}

void SetTileUnitForTest(std::optional<TileUnit> unit) {
  for_test.store(unit.has_value() ? static_cast<int>(*unit) : -1, std::memory_order_relaxed);
}

}  // namespace heed
