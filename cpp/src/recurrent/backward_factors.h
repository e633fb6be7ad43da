// Factors of tokens (log_decay, beta, skip) beside random features, whose peaks decay a state as
// well.
#ifndef HEED_SRC_RECURRENT_BACKWARD_FACTORS_H_
#define HEED_SRC_RECURRENT_BACKWARD_FACTORS_H_

#include "src/compose/rows.h"
#include "src/recurrent/backward_problem.h"
#include "src/recurrent/backward_sums.h"

namespace heed {

class TokenFactors {
 public:
  // Of `segment` tokens at a time, at most. The problem must outlive it.
  TokenFactors(const RecurrentBackwardProblem& g, int64_t segment);

  // Gives a call its factors of the tokens [first, first + count): `decays` are those of peaks,
  // [batch, num_kv_heads, count, features].
  void Give(int64_t first, const TensorView<const float>& decays, RecurrentOptions& to);
  // Lets a call write the gradients of `count` tokens here, and adds them to what is wanted.
  void Want(int64_t count, RecurrentGradients& to);
  void Add(int64_t first, int64_t count);
  // The sums, to the caller.
  void Write() { sums_.Write(); }

 private:
  bool decays() const { return p_.options.log_decay.has_value(); }

  const RecurrentBackwardProblem& g_;
  const RecurrentProblem& p_;
  SharedSums sums_;
  OwnedTensor gates_;    // log_decay and the decays of peaks together
  OwnedTensor d_gates_;  // [batch, num_kv_heads, segment, features]
  OwnedTensor d_betas_;  // [batch, num_kv_heads, segment, 1]
  ScratchVector<float> d_skips_;
};

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_BACKWARD_FACTORS_H_
