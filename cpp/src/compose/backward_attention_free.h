// What the way back through the attention-free transformer works on. Plain data, no SIMD.
#ifndef HEED_SRC_COMPOSE_BACKWARD_ATTENTION_FREE_H_
#define HEED_SRC_COMPOSE_BACKWARD_ATTENTION_FREE_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "src/compose/attention_free_problem.h"
#include "src/compose/backward_seen_keys.h"

namespace heed {

struct FreeBackward {
  AttentionFreeProblem p;
  TensorView<const float> d_output;
  TensorView<float> d_q, d_k, d_v, d_bias;  // absent: not wanted

  int64_t width() const { return p.q.shape[3]; }
  int64_t KvHead(int64_t h) const { return h / std::max<int64_t>(1, p.pairs.group); }

  // Whether the bias of a pair counts.
  bool HasBias(int64_t b, int64_t i, int64_t j) const {
    if (!p.pairs.options.bias.has_value()) return false;
    return !p.local || std::abs(p.pairs.Position(b, i) - j) < *p.local;
  }

  // body(j, bias) for the keys of [from, to) that a row sees.
  template <class Body>
  void ForEachKey(const SeenKeys& seen, int64_t b, int64_t h, int64_t i, int64_t from, int64_t to,
                  const Body& body) const {
    seen.ForEach(b, h, i, from, to, [&](int64_t j) {
      const float bias = HasBias(b, i, j) ? p.pairs.options.bias(b, h, i, j) : 0.0f;
      if (bias != -std::numeric_limits<float>::infinity()) body(j, bias);
    });
  }
};

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_BACKWARD_ATTENTION_FREE_H_
