// Clusters of routing attention: what they take, and the means of what they give. Plain kernels: a
// block has a row.
#ifndef HEED_SRC_CUDA_CLUSTER_KERNELS_H_
#define HEED_SRC_CUDA_CLUSTER_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/choice_kernels.h"
#include "src/cuda/cluster_params.h"
#include "src/cuda/head_place.h"

namespace heed::cuda {

template <class Block>
HEED_DEVICE void RunStep(Block& block, const ClusterScoreParams& p, int64_t index) {
  const HeadPlace place(index, p.clusters, p.heads);
  const float* centroid = p.centroids.Row(0, place.h, place.within);
  block.Each([&](int t) {
    for (int n = t; n < p.len; n += kBlockThreads) {
      const float* x = p.tokens.Row(place.b, place.h / p.group, n);
      const double length = sqrt(ExactDot(x, x, p.width));
      p.scores[index * p.len + n] =
          ComparableScore(length == 0 ? 0.0 : ExactDot(centroid, x, p.width) / length);
    }
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const MemberParams& p, int64_t index) {
  const int length = p.lengths[index / p.clusters / p.heads];
  const double* scores = p.scores + index * p.len;
  int32_t* places = p.places + index * p.len;
  int32_t* members = p.members + index * p.count;
  const auto score = [&](int n) { return scores[n]; };
  block.Each([&](int t) {
    for (int n = t; n < p.len; n += kBlockThreads) {
      const bool taken = n < length && NumBetter(n, length, p.count, score) < p.count;
      places[n] = taken ? 0 : -1;
    }
    for (int n = t; n < p.count; n += kBlockThreads) members[n] = -1;
  });
  block.Sync();
  // One thread counts those before each.
  block.Each([&](int t) {
    if (t != 0) return;
    int32_t next = 0;
    HEED_NO_UNROLL for (int n = 0; n < p.len; ++n) {
      if (places[n] < 0) continue;
      members[next] = n;
      places[n] = next++;
    }
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const MemberRowParams& p, int64_t index) {
  const HeadPlace place(index, p.count, p.heads * p.clusters);
  const int32_t token = p.members[index];
  block.Each([&](int t) {
    for (int d = t; d < p.width; d += kBlockThreads) {
      const int head = place.h / p.clusters / p.group;
      p.out.Row(place.b, place.h, place.within)[d] =
          token < 0 ? 0.0f : p.tokens.Row(place.b, head, token)[d];
    }
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const ClusterLengthParams& p, int64_t index) {
  const int32_t* keys = p.keys + index * p.cols;
  block.Each([&](int t) {
    HEED_NO_UNROLL for (int row = t; row < p.rows; row += kBlockThreads) {
      const int64_t at = index * p.rows + row;
      int64_t position = int64_t{1} << 62;
      if (p.positions != nullptr) position = p.positions[index / p.heads] + p.queries[at];
      int32_t seen = 0;
      for (int32_t end = p.cols; seen < end;) {
        const int32_t middle = seen + (end - seen) / 2;
        if (keys[middle] >= 0 && keys[middle] <= position) {
          seen = middle + 1;
        } else {
          end = middle;
        }
      }
      p.seen[at] = seen;
    }
  });
}

// A query in the clusters of its head: visit(head of the cluster, row there) for those that show it
// a key.
template <class Visit>
HEED_DEVICE void EachClusterOf(const ClusterMeanParams& p, const HeadPlace& place,
                               const Visit& visit) {
  HEED_NO_UNROLL for (int c = 0; c < p.clusters; ++c) {
    const int64_t head = int64_t{place.h} * p.clusters + c;
    const int64_t unit = int64_t{place.b} * p.heads * p.clusters + head;
    const int32_t row = p.query_places[unit * p.len + place.within];
    if (row < 0 || p.seen[unit * p.rows + row] == 0) continue;
    visit(static_cast<int>(head), row);
  }
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const ClusterMeanParams& p, int64_t index) {
  const HeadPlace place(index, p.len, p.heads);
  int count = 0;
  EachClusterOf(p, place, [&](int, int) { ++count; });
  const double share = 1 / static_cast<double>(count);
  block.Each([&](int t) {
    for (int d = t; d < p.width; d += kBlockThreads) {
      double sum = 0;
      EachClusterOf(p, place, [&](int head, int row) {
        sum += share * static_cast<double>(p.within.Row(place.b, head, row)[d]);
      });
      p.output.Row(place.b, place.h, place.within)[d] = static_cast<float>(sum);
    }
    for (int j = t; p.weights.data != nullptr && j < p.kv_len; j += kBlockThreads) {
      double sum = 0;
      EachClusterOf(p, place, [&](int head, int row) {
        const int64_t unit = int64_t{place.b} * p.heads * p.clusters + head;
        const int32_t column = p.key_places[unit * p.kv_len + j];
        if (column < 0) return;
        const float* weights = p.within_weights.Row(place.b, head, row);
        sum += share * static_cast<double>(weights[column]);
      });
      p.weights.Row(place.b, place.h, place.within)[j] = static_cast<float>(sum);
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CLUSTER_KERNELS_H_
