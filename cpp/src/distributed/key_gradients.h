// The sums of gradients of keys and values, which go around behind them.
#ifndef HEED_SRC_DISTRIBUTED_KEY_GRADIENTS_H_
#define HEED_SRC_DISTRIBUTED_KEY_GRADIENTS_H_

#include <vector>

#include "src/distributed/key_ring.h"
#include "src/distributed/whole.h"

namespace heed::distributed {

// After the computation of a step the sums of those keys pass to the next rank, which adds its own;
// after the last step they are where the keys came from.
class KeyGradients {
 public:
  // Zeros. Throws std::bad_alloc.
  KeyGradients(const Whole& whole, bool wants_k, bool wants_v);

  // What parts are added to: those of a rank's keys, [batch, num_kv_heads, tokens, dim]; absent
  // where not wanted.
  TensorView<float> d_k(int owner);
  TensorView<float> d_v(int owner);

  // Begins to pass on those of `owner` and to receive those of the one before; nothing where one
  // rank is alone.
  void BeginPass(int owner, Communicator& communicator);
  // Holds what came, when it is there (Communicator::Finish()).
  void Advance();

 private:
  size_t Count(int rank) const;
  size_t MostCount() const;
  size_t CountOf(const StoredTensor& tensor, bool wanted, int rank) const;
  TensorView<float> View(const StoredTensor& like, bool wanted, int owner, size_t offset);

  const Whole& whole_;
  const bool wants_k_, wants_v_;
  const std::vector<int64_t> tokens_;  // of each rank
  KeptArray<float> held_, coming_;     // as long as the longest
};

// sums += terms, of one shape, whose last dimension is contiguous.
void AddTo(const TensorView<float>& sums, const TensorView<const float>& terms);

}  // namespace heed::distributed

#endif  // HEED_SRC_DISTRIBUTED_KEY_GRADIENTS_H_
