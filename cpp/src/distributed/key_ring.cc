#include "src/distributed/key_ring.h"

#include <algorithm>
#include <cstring>

namespace heed::distributed {
namespace {

constexpr size_t kCacheLine = 64;

// Calls copy(b, h, i, n), n counting rows of a contiguous tensor.
template <typename Copy>
void ForEachRow(const Extents& shape, const Copy& copy) {
  int64_t n = 0;
  for (int64_t b = 0; b < shape[0]; ++b) {
    for (int64_t h = 0; h < shape[1]; ++h) {
      for (int64_t i = 0; i < shape[2]; ++i) copy(b, h, i, n++);
    }
  }
}

size_t BytesOfRows(const StoredTensor& tensor, int64_t tokens) {
  return static_cast<size_t>(tensor.shape[0] * tensor.shape[1] * tokens * RowBytes(tensor));
}

}  // namespace

int64_t RowBytes(const StoredTensor& tensor) { return tensor.shape[3] * ElementSize(tensor.dtype); }

void Pack(const StoredTensor& from, std::byte* to) {
  const int64_t bytes = RowBytes(from);
  if (bytes == 0) return;
  ForEachRow(from.shape, [&](int64_t b, int64_t h, int64_t i, int64_t n) {
    std::memcpy(to + n * bytes, from.Row(b, h, i), static_cast<size_t>(bytes));
  });
}

void Unpack(const std::byte* from, const StoredOutput& to) {
  const int64_t bytes = to.shape[3] * ElementSize(to.dtype);
  if (bytes == 0) return;
  ForEachRow(to.shape, [&](int64_t b, int64_t h, int64_t i, int64_t n) {
    std::memcpy(to.Row(b, h, i), from + n * bytes, static_cast<size_t>(bytes));
  });
}

KeyRing::KeyRing(const Whole& whole)
    : whole_(whole),
      tokens_(whole.KeyCounts()),
      held_(MostBytes()),
      coming_(whole.size > 1 ? MostBytes() : 0) {
  Pack(whole.k, held_.data());
  Pack(whole.v, held_.data() + OffsetOfV(whole.rank));
}

size_t KeyRing::MostBytes() const {
  size_t most = 0;
  for (int rank = 0; rank < whole_.size; ++rank) most = std::max(most, Bytes(rank));
  return most;
}

// Values begin at a cache line, whatever type keys have.
size_t KeyRing::OffsetOfV(int rank) const {
  return RoundUp(BytesOfRows(whole_.k, Tokens(rank)), kCacheLine);
}

size_t KeyRing::Bytes(int rank) const {
  return OffsetOfV(rank) + BytesOfRows(whole_.v, Tokens(rank));
}

StoredTensor KeyRing::View(const StoredTensor& like, size_t offset) const {
  const Extents shape = {like.shape[0], like.shape[1], Tokens(owner()), like.shape[3]};
  return {held_.data() + offset,
          like.dtype,
          shape,
          {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}};
}

StoredTensor KeyRing::k() const { return View(whole_.k, 0); }
StoredTensor KeyRing::v() const { return View(whole_.v, OffsetOfV(owner())); }

void KeyRing::BeginPass(Communicator& communicator) {
  if (IsLast()) return;
  const int next = (whole_.rank + 1) % whole_.size;
  const int before = (whole_.rank - 1 + whole_.size) % whole_.size;
  const int next_owner = (owner() - 1 + whole_.size) % whole_.size;
  communicator.BeginReceive(before, coming_.first(Bytes(next_owner)));
  communicator.BeginSend(next, held_.first(Bytes(owner())));
}

void KeyRing::Advance() {
  std::swap(held_, coming_);
  ++step_;
}

}  // namespace heed::distributed
