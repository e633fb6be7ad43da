// The sums of gradients of keys and values, which go around behind them.
#ifndef HEED_SRC_DISTRIBUTED_KEY_GRADIENTS_H_
#define HEED_SRC_DISTRIBUTED_KEY_GRADIENTS_H_

#include <vector>

#include "src/distributed/key_ring.h"
#include "src/distributed/whole.h"

namespace heed::distributed {

// Every rank sums what its queries give for the keys that it holds, adds what came from the rank
// before it, and sends that on; after the last step sums are where the keys came from. They travel
// while the next step is computed:
//
//   for each step:
//     sums.Begin(owner);
//     ... add to d_k(owner) and d_v(owner) ...
//     communicator.Finish();
//     sums.Pass(owner, communicator);
//   communicator.Finish();
//   ... HomeK(), HomeV() ...
class KeyGradients {
 public:
  // Of more than one rank. Throws Error(kMemory).
  KeyGradients(const Whole& whole, bool wants_k, bool wants_v);

  // Zeros for the keys of a rank.
  void Begin(int owner);
  // What parts are added to, [batch, num_kv_heads, tokens, dim]; absent where not wanted.
  TensorView<float> d_k(int owner) { return View(sums_, whole_.k, wants_k_, owner, 0); }
  TensorView<float> d_v(int owner) {
    return View(sums_, whole_.v, wants_v_, owner, CountOf(whole_.k, wants_k_, owner));
  }
  // Adds what came for the same keys, and begins to send the sum on and to receive the next ones.
  void Pass(int owner, Communicator& communicator);

  // The sums over all ranks for the keys of this one.
  TensorView<float> HomeK() { return View(arriving_, whole_.k, wants_k_, whole_.rank, 0); }
  TensorView<float> HomeV() {
    return View(arriving_, whole_.v, wants_v_, whole_.rank,
                CountOf(whole_.k, wants_k_, whole_.rank));
  }

 private:
  size_t Count(int rank) const;
  size_t MostCount() const;
  size_t CountOf(const StoredTensor& tensor, bool wanted, int rank) const;
  TensorView<float> View(const KeptArray<float>& sums, const StoredTensor& like, bool wanted,
                         int owner, size_t offset) const;

  const Whole& whole_;
  const bool wants_k_, wants_v_;
  const std::vector<int64_t> tokens_;  // of each rank
  bool first_step_ = true;
  KeptArray<float> sums_, arriving_, leaving_;  // as long as the longest
};

// sums += terms, of one shape, whose last dimension is contiguous.
void AddTo(const TensorView<float>& sums, const TensorView<const float>& terms);

}  // namespace heed::distributed

#endif  // HEED_SRC_DISTRIBUTED_KEY_GRADIENTS_H_
