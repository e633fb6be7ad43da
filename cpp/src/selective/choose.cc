#include "src/selective/choose.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "src/compose/rows.h"
#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/selective/dots.h"
#include "src/selective/gather.h"

namespace heed {
namespace {

// Where the list of each row begins: how many candidates it keeps is known before their scores.
BlockRows EmptyLists(const AttentionProblem& p, const Chooser& chooser, const ChoiceLists& lists) {
  BlockRows rows = {1, lists.kv_block, p.q_len, lists.lists, {}, {}, p.batch};
  rows.starts.reserve(static_cast<size_t>(p.batch * lists.lists * p.q_len) + 1);
  int64_t start = 0;
  double flops = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t n = 0; n < lists.lists; ++n) {
      for (int64_t i = 0; i < p.q_len; ++i) {
        const int64_t candidates = chooser.Candidates(b, i);
        rows.starts.push_back(start);
        start += std::min(lists.most, candidates);
        if (candidates > lists.most) flops += static_cast<double>(candidates) * chooser.Flops();
      }
    }
  }
  rows.starts.push_back(start);
  if (DryRun* const dry = DryRun::Current()) dry->AddFlops(flops);
  rows.blocks.resize(static_cast<size_t>(start));
  return rows;
}

// All lists keep their first candidates.
void KeepFirst(BlockRows& rows) {
  for (size_t row = 0; row + 1 < rows.starts.size(); ++row) {
    std::iota(rows.blocks.begin() + rows.starts[row], rows.blocks.begin() + rows.starts[row + 1],
              0);
  }
}

struct ChoiceScratch {
  ScratchVector<double> scores;
  ScratchVector<int32_t> order;
};

}  // namespace

BlockRows Choose(const AttentionProblem& p, const Chooser& chooser, const ChoiceLists& lists,
                 ThreadPool& pool) {
  BlockRows rows = EmptyLists(p, chooser, lists);
  KeepFirst(rows);
  const size_t stride =
      RoundUp(static_cast<size_t>(lists.candidates), static_cast<size_t>(DotPanels::kPanel));
  std::vector<ChoiceScratch> scratch(static_cast<size_t>(pool.NumThreads()));
  for (ChoiceScratch& s : scratch) {
    s.scores.resize(stride * kDotRows);
    s.order.resize(static_cast<size_t>(lists.candidates));
  }
  constexpr int64_t kRows = static_cast<int64_t>(kDotRows);
  const int64_t groups = (p.q_len + kRows - 1) / kRows;
  pool.Run(p.batch * lists.lists * groups, [&](int64_t task, int worker) {
    ChoiceScratch& s = scratch[static_cast<size_t>(worker)];
    const int64_t list = task / groups, first = task % groups * kRows;
    const int64_t b = list / lists.lists;
    const int64_t count = std::min(kRows, p.q_len - first);
    int64_t candidates = 0;
    for (int64_t i = first; i < first + count; ++i) {
      candidates = std::max(candidates, chooser.Candidates(b, i));
    }
    if (candidates <= lists.most) return;
    chooser.Score(b, list % lists.lists, first, static_cast<size_t>(count), candidates, worker,
                  s.scores.data(), stride);
    for (int64_t r = 0; r < count; ++r) {
      const size_t own = static_cast<size_t>(chooser.Candidates(b, first + r));
      const size_t row = static_cast<size_t>(list * p.q_len + first + r);
      const std::span<int32_t> chosen(rows.blocks.data() + rows.starts[row],
                                      static_cast<size_t>(rows.starts[row + 1] - rows.starts[row]));
      if (chosen.size() == own) continue;
      ChooseBest({s.scores.data() + static_cast<size_t>(r) * stride, own}, {s.order.data(), own},
                 chosen);
    }
  });
  return rows;
}

namespace {

void Keep(AttentionProblem& p, BlockRows chosen) {
  p.chosen = std::make_shared<BlockListKeep>(std::move(chosen), std::vector<int64_t>(), p);
}

}  // namespace

void KeepChosen(AttentionProblem& p, const Chooser& chooser, const ChoiceLists& lists,
                ThreadPool* pool) {
  Keep(p, Choose(p, chooser, lists, PoolOrDefault(pool)));
}

void AttendToChosen(AttentionProblem& p, const Chooser& chooser, const ChoiceLists& lists,
                    ThreadPool* pool) {
  BlockRows chosen = Choose(p, chooser, lists, PoolOrDefault(pool));
  if (lists.candidates > lists.most && CanGather(p, chosen)) {
    return AttendGathered(p, chosen, PoolOrDefault(pool));
  }
  Keep(p, std::move(chosen));
  RunProblem(p, pool);
}

}  // namespace heed
