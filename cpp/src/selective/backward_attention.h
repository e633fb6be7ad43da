// Calls of attention over chosen keys inside a mechanism, with what their gradients need.
#ifndef HEED_SRC_SELECTIVE_BACKWARD_ATTENTION_H_
#define HEED_SRC_SELECTIVE_BACKWARD_ATTENTION_H_

#include <memory>
#include <utility>

#include "heed/gradient.h"
#include "src/compose/rows.h"
#include "src/exact/keep/keep.h"

namespace heed {

// A call whose results are kept for its gradients. What views and options point to must outlive it.
class ChosenAttention {
 public:
  // Runs forward. `chosen` is what is left of the keys, nullptr all of them.
  ChosenAttention(const TensorView<const float>& q, const TensorView<const float>& k,
                  const TensorView<const float>& v, const AttentionOptions& options,
                  std::shared_ptr<const CellKeep> chosen, ThreadPool& pool);

  const TensorView<float>& out() const { return out_.view(); }  // [batch, num_heads, q_len, ...]
  // Makes the row an empty one on the way back, which Narrow() must hide.
  void Hide(int64_t b, int64_t h, int64_t i) const;
  // Keys that are left on the way back.
  void Narrow(std::shared_ptr<const CellKeep> chosen) { chosen_ = std::move(chosen); }
  void Backward(const TensorView<const float>& d_out, const AttentionGradients& to) const;

 private:
  TensorView<const float> q_, k_, v_;
  AttentionOptions options_;
  std::shared_ptr<const CellKeep> chosen_;
  ThreadPool& pool_;
  OwnedTensor out_, lse_;
};

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_BACKWARD_ATTENTION_H_
