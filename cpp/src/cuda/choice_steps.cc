#include "src/cuda/choice_steps.h"

#include <algorithm>

#include "src/cuda/grid.h"

namespace heed::cuda {

int32_t AtMost(int64_t value, int64_t tokens) {
  return Narrow(std::min(value, std::max<int64_t>(tokens, 1)));
}

SeenRules Chosen(ComposedSteps& steps, const AttentionProblem& p, const Choice& choice,
                 const std::function<void(const ScoreRows&)>& score) {
  ChooseParams params{};
  params.rules = SendRules(steps, p);
  params.causal = p.options.causal;
  params.kv_block = AtMost(choice.kv_block, p.kv_len);
  params.count = Narrow(CeilDiv(p.kv_len, params.kv_block));
  params.most = AtMost(choice.most, params.count);
  params.first_blocks = choice.first_blocks;
  params.local_blocks = choice.local_blocks;
  params.batch = Narrow(p.batch);
  params.kv_len = Narrow(p.kv_len);
  params.kept = NewKeptRows(steps, {p.batch, choice.lists, p.q_len, p.kv_len}, choice.heads,
                            WordsOfBlocks(params.most, params.kv_block));
  const int64_t lists = p.batch * choice.lists;
  const int64_t bytes = std::max<int64_t>(8 * lists * (params.count + choice.scratch), 1);
  const int64_t most_rows =
      std::clamp<int64_t>(steps.ScoreBytes() / bytes, 1, std::max<int64_t>(p.q_len, 1));
  ScoreRows rows{};
  rows.scores = steps.AllocateArray<double>({lists, most_rows, params.count, 1});
  rows.scratch = steps.AllocateArray<double>({lists, most_rows, choice.scratch, 1});
  params.scores = rows.scores;
  const int64_t rounds = steps.RoundsOf(CeilDiv(p.q_len, most_rows));  // the first is the largest
  for (int64_t n = 0; n < rounds; ++n) {
    rows.first = n * most_rows;
    rows.count = std::min(most_rows, p.q_len - rows.first);
    score(rows);
    params.first = Narrow(rows.first);
    params.rows = Narrow(rows.count);
    steps.Run(params);
  }
  return params.kept.seen();
}

}  // namespace heed::cuda
