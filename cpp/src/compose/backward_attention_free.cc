// Gradients of the attention-free transformer: every channel is a softmax of its own. Rows are
// summed again, then each block of keys, and each row of the bias, is one task's. Rows that see
// more and more keys, without a bias, take one pass forward and one back.
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>

#include "src/compose/attention_free_problem.h"
#include "src/compose/backward_request.h"
#include "src/compose/backward_rows.h"
#include "src/compose/backward_seen_keys.h"
#include "src/compose/rows.h"
#include "src/message.h"

namespace heed {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Channels of a task, and keys: their sums lie on the stack.
constexpr int64_t kChannels = 64;
constexpr int64_t kKeys = 16;

// Rows [batch, num_heads, q_len, head_dim]: the log of each channel's denominator (-inf: no key),
// its mean, and what arrives at the mean.
struct FreeRows {
  OwnedTensor lse, mean, d_mean;
  explicit FreeRows(const Extents& shape) : lse(shape), mean(shape), d_mean(shape) {}
};

// A running sum of e^x and of e^x v, relative to the largest x so far.
struct RunningMean {
  double max = -std::numeric_limits<double>::infinity(), sum = 0, values = 0;

  // x is not -inf.
  void Add(double x, double value) {
    if (!(x <= max)) {  // NaN too
      const double fall = std::exp(max - x);
      sum *= fall;
      values *= fall;
      max = x;
    }
    const double weight = std::exp(x - max);
    sum += weight;
    values += weight * value;
  }
};

class FreeBackward {
 public:
  explicit FreeBackward(const ComposedBackward& call)
      : call_(call),
        r_(ReadAttentionFree(call.reader)),
        p_(ValidateAttentionFree(r_.q, r_.k, r_.v, r_.options)),
        seen_(p_.pairs),
        grows_(Grows()),
        rows_(p_.q.shape),
        d_k_(p_.k.shape),
        d_v_(p_.k.shape) {}

  void Run() {
    const Extents& q = p_.q.shape;
    const OwnedTensor d_gate(q);
    if (grows_) SumGrowingRows();
    ForEachRow(q, call_.pool, [&](int64_t b, int64_t h, int64_t i) {
      if (!grows_) SumRow(b, h, i);
      GateRow(b, h, i, &d_gate.view()(b, h, i, 0));
    });
    SumOver(d_gate.view(), call_.Wanted("q"), call_.pool);
    if (grows_) {
      GrowingKeyGradients();
    } else {
      KeyGradients();
    }
    SumOver(d_k_.view(), call_.Wanted("k"), call_.pool);
    SumOver(d_v_.view(), call_.Wanted("v"), call_.pool);
    BiasGradient();
  }

 private:
  int64_t width() const { return p_.q.shape[3]; }
  int64_t KvHead(int64_t h) const { return h / std::max<int64_t>(1, p_.pairs.group); }

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
    for (int64_t first = 0; first < width(); first += kChannels) {
      const int64_t count = std::min(kChannels, width() - first);
      RunningMean means[kChannels];
      ForEachKey(b, h, i, 0, p_.k.shape[2],
                 [&](int64_t j, float bias) { AddKey(b, h, j, bias, first, count, means); });
      WriteMeans(b, h, i, first, count, means);
    }
  }

  void AddKey(int64_t b, int64_t h, int64_t j, float bias, int64_t first, int64_t count,
              RunningMean* means) const {
    const float* k = &p_.k(b, KvHead(h), j, first);
    const float* v = &p_.v(b, KvHead(h), j, first);
    for (int64_t c = 0; c < count; ++c) {
      const float x = k[c] + bias;
      if (x == kMinusInfinity) continue;
      means[c].Add(static_cast<double>(x), static_cast<double>(v[c]));
    }
  }

  void WriteMeans(int64_t b, int64_t h, int64_t i, int64_t first, int64_t count,
                  const RunningMean* means) {
    for (int64_t c = 0; c < count; ++c) {
      const RunningMean& mean = means[c];
      const bool empty = mean.sum == 0;
      rows_.lse.view()(b, h, i, first + c) =
          empty ? kMinusInfinity : static_cast<float>(mean.max + std::log(mean.sum));
      rows_.mean.view()(b, h, i, first + c) =
          empty ? 0.0f : static_cast<float>(mean.values / mean.sum);
    }
  }

  // Without a bias and cell rules, and if the rows of each batch entry begin at the same key.
  bool Grows() const {
    if (p_.pairs.options.bias.has_value() || !seen_.only_ranges()) return false;
    for (int64_t b = 0; b < p_.q.shape[0]; ++b) {
      KeyRange last = {0, 0};
      for (int64_t i = 0; i < p_.q.shape[2]; ++i) {
        const KeyRange keys = VisibleKeys(p_.pairs, b, i);
        if (keys.end < last.end || (last.end > 0 && keys.begin != last.begin)) return false;
        last = keys;
      }
    }
    return true;
  }

  // body(b, head, first, count) for blocks of channels of [batch, heads].
  template <class Body>
  void ForEachChannelBlock(int64_t heads, const Body& body) {
    const int64_t blocks = (width() + kChannels - 1) / kChannels;
    call_.pool.Run(p_.q.shape[0] * heads * blocks, [&](int64_t task, int) {
      const int64_t first = task % blocks * kChannels, unit = task / blocks;
      body(unit / heads, unit % heads, first, std::min(kChannels, width() - first));
    });
  }

  // Each row goes on where the one before it stopped.
  void SumGrowingRows() {
    ForEachChannelBlock(p_.q.shape[1], [&](int64_t b, int64_t h, int64_t first, int64_t count) {
      RunningMean means[kChannels];
      int64_t done = 0;
      for (int64_t i = 0; i < p_.q.shape[2]; ++i) {
        const KeyRange keys = VisibleKeys(p_.pairs, b, i);
        for (int64_t j = std::max(done, keys.begin); j < keys.end; ++j) {
          AddKey(b, h, j, 0, first, count, means);
        }
        done = std::max(done, keys.end);
        WriteMeans(b, h, i, first, count, means);
      }
    });
  }

  // What arrives at rows from the last one on, relative to the denominator of the newest: a key
  // gets from all rows that see it e^(key - lse) times these sums.
  struct RowSums {
    double lse = 0, d_mean = 0, d_mean_mean = 0;
    bool any = false;

    void Add(double row_lse, double row_d_mean, double mean) {
      const double fall = any ? std::exp(row_lse - lse) : 0;
      d_mean = any ? d_mean * fall + row_d_mean : row_d_mean;
      d_mean_mean = any ? d_mean_mean * fall + row_d_mean * mean : row_d_mean * mean;
      lse = row_lse;
      any = true;
    }
  };

  void GrowingKeyGradients() {
    ForEachChannelBlock(p_.k.shape[1],
                        [&](int64_t b, int64_t kv_head, int64_t first, int64_t count) {
                          for (int64_t j = 0; j < p_.k.shape[2]; ++j) {
                            std::fill_n(&d_k_.view()(b, kv_head, j, first), count, 0.0f);
                            std::fill_n(&d_v_.view()(b, kv_head, j, first), count, 0.0f);
                          }
                          const int64_t group = p_.pairs.group;
                          for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
                            AddGrowingHead(b, h, first, count);
                          }
                        });
  }

  // From the last row to the first; a key gets its sums when no row that is left sees it.
  void AddGrowingHead(int64_t b, int64_t h, int64_t first, int64_t count) {
    RowSums sums[kChannels];
    int64_t left = 0;  // keys at and beyond it are done
    for (int64_t i = p_.q.shape[2]; i-- > 0;) {
      const KeyRange keys = VisibleKeys(p_.pairs, b, i);
      if (keys.begin == keys.end) break;
      for (int64_t j = left; j-- > keys.end;) AddToKey(b, h, j, first, count, sums);
      left = keys.end;
      for (int64_t c = 0; c < count; ++c) {
        const float lse = rows_.lse.view()(b, h, i, first + c);
        if (lse == kMinusInfinity) continue;
        sums[c].Add(static_cast<double>(lse),
                    static_cast<double>(rows_.d_mean.view()(b, h, i, first + c)),
                    static_cast<double>(rows_.mean.view()(b, h, i, first + c)));
      }
    }
    const int64_t begin = left > 0 ? VisibleKeys(p_.pairs, b, p_.q.shape[2] - 1).begin : 0;
    for (int64_t j = left; j-- > begin;) AddToKey(b, h, j, first, count, sums);
  }

  void AddToKey(int64_t b, int64_t h, int64_t j, int64_t first, int64_t count,
                const RowSums* sums) {
    const int64_t kv_head = KvHead(h);
    for (int64_t c = 0; c < count; ++c) {
      const RowSums& sum = sums[c];
      const float key = p_.k(b, kv_head, j, first + c);
      if (!sum.any || key == kMinusInfinity) continue;
      const double weight = std::exp(static_cast<double>(key) - sum.lse);
      const double value = static_cast<double>(p_.v(b, kv_head, j, first + c));
      d_v_.view()(b, kv_head, j, first + c) += static_cast<float>(weight * sum.d_mean);
      d_k_.view()(b, kv_head, j, first + c) +=
          static_cast<float>(weight * (value * sum.d_mean - sum.d_mean_mean));
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
    const int64_t channel_blocks = (k[3] + kChannels - 1) / kChannels;
    const int64_t blocks = key_blocks * channel_blocks;
    call_.pool.Run(k[0] * k[1] * blocks, [&](int64_t task, int) {
      const int64_t b = task / blocks / k[1], head = task / blocks % k[1];
      const int64_t block = task % blocks;
      KeyBlock(b, head, block / channel_blocks * kKeys, block % channel_blocks * kChannels);
    });
  }

  void KeyBlock(int64_t b, int64_t kv_head, int64_t key, int64_t first) {
    const int64_t end = std::min(p_.k.shape[2], key + kKeys);
    const int64_t count = std::min(kChannels, width() - first);
    double d_k[kKeys][kChannels] = {}, d_v[kKeys][kChannels] = {};
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
        d_k_.view()(b, kv_head, j, first + c) = static_cast<float>(d_k[j - key][c]);
        d_v_.view()(b, kv_head, j, first + c) = static_cast<float>(d_v[j - key][c]);
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
  OwnedTensor d_k_, d_v_;
};

}  // namespace

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
