// Calls of attention inside a composition, with what their gradients need.
#ifndef HEED_SRC_COMPOSE_BACKWARD_ATTENTION_H_
#define HEED_SRC_COMPOSE_BACKWARD_ATTENTION_H_

#include <deque>
#include <vector>

#include "heed/gradient.h"
#include "src/compose/rows.h"

namespace heed {

// Attention() whose results are kept for its gradients. What it is given must outlive it.
class KeptAttention {
 public:
  KeptAttention(const TensorView<const float>& q, const TensorView<const float>& k,
                const TensorView<const float>& v, const AttentionOptions& options,
                ThreadPool& pool);

  const TensorView<float>& out() const { return out_.view(); }
  const TensorView<float>& lse() const { return lse_.view(); }  // absent where there is none
  void Backward(const TensorView<const float>& d_out, const AttentionGradients& to) const;

 private:
  TensorView<const float> q_, k_, v_;
  const AttentionOptions& options_;
  ThreadPool& pool_;
  OwnedTensor out_, lse_;
};

// The gradients of options that several calls of attention share: sums over the calls.
class OptionSums {
 public:
  // `to` says where the sums go.
  OptionSums(const AttentionGradients& to, ThreadPool& pool) : to_(to), pool_(pool) {}

  // Where the next call puts the gradients of its options.
  AttentionGradients Next();
  // Adds what the call has put there: `written` is Next(), less what has no gradient in this call.
  void Add(const AttentionGradients& written);

 private:
  void Own();

  AttentionGradients to_, own_;
  ThreadPool& pool_;
  std::deque<OwnedTensor> memory_;
  int64_t calls_ = 0;
};

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_BACKWARD_ATTENTION_H_
