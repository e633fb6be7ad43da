#include "src/cuda/choice_steps.h"

#include <algorithm>

#include "src/cuda/grid.h"

namespace heed::cuda {

int32_t AtMost(int64_t value, int64_t tokens) {
  return Narrow(std::min(value, std::max<int64_t>(tokens, 1)));
}

TensorView<const uint8_t> Chosen(ComposedSteps& steps, const AttentionProblem& p,
                                 const Choice& choice, const double* scores) {
  ChooseParams params{};
  const TensorView<uint8_t> keep = KeepMatrix(steps, {p.batch, choice.heads, p.q_len, p.kv_len});
  params.scores = scores;
  params.keep = keep.data;
  params.rules = SendRules(steps, p);
  params.causal = p.options.causal;
  params.kv_block = AtMost(choice.kv_block, p.kv_len);
  params.count = Narrow(CeilDiv(p.kv_len, params.kv_block));
  params.most = AtMost(choice.most, params.count);
  params.first_blocks = choice.first_blocks;
  params.local_blocks = choice.local_blocks;
  params.batch = Narrow(p.batch);
  params.lists = Narrow(choice.lists);
  params.copies = Narrow(choice.heads / std::max<int64_t>(choice.lists, 1));
  params.len = Narrow(p.q_len);
  params.kv_len = Narrow(p.kv_len);
  steps.Run(params);
  return keep;
}

}  // namespace heed::cuda
