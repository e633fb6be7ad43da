// Gradients of the attention-free transformer: every channel is a softmax of its own. Rows are
// summed again, then each block of keys, and each row of the bias, is one task's.
#include "src/compose/backward_attention_free.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>

#include "src/compose/backward_request.h"
#include "src/compose/backward_rows.h"
#include "src/message.h"

namespace heed {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Keys of a task, whose sums lie on the stack.
constexpr int64_t kKeys = 16;

class FreeBackward {
 public:
  explicit FreeBackward(const ComposedBackward& call)
      : call_(call),
        r_(ReadAttentionFree(call.reader)),
        p_(ValidateAttentionFree(r_.q, r_.k, r_.v, r_.options)),
        seen_(p_.pairs),
        grows_(Grows(p_, seen_)),
        rows_(p_) {}

  void Run() {
    const Extents& q = p_.q.shape;
    const OwnedTensor d_gate(q);
    if (grows_) SumGrowingRows(rows_, call_.pool);
    ForEachRow(q, call_.pool, [&](int64_t b, int64_t h, int64_t i) {
      if (!grows_) SumRow(b, h, i);
      GateRow(b, h, i, &d_gate.view()(b, h, i, 0));
    });
    SumOver(d_gate.view(), call_.Wanted("q"), call_.pool);
    if (grows_) {
      GrowingKeyGradients(rows_, call_.pool);
    } else {
      KeyGradients();
    }
    SumOver(rows_.d_k.view(), call_.Wanted("k"), call_.pool);
    SumOver(rows_.d_v.view(), call_.Wanted("v"), call_.pool);
    BiasGradient();
  }

 private:
  int64_t width() const { return rows_.width(); }
  int64_t KvHead(int64_t h) const { return rows_.KvHead(h); }

  // Whether the bias of a pair counts.
  bool HasBias(int64_t b, int64_t i, int64_t j) const {
    if (!p_.pairs.options.bias.has_value()) return false;
    return !p_.local || std::abs(p_.pairs.Position(b, i) - j) < *p_.local;
  }
  float Bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return HasBias(b, i, j) ? p_.pairs.options.bias(b, h, i, j) : 0.0f;
  }

  // body(j, bias) for the keys of [from, to) that a row sees.
  template <class Body>
  void ForEachKey(int64_t b, int64_t h, int64_t i, int64_t from, int64_t to,
                  const Body& body) const {
    seen_.ForEach(b, h, i, from, to, [&](int64_t j) {
      const float bias = Bias(b, h, i, j);
      if (bias != kMinusInfinity) body(j, bias);
    });
  }

  // Denominators and means of a row.
  void SumRow(int64_t b, int64_t h, int64_t i) {
    for (int64_t first = 0; first < width(); first += kFreeChannels) {
      const int64_t count = std::min(kFreeChannels, width() - first);
      RunningMean means[kFreeChannels];
      ForEachKey(b, h, i, 0, p_.k.shape[2],
                 [&](int64_t j, float bias) { rows_.AddKey(b, h, j, bias, first, count, means); });
      rows_.WriteMeans(b, h, i, first, count, means);
    }
  }

  // What arrives at the means and at the queries. A channel without keys passes nothing on.
  void GateRow(int64_t b, int64_t h, int64_t i, float* d_q) {
    const TensorView<const float> d_output = call_.d_output();
    for (int64_t c = 0; c < width(); ++c) {
      const bool empty = rows_.lse.view()(b, h, i, c) == kMinusInfinity;
      const double open = 1 / (1 + std::exp(-static_cast<double>(p_.q(b, h, i, c))));
      const double arriving = static_cast<double>(d_output(b, h, i, c));
      const double mean = static_cast<double>(rows_.mean.view()(b, h, i, c));
      rows_.d_mean.view()(b, h, i, c) = empty ? 0.0f : static_cast<float>(arriving * open);
      d_q[c] = empty ? 0.0f : static_cast<float>(arriving * mean * open * (1 - open));
    }
  }

  // body(c, weight, d_score, d_mean) for the channels [first, first + count) of a pair.
  template <class Body>
  void ForEachChannel(int64_t b, int64_t h, int64_t i, int64_t j, float bias, int64_t first,
                      int64_t count, const Body& body) const {
    const float* k = &p_.k(b, KvHead(h), j, first);
    const float* v = &p_.v(b, KvHead(h), j, first);
    const float* lse = &rows_.lse.view()(b, h, i, first);
    const float* mean = &rows_.mean.view()(b, h, i, first);
    const float* d_mean = &rows_.d_mean.view()(b, h, i, first);
    for (int64_t c = 0; c < count; ++c) {
      const float x = k[c] + bias;
      if (x == kMinusInfinity) continue;
      const float weight = std::exp(x - lse[c]);
      body(c, weight, weight * d_mean[c] * (v[c] - mean[c]), d_mean[c]);
    }
  }

  // Sums of a block of keys and channels, over the heads that share them and their queries.
  void KeyGradients() {
    const Extents& k = p_.k.shape;
    const int64_t key_blocks = (k[2] + kKeys - 1) / kKeys;
    const int64_t channel_blocks = (k[3] + kFreeChannels - 1) / kFreeChannels;
    const int64_t blocks = key_blocks * channel_blocks;
    call_.pool.Run(k[0] * k[1] * blocks, [&](int64_t task, int) {
      const int64_t b = task / blocks / k[1], head = task / blocks % k[1];
      const int64_t block = task % blocks;
      KeyBlock(b, head, block / channel_blocks * kKeys, block % channel_blocks * kFreeChannels);
    });
  }

  void KeyBlock(int64_t b, int64_t kv_head, int64_t key, int64_t first) {
    const int64_t end = std::min(p_.k.shape[2], key + kKeys);
    const int64_t count = std::min(kFreeChannels, width() - first);
    double d_k[kKeys][kFreeChannels] = {}, d_v[kKeys][kFreeChannels] = {};
    for (int64_t h = kv_head * p_.pairs.group; h < (kv_head + 1) * p_.pairs.group; ++h) {
      for (int64_t i = 0; i < p_.q.shape[2]; ++i) {
        ForEachKey(b, h, i, key, end, [&](int64_t j, float bias) {
          ForEachChannel(b, h, i, j, bias, first, count,
                         [&](int64_t c, float weight, float d_score, float d_mean) {
                           d_k[j - key][c] += static_cast<double>(d_score);
                           d_v[j - key][c] += static_cast<double>(weight * d_mean);
                         });
        });
      }
    }
    for (int64_t j = key; j < end; ++j) {
      for (int64_t c = 0; c < count; ++c) {
        rows_.d_k.view()(b, kv_head, j, first + c) = static_cast<float>(d_k[j - key][c]);
        rows_.d_v.view()(b, kv_head, j, first + c) = static_cast<float>(d_v[j - key][c]);
      }
    }
  }

  // A row of the bias is the sum over the batch entries, heads and queries that it broadcasts to.
  void BiasGradient() {
    const TensorView<float> to = call_.Wanted("bias");
    if (!to.has_value()) return;
    const size_t columns = static_cast<size_t>(to.shape[3]);
    std::vector<ScratchVector<double>> scratch(static_cast<size_t>(call_.pool.NumThreads()));
    for (ScratchVector<double>& sums : scratch) sums.resize(columns);
    call_.pool.Run(to.shape[0] * to.shape[1] * to.shape[2], [&](int64_t task, int worker) {
      ScratchVector<double>& sums = scratch[static_cast<size_t>(worker)];
      std::fill(sums.begin(), sums.end(), 0.0);
      const int64_t i = task % to.shape[2], unit = task / to.shape[2];
      BiasRow(to, {unit / to.shape[1], unit % to.shape[1], i}, sums);
    });
  }

  struct Place {
    int64_t b, h, i;
  };

  void BiasRow(const TensorView<float>& to, const Place& place, ScratchVector<double>& sums) const {
    const Extents& q = p_.q.shape;
    const auto last = [&](size_t axis, int64_t n) {
      return to.shape[axis] == q[axis] ? n + 1 : q[axis];
    };
    for (int64_t b = place.b; b < last(0, place.b); ++b) {
      for (int64_t h = place.h; h < last(1, place.h); ++h) {
        for (int64_t i = place.i; i < last(2, place.i); ++i) {
          ForEachKey(b, h, i, 0, p_.k.shape[2], [&](int64_t j, float bias) {
            if (!HasBias(b, i, j)) return;
            double& sum = sums[to.shape[3] == 1 ? 0 : static_cast<size_t>(j)];
            ForEachChannel(b, h, i, j, bias, 0, width(), [&](int64_t, float, float d_score, float) {
              sum += static_cast<double>(d_score);
            });
          });
        }
      }
    }
    for (size_t j = 0; j < sums.size(); ++j) {
      to(place.b, place.h, place.i, static_cast<int64_t>(j)) = static_cast<float>(sums[j]);
    }
  }

  const ComposedBackward& call_;
  AttentionFreeRequest r_;
  AttentionFreeProblem p_;
  SeenKeys seen_;
  bool grows_;  // does each row see what the row before it does, and more?
  FreeRows rows_;
};

}  // namespace

void FreeRows::AddKey(int64_t b, int64_t h, int64_t j, float bias, int64_t first, int64_t count,
                      RunningMean* means) const {
  const float* k = &p.k(b, KvHead(h), j, first);
  const float* v = &p.v(b, KvHead(h), j, first);
  for (int64_t c = 0; c < count; ++c) {
    const float x = k[c] + bias;
    if (x == kMinusInfinity) continue;
    means[c].Add(static_cast<double>(x), static_cast<double>(v[c]));
  }
}

void FreeRows::WriteMeans(int64_t b, int64_t h, int64_t i, int64_t first, int64_t count,
                          const RunningMean* means) const {
  for (int64_t c = 0; c < count; ++c) {
    const RunningMean& now = means[c];
    const bool empty = now.sum == 0;
    lse.view()(b, h, i, first + c) =
        empty ? kMinusInfinity : static_cast<float>(now.max + std::log(now.sum));
    mean.view()(b, h, i, first + c) = empty ? 0.0f : static_cast<float>(now.values / now.sum);
  }
}

void AttentionFreeBackward(const ComposedBackward& call) {
  try {
    FreeBackward(call).Run();
  } catch (const std::bad_alloc&) {
    Fail(ErrorCode::kMemory, "could not allocate the scratch memory of attention_free");
  } catch (const std::length_error&) {
    Fail(ErrorCode::kMemory, "the scratch memory of attention_free cannot be addressed");
  }
}

}  // namespace heed
