#include "src/low_rank/problem.h"

#include "src/message.h"

namespace heed {

AttentionProblem ValidateLowRank(const TensorView<const float>& q, const TensorView<const float>& k,
                                 const TensorView<const float>& v,
                                 const AttentionOptions& options) {
  const size_t lengths = options.key_lengths.size();
  if (lengths != 0 && lengths != static_cast<size_t>(q.shape[0])) {
    Fail(ErrorCode::kShape, "key_lengths has {} values; expected batch = {}",
         {lengths, q.shape[0]});
  }
  return ValidateAttentionInputs(StoredTensor(q), StoredTensor(k), StoredTensor(v), options, false);
}

void CheckNoScores(const AttentionOutputs& outputs) {
  if (!outputs.scores.has_value()) return;
  Fail(ErrorCode::kUnsupported, "the low-rank family has no scores of queries and keys");
}

}  // namespace heed
