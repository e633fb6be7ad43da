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

void CheckLowRankOutputs(const AttentionOutputs& outputs, std::initializer_list<NamedSpan> inputs) {
  if (outputs.scores.has_value()) {
    Fail(ErrorCode::kUnsupported, "the low-rank family has no scores of queries and keys");
  }
  for (const NamedSpan& input : inputs) {
    CheckNoAlias("output", SpanOf(outputs.output), input.name, input.span);
    CheckNoAlias("lse", SpanOf(outputs.lse), input.name, input.span);
    CheckNoAlias("weights", SpanOf(outputs.weights), input.name, input.span);
  }
}

}  // namespace heed
