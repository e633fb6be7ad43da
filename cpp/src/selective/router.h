// Clusters of routing attention: what each takes of queries and keys.
#ifndef HEED_SRC_SELECTIVE_ROUTER_H_
#define HEED_SRC_SELECTIVE_ROUTER_H_

#include <algorithm>
#include <cstdint>

#include "heed/selective.h"
#include "heed/thread_pool.h"
#include "src/exact/problem.h"
#include "src/parallel/worker_scratch.h"
#include "src/selective/range_keep.h"

namespace heed {

// Tokens of each cluster, ascending: [batch, num_heads, num_clusters, count].
struct Members {
  int64_t clusters = 0, count = 0;
  ScratchVector<int32_t> tokens{};

  int32_t* Of(int64_t head, int64_t cluster) {
    return tokens.data() + (head * clusters + cluster) * count;
  }
  const int32_t* Of(int64_t head, int64_t cluster) const {
    return tokens.data() + (head * clusters + cluster) * count;
  }
};

// The clusters of one call, whose options and problem outlive it.
class Router {
 public:
  Router(const RoutingOptions& options, const AttentionProblem& p, ThreadPool& pool);

  void Choose(const TensorView<const float>& q, const TensorView<const float>& k);

  const Members& queries() const { return queries_; }
  const Members& keys() const { return keys_; }
  int64_t clusters() const { return clusters_; }
  // Keys of a cluster that exist.
  int64_t NumKeys(int64_t b) const { return std::min(keys_.count, p_.KeyLength(b, 0)); }

  // Rows of the clusters' queries, [batch, num_heads * clusters, count, ...], or of their keys,
  // where zeros stand for those that do not exist.
  void GatherQueries(const TensorView<const float>& x, const TensorView<float>& to) const;
  void GatherKeys(const TensorView<const float>& x, const TensorView<float>& to) const;
  // What the gathered queries see of the gathered keys. Counts the clusters that show a query a
  // key.
  void SetRanges(RangeKeep& ranges);

  // visit(cluster, row, keys it sees, token) for the rows of a head that see a key.
  template <class Visit>
  void ForEachSeeing(int64_t b, int64_t h, const RangeKeep& ranges, const Visit& visit) const {
    for (int64_t c = 0; c < clusters_; ++c) {
      for (int64_t i = 0; i < queries_.count; ++i) {
        const int64_t seen = ranges.at(b, h * clusters_ + c, i).end;
        if (seen > 0) visit(c, i, seen, queries_.Of(b * p_.num_heads + h, c)[i]);
      }
    }
  }
  // Of each of its clusters in a query's output.
  float Share(int64_t b, int64_t h, int64_t token) const {
    const int64_t at = (b * p_.num_heads + h) * p_.q_len + token;
    return 1 / static_cast<float>(counts_[static_cast<size_t>(at)]);
  }

 private:
  const RoutingOptions& o_;
  const AttentionProblem& p_;
  ThreadPool& pool_;
  int64_t clusters_;
  Members queries_, keys_;
  ScratchVector<int32_t> counts_;  // clusters that a query sees a key in
  AlignedFloats centroids_;        // [num_heads, num_clusters, head_dim]
};

// The options of attention that routing restricts.
AttentionOptions AttentionOf(const RoutingOptions& options);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_ROUTER_H_
