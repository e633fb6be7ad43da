// From scores to lists: each query chooses the best of some candidates, which are blocks of keys or
// single keys, and attention sees what the lists name.
#ifndef HEED_SRC_SELECTIVE_CHOOSE_H_
#define HEED_SRC_SELECTIVE_CHOOSE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "heed/thread_pool.h"
#include "src/exact/keep/block_list.h"
#include "src/exact/problem.h"
#include "src/sort.h"

namespace heed {

// The score of a candidate that is chosen whatever the others are.
inline constexpr double kCertain = std::numeric_limits<double>::infinity();

// A score as it is compared: below kCertain, also when it is NaN.
inline double Comparable(double score) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return score < kMost ? score : kMost;
}

// What a mechanism chooses by.
class Chooser {
 public:
  virtual ~Chooser() = default;
  // Query i of the batch entry may choose from the candidates [0, n).
  virtual int64_t Candidates(int64_t batch, int64_t query) const = 0;
  // scores[r * stride + c] of the candidates c < count for the queries first + r. The row may be
  // written up to the next multiple of DotPanels::kPanel.
  virtual void Score(int64_t batch, int64_t list, int64_t first, size_t num_rows, int64_t count,
                     int worker, double* scores, size_t stride) const = 0;
  // FLOPs of one score.
  virtual double Flops() const = 0;
};

// How choices are listed.
struct ChoiceLists {
  int64_t lists = 1;       // of a batch entry: one per query head, per KV head, or one for all
  int64_t kv_block = 1;    // keys of a candidate
  int64_t most = 1;        // candidates that a query keeps
  int64_t candidates = 0;  // at most
};

// Makes the choices of all queries. In a dry run queries keep their first candidates. Throws
// std::bad_alloc.
BlockRows Choose(const AttentionProblem& p, const Chooser& chooser, const ChoiceLists& lists,
                 ThreadPool& pool);

// Makes p see what was chosen, and no more. Throws Error(kMemory).
void KeepChosen(AttentionProblem& p, const Chooser& chooser, const ChoiceLists& lists,
                ThreadPool* pool);

// Attention over what was chosen. Throws Error(kMemory).
void AttendToChosen(AttentionProblem& p, const Chooser& chooser, const ChoiceLists& lists,
                    ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_CHOOSE_H_
