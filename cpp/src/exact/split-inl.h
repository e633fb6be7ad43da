// Split KV: when queries are few, the keys of a KV head are cut into splits of fixed size, which
// run as tasks of their own; a row's partial results are then merged in ascending order of keys.
#if defined(HEED_EXACT_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SPLIT_INL_H_
#undef HEED_EXACT_SPLIT_INL_H_
#else
#define HEED_EXACT_SPLIT_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <vector>

#include "heed/thread_pool.h"
#include "src/exact/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

inline std::vector<std::unique_ptr<Scratch>> MakeScratch(const Plan& plan, int workers,
                                                         bool own_tiles) {
  std::vector<std::unique_ptr<Scratch>> scratch;
  for (int w = 0; w < workers; ++w) scratch.push_back(std::make_unique<Scratch>(plan, own_tiles));
  return scratch;
}

// Partial results of as many batch entries as fit here (4 MiB) are in flight, and at least so many
// that every thread has work.
inline constexpr size_t kPartialFloats = size_t{1} << 20;

// Whether some row of batch entry b may see a key of the split.
inline bool SplitIsSeen(const Plan& plan, int64_t b, size_t split) {
  const AttentionProblem& p = *plan.problem;
  const KeyRange seen = plan.batch_keys[static_cast<size_t>(b)];
  const int64_t keys = static_cast<int64_t>(kSplitTiles * kTileKeys);
  const int64_t begin = static_cast<int64_t>(split) * keys;
  if (begin >= seen.end || begin + keys <= seen.begin) return false;
  if (p.sink_keys == 0 || begin < p.sink_keys) return true;
  return begin + keys > p.position[static_cast<size_t>(b)] - *p.options.window->left;
}

inline std::vector<size_t> SeenSplits(const Plan& plan) {
  std::vector<size_t> splits;
  for (size_t split = 0; split < plan.NumSplits(); ++split) {
    for (int64_t b = 0; b < plan.problem->batch; ++b) {
      if (!SplitIsSeen(plan, b, split)) continue;
      splits.push_back(split);
      break;
    }
  }
  return splits;
}

// Do two batch entries keep the beginning of a split in the same block of a cache?
inline bool ShareSplit(const AttentionProblem& p, int64_t b, int64_t other, size_t split) {
  if (p.cached_k == nullptr) return false;
  const size_t at = split * kSplitTiles * kTileKeys / static_cast<size_t>(p.cached_k->block_size);
  const auto& blocks = p.cached_k->blocks[static_cast<size_t>(b)];
  const auto& others = p.cached_k->blocks[static_cast<size_t>(other)];
  return at < blocks.size() && at < others.size() && blocks[at] == others[at];
}

// The rows of a unit after the keys of one split.
struct PartialRows {
  RowStates states;
  float* output;  // [rows][v_cols]
};

class SplitRun {
 public:
  SplitRun(const Plan& plan, ThreadPool& pool)
      : plan_(plan),
        p_(*plan.problem),
        pool_(pool),
        splits_(SeenSplits(plan)),
        rows_(static_cast<size_t>(plan.rows - plan.first_row)),
        padded_(RoundUp(rows_, kScoreRows)),
        partial_floats_(2 * padded_ + rows_ * plan.v_cols) {
    const int64_t entry_floats =
        p_.num_kv_heads * static_cast<int64_t>(splits_.size() * partial_floats_);
    const int64_t fitting =
        static_cast<int64_t>(kPartialFloats) / std::max<int64_t>(1, entry_floats);
    const int64_t busy = (pool.NumThreads() + p_.num_kv_heads - 1) / p_.num_kv_heads;
    wave_ = std::clamp<int64_t>(std::max(fitting, busy), 1, p_.batch);
    partials_ = AlignedFloats(static_cast<size_t>(wave_ * entry_floats));
    scratch_ = MakeScratch(plan, pool.NumThreads(), true);
    tasks_.reserve(static_cast<size_t>(wave_ * p_.num_kv_heads) * splits_.size());
  }

  void Run() {
    for (first_ = 0; first_ < p_.batch; first_ += wave_) {
      const int64_t entries = std::min(wave_, p_.batch - first_);
      MakeTasks(entries);
      pool_.Run(static_cast<int64_t>(tasks_.size()), [&](int64_t index, int worker) {
        RunTask(tasks_[static_cast<size_t>(index)], *scratch_[static_cast<size_t>(worker)]);
      });
      pool_.Run(entries * p_.num_kv_heads, [&](int64_t index, int worker) {
        MergeUnit(first_ * p_.num_kv_heads + index, *scratch_[static_cast<size_t>(worker)]);
      });
    }
  }

 private:
  // A split of one KV head, for consecutive batch entries that share its tokens: the second one
  // finds them in the cache of the processor.
  struct Task {
    size_t at;  // index in splits_
    int64_t head;
    int64_t begin, end;  // batch entries
  };

  void MakeTasks(int64_t entries) {
    tasks_.clear();
    for (size_t at = 0; at < splits_.size(); ++at) {
      for (int64_t begin = first_; begin < first_ + entries;) {
        int64_t end = begin + 1;
        while (end < first_ + entries && ShareSplit(p_, end - 1, end, splits_[at])) ++end;
        for (int64_t head = 0; head < p_.num_kv_heads; ++head) {
          tasks_.push_back({at, head, begin, end});
        }
        begin = end;
      }
    }
  }

  PartialRows Partial(int64_t unit, size_t at) const {
    const size_t slot = static_cast<size_t>(unit - first_ * p_.num_kv_heads) * splits_.size() + at;
    float* memory = partials_.get() + slot * partial_floats_;
    return {{memory, memory + padded_}, memory + 2 * padded_};
  }

  void RunTask(const Task& task, Scratch& scratch) {
    for (int64_t b = task.begin; b < task.end; ++b) {
      const int64_t unit = b * p_.num_kv_heads + task.head;
      BlockLoop loop(plan_, unit, 0, TileSource{}, scratch);
      const size_t first = splits_[task.at] * kSplitTiles;
      loop.RunTiles(first, first + kSplitTiles);
      const PartialRows partial = Partial(unit, task.at);
      std::copy_n(scratch.row_max.get(), padded_, partial.states.row_max);
      std::copy_n(scratch.row_sum.get(), padded_, partial.states.row_sum);
      std::copy_n(scratch.output.get(), rows_ * plan_.v_cols, partial.output);
    }
  }

  void MergeUnit(int64_t unit, Scratch& scratch) {
    BlockLoop loop(plan_, unit, 0, TileSource{}, scratch);
    loop.RunTiles(0, 0);
    for (size_t at = 0; at < splits_.size(); ++at) {
      const PartialRows partial = Partial(unit, at);
      loop.MergeRows(partial.states, partial.output);
    }
    loop.WriteRows();
  }

  const Plan& plan_;
  const AttentionProblem& p_;
  ThreadPool& pool_;
  std::vector<size_t> splits_;
  size_t rows_;
  size_t padded_;
  size_t partial_floats_;
  int64_t wave_;
  int64_t first_ = 0;
  AlignedFloats partials_;
  std::vector<std::unique_ptr<Scratch>> scratch_;
  std::vector<Task> tasks_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SPLIT_INL_H_
