#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <map>

namespace heed::interpreter {
namespace {

constexpr size_t kAlign = 256;  // of cudaMalloc

struct Table {
  std::map<uint64_t, uint64_t> bytes_at;
  uint64_t generation = 1;
};
Table& TheTable() {
  static Table* table = new Table;
  return *table;
}

}  // namespace

void* Allocate(size_t bytes) {
  // Behind the bytes is a gap, so that no two allocations touch.
  const size_t room = (bytes + 2 * kAlign - 1) / kAlign * kAlign;
  void* pointer = room < bytes ? nullptr : std::aligned_alloc(kAlign, room);
  if (pointer == nullptr) return nullptr;
  std::memset(pointer, 0xff, room);
  Table& table = TheTable();
  table.bytes_at[reinterpret_cast<uint64_t>(pointer)] = bytes;
  ++table.generation;
  return pointer;
}

bool Free(void* pointer) {
  Table& table = TheTable();
  const auto found = table.bytes_at.find(reinterpret_cast<uint64_t>(pointer));
  if (found == table.bytes_at.end()) return false;
  std::memset(pointer, 0xff, found->second);
  table.bytes_at.erase(found);
  ++table.generation;
  std::free(pointer);
  return true;
}

Range FindRange(uint64_t address) {
  const Table& table = TheTable();
  auto next = table.bytes_at.upper_bound(address);
  if (next == table.bytes_at.begin()) return {};
  --next;
  const Range range = {next->first, next->second};
  return range.Holds(address, 1) ? range : Range{};
}

uint64_t Generation() { return TheTable().generation; }

}  // namespace heed::interpreter
