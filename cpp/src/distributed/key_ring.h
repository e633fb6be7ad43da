// Keys and values on their way around the ranks.
#ifndef HEED_SRC_DISTRIBUTED_KEY_RING_H_
#define HEED_SRC_DISTRIBUTED_KEY_RING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/distributed/kept_array.h"
#include "src/distributed/whole.h"

namespace heed::distributed {

// At step s a rank holds what rank owner() = rank - s began with. At the last step all ranks have
// seen everything.
class KeyRing {
 public:
  // Copies this rank's keys and values. Throws Error(kMemory), std::bad_alloc.
  explicit KeyRing(const Whole& whole);

  int owner() const { return (whole_.rank - step_ + whole_.size) % whole_.size; }
  bool IsLast() const { return step_ + 1 == whole_.size; }

  // Contiguous: [batch, num_kv_heads, the owner's tokens, dim].
  StoredTensor k() const;
  StoredTensor v() const;

  // Begins to pass on what is held and to receive what comes next; does nothing at the last step.
  void BeginPass(Communicator& communicator);
  // Holds what came, when it is there (Communicator::Finish()).
  void Advance();

 private:
  int64_t Tokens(int rank) const { return tokens_[static_cast<size_t>(rank)]; }
  size_t OffsetOfV(int rank) const;
  size_t Bytes(int rank) const;
  size_t MostBytes() const;
  StoredTensor View(const StoredTensor& like, size_t offset) const;

  const Whole& whole_;
  const std::vector<int64_t> tokens_;  // of each rank
  int step_ = 0;
  KeptArray<std::byte> held_, coming_;  // as long as the longest
};

// Copies a tensor into contiguous memory, or out of it.
void Pack(const StoredTensor& from, std::byte* to);
void Unpack(const std::byte* from, const StoredOutput& to);
// Bytes of a row of a tensor: its last dimension.
int64_t RowBytes(const StoredTensor& tensor);

}  // namespace heed::distributed

#endif  // HEED_SRC_DISTRIBUTED_KEY_RING_H_
