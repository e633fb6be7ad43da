// Recurrent attention, token by token: a block keeps some columns of one state in registers, a few
// threads a column, and takes them past all tokens: decay, erase, write, read, in the order of
// heed/recurrent.h. A call of one token is a step. Columns do not depend on each other; what all of
// them read (rows of q and k, their features) every group of threads makes for itself, so there is
// no barrier.
#ifndef HEED_SRC_CUDA_RECURRENT_KERNEL_H_
#define HEED_SRC_CUDA_RECURRENT_KERNEL_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/plugs.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// kLanes threads have a column: up to kLanes * kStateRows features.
template <class Block, int kLanes>
class RecurrentKernel {
 public:
  HEED_DEVICE RecurrentKernel(Block& block, const RecurrentParams& params)
      : block_(block), p_(params) {}

  // Columns `index` % col_blocks of KV head `index` / col_blocks.
  HEED_DEVICE void Run(int64_t index) {
    first_col_ = static_cast<int>(index % p_.col_blocks) * kCols;
    const int unit = static_cast<int>(index / p_.col_blocks);
    batch_ = unit / p_.num_kv_heads;
    head_ = unit % p_.num_kv_heads;
    length_ = p_.key_lengths == nullptr ? p_.kv_len : p_.key_lengths[batch_];
    LoadState();
    const bool reads_first = p_.bonus.data != nullptr;
    HEED_NO_UNROLL for (int t = 0; t < p_.kv_len; ++t) {
      if (p_.causal && reads_first) Read(t);
      if (t < length_) Write(t);
      if (p_.causal && !reads_first) Read(t);
    }
    HEED_NO_UNROLL for (int t = 0; t < p_.q_len && !p_.causal; ++t) Read(t);
    if (p_.final_state.data != nullptr) StoreState();
  }

 private:
  template <class T, int N>
  using Registers = typename Block::template Registers<T, N>;

  static constexpr int kRows = kStateRows;
  static constexpr int kCols = kBlockThreads / kLanes;

  HEED_DEVICE int Col(int thread) const { return first_col_ + thread / kLanes; }
  HEED_DEVICE bool HasCol(int thread) const { return Col(thread) < p_.width; }
  // The channel of a thread's row n of the state.
  HEED_DEVICE static int Channel(int thread, int n) { return thread % kLanes + kLanes * n; }

  // body(thread, n, channel) for the rows of every thread, those behind the last one left out.
  template <class Body>
  HEED_DEVICE void EachRow(const Body& body) {
    block_.Each([&](int thread) {
      HEED_UNROLL for (int n = 0; n < kRows; ++n) {
        if (Channel(thread, n) < p_.features) body(thread, n, Channel(thread, n));
      }
    });
  }
  // The sums of part(thread, n, channel) over the channels, for each group its own.
  template <class Part>
  HEED_DEVICE void Sum(Registers<float, 1>& sum, const Part& part) {
    block_.Each([&](int thread) { sum(thread, 0) = 0; });
    EachRow([&](int thread, int n, int c) { sum(thread, 0) += part(thread, n, c); });
    block_.template GroupSum<kLanes>(sum);
  }

  HEED_DEVICE void LoadState() {
    block_.Each([&](int thread) {
      HEED_UNROLL for (int n = 0; n < kRows; ++n) state_(thread, n) = sums_(thread, n) = 0;
    });
    if (p_.initial_state.data == nullptr) return;
    EachRow([&](int thread, int n, int c) {
      if (HasCol(thread)) {
        state_(thread, n) = p_.initial_state.Row(batch_, head_, c)[Col(thread)];
      }
      if (p_.normalize) {
        const int64_t unit = static_cast<int64_t>(batch_) * p_.num_kv_heads + head_;
        sums_(thread, n) = p_.initial_sums[unit * p_.features + c];
      }
    });
  }
  HEED_DEVICE void StoreState() {
    EachRow([&](int thread, int n, int c) {
      float* row = p_.final_state.Row(batch_, head_, c);
      if (HasCol(thread)) row[Col(thread)] = state_(thread, n);
      if (p_.normalize && Col(thread) == 0) row[p_.width] = sums_(thread, n);
    });
  }

  // row_ becomes the features of the row of token t.
  HEED_DEVICE void LoadFeatures(const float* from, int t, bool is_key) {
    switch (p_.feature_map) {
      case FeatureMap::kTaylor:
        LoadTaylor(from, is_key ? p_.key_factor : p_.query_factor);
        break;
      case FeatureMap::kCosine:
        LoadCosine(from, t);
        break;
      default:
        EachRow([&](int thread, int n, int c) { row_(thread, n) = from[c]; });
        MapElements(is_key);
        break;
    }
    if (is_key || p_.scale == 1) return;
    EachFeature([&](float x) { return p_.scale * x; });
  }
  // 1, x and all products of two elements: see TaylorRow() of the CPU.
  HEED_DEVICE void LoadTaylor(const float* from, float factor) {
    EachRow([&](int thread, int n, int c) {
      if (c <= p_.head_dim) {
        row_(thread, n) = c == 0 ? 1.0f : factor * from[c - 1];
        return;
      }
      int i = 0, ahead = c - 1 - p_.head_dim;  // the pair (i, i + ahead), row after row
      for (; ahead >= p_.head_dim - i; ++i) ahead -= p_.head_dim - i;
      const float x = factor * factor * from[i] * from[i + ahead];
      row_(thread, n) = ahead == 0 ? x * 0.70710678f : x;
    });
  }
  // max(0, x) times the cosine, then the sine, of the token's angle.
  HEED_DEVICE void LoadCosine(const float* from, int t) {
    const int64_t position = t + (p_.positions == nullptr ? 0 : p_.positions[batch_]);
    const float half_turns =
        static_cast<float>(static_cast<double>(position) / (2 * static_cast<double>(p_.period)));
    const float cosine = CosineOfPi(half_turns), sine = CosineOfPi(half_turns - 0.5f);
    EachRow([&](int thread, int n, int c) {
      const float x = from[c % p_.head_dim];
      row_(thread, n) = (x <= 0 ? 0.0f : x) * (c < p_.head_dim ? cosine : sine);
    });
  }
  // cos(pi x). cosf() of CUDA has a way for huge numbers that needs local memory.
  HEED_DEVICE static float CosineOfPi(float x) {
#ifdef __CUDACC__
    return cospif(x);
#else
    return static_cast<float>(std::cos(3.14159265358979324 * static_cast<double>(x)));
#endif
  }
  HEED_DEVICE void MapElements(bool is_key) {
    switch (p_.feature_map) {
      case FeatureMap::kEluPlusOne:
        EachFeature([](float x) { return x <= 0 ? Exp(x) : x + 1; });
        break;
      case FeatureMap::kRelu:
        EachFeature([](float x) { return x <= 0 ? 0.0f : x; });
        break;
      case FeatureMap::kComplement:
        if (is_key) EachFeature([](float x) { return -expm1f(x); });
        break;
      case FeatureMap::kSoftmax:
        Softmax();
        break;
      case FeatureMap::kUnit:
        MakeUnit();
        break;
      default:
        break;
    }
  }
  template <class Map>
  HEED_DEVICE void EachFeature(const Map& map) {
    EachRow([&](int thread, int n, int) { row_(thread, n) = map(row_(thread, n)); });
  }
  template <class Part>
  HEED_DEVICE void Largest(Registers<float, 1>& largest, const Part& part) {
    block_.Each([&](int thread) { largest(thread, 0) = kMinusInfinity; });
    EachRow([&](int thread, int n, int) {
      largest(thread, 0) = fmaxf(largest(thread, 0), part(row_(thread, n)));
    });
    block_.template GroupMax<kLanes>(largest);
  }
  HEED_DEVICE void Softmax() {
    Registers<float, 1> largest, sum;
    Largest(largest, [](float x) { return x; });
    EachRow([&](int thread, int n, int) {
      row_(thread, n) = Exp(row_(thread, n) - largest(thread, 0));
    });
    Sum(sum, [&](int thread, int n, int) { return row_(thread, n); });
    EachRow([&](int thread, int n, int) { row_(thread, n) /= sum(thread, 0); });
  }
  // Divided by the largest element first, so that squares stay within float32.
  HEED_DEVICE void MakeUnit() {
    Registers<float, 1> largest, squares;
    Largest(largest, [](float x) { return fabsf(x); });
    EachRow([&](int thread, int n, int) {
      if (largest(thread, 0) > 0) row_(thread, n) /= largest(thread, 0);
    });
    Sum(squares, [&](int thread, int n, int) { return row_(thread, n) * row_(thread, n); });
    EachRow([&](int thread, int n, int) {
      if (squares(thread, 0) != 0) row_(thread, n) /= sqrtf(squares(thread, 0));
    });
  }

  // Token t decays, erases and writes.
  HEED_DEVICE void Write(int t) {
    if (p_.erase_key.data != nullptr) LoadEraser(t);
    EachRow([&](int thread, int n, int c) {
      const float decay =
          p_.log_decay.data == nullptr ? 1.0f : Exp(p_.log_decay.At(batch_, head_, t, c));
      state_(thread, n) *= decay;
      sums_(thread, n) *= decay;
      if (p_.erase_key.data == nullptr) return;
      state_(thread, n) -=
          p_.erase_rate.Row(batch_, head_, t)[c] * row_(thread, n) * known_(thread, 0);
    });
    LoadFeatures(p_.k.Row(batch_, head_, t), t, true);
    if (p_.delta) Answer();
    const float beta = p_.beta.data == nullptr ? 1.0f : p_.beta.At(batch_, head_, t, 0);
    block_.Each([&](int thread) {
      const float value = HasCol(thread) ? p_.v.Row(batch_, head_, t)[Col(thread)] : 0.0f;
      known_(thread, 0) = beta * (p_.delta ? value - known_(thread, 0) : value);
    });
    EachRow([&](int thread, int n, int) {
      state_(thread, n) += row_(thread, n) * known_(thread, 0);
      sums_(thread, n) += row_(thread, n) * beta;
    });
  }
  // The direction to erase by, and what the state answers to it before it decays.
  HEED_DEVICE void LoadEraser(int t) {
    const float* from = p_.erase_key.Row(batch_, head_, t);
    EachRow([&](int thread, int n, int c) { row_(thread, n) = from[c]; });
    MakeUnit();
    Answer();
  }
  HEED_DEVICE void Answer() {
    Sum(known_, [&](int thread, int n, int) { return row_(thread, n) * state_(thread, n); });
  }

  // All query heads of the KV head read at token t.
  HEED_DEVICE void Read(int t) {
    HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) ReadHead(head_ * p_.group + g, t);
  }
  HEED_DEVICE void ReadHead(int head, int t) {
    Registers<float, 1> denominator, own;
    LoadFeatures(p_.q.Row(batch_, head, t), t, false);
    Answer();
    if (p_.normalize) {
      Sum(denominator, [&](int thread, int n, int) { return row_(thread, n) * sums_(thread, n); });
    }
    const bool has_bonus = p_.bonus.data != nullptr && t < length_;
    const bool has_skip = p_.skip != nullptr && t < length_;
    if (has_bonus) {
      Sum(own, [&](int thread, int n, int c) {
        return row_(thread, n) * p_.bonus.Row(0, head, 0)[c] * p_.k.Row(batch_, head_, t)[c];
      });
    }
    block_.Each([&](int thread) {
      if (thread % kLanes != 0 || !HasCol(thread)) return;
      float answer = known_(thread, 0);
      if (p_.normalize) {
        answer = denominator(thread, 0) == 0 ? 0.0f : answer / denominator(thread, 0);
      }
      float factor = has_skip ? p_.skip[head] : 0.0f;
      if (has_bonus) factor += own(thread, 0);
      if (has_bonus || has_skip) answer += factor * p_.v.Row(batch_, head_, t)[Col(thread)];
      p_.output.Row(batch_, head, t)[Col(thread)] = answer;
    });
  }

  Block& block_;
  const RecurrentParams& p_;
  int first_col_, batch_, head_, length_;

  Registers<float, kRows> state_;
  Registers<float, kRows> sums_;  // of keys, with normalize
  Registers<float, kRows> row_;   // features of a token, or the direction that it erases by
  Registers<float, 1> known_;     // what the state answers to row_, then what is written
};

// Copies the sums of keys of KV head `unit` out of the initial state.
template <class Block>
HEED_DEVICE void CopySums(Block& block, const RecurrentParams& p, int64_t unit) {
  const int b = static_cast<int>(unit / p.num_kv_heads);
  const int h = static_cast<int>(unit % p.num_kv_heads);
  block.Each([&](int thread) {
    for (int c = thread; c < p.features; c += kBlockThreads) {
      p.initial_sums[unit * p.features + c] = p.initial_state.Row(b, h, c)[p.width];
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RECURRENT_KERNEL_H_
