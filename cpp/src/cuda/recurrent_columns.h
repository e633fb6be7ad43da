// What kernels of recurrent attention share: a block takes some columns of the state of one KV
// head, a few threads a column, each with some of its channels; and what rows of q and k become.
// Columns do not depend on each other; what all of them read (rows of q and k, their features)
// every group of threads makes for itself, so there is no barrier.
#ifndef HEED_SRC_CUDA_RECURRENT_COLUMNS_H_
#define HEED_SRC_CUDA_RECURRENT_COLUMNS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/plugs.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// kLanes threads have a column: up to kLanes * kStateRows features.
template <class Block, int kLanes>
class RecurrentColumns {
 public:
  static int SharedBytes(const RecurrentParams& /*params*/) { return 0; }

 protected:
  template <class T, int N>
  using Registers = typename Block::template Registers<T, N>;
  using Number = Registers<float, 1>;
  using Row = Registers<float, kStateRows>;  // a number for each channel of a thread

  static constexpr int kCols = kBlockThreads / kLanes;

  HEED_DEVICE RecurrentColumns(Block& block, const RecurrentParams& params)
      : block_(block), p_(params) {}

  // Columns `index` % col_blocks of KV head `index` / col_blocks.
  HEED_DEVICE void Begin(int64_t index) {
    first_col_ = static_cast<int>(index % p_.col_blocks) * kCols;
    const int unit = static_cast<int>(index / p_.col_blocks);
    batch_ = unit / p_.num_kv_heads;
    head_ = unit % p_.num_kv_heads;
    length_ = p_.key_lengths == nullptr ? p_.kv_len : p_.key_lengths[batch_];
  }

  HEED_DEVICE int Col(int thread) const { return first_col_ + thread / kLanes; }
  HEED_DEVICE bool HasCol(int thread) const { return Col(thread) < p_.width; }
  // The channel of a thread's row n of the state.
  HEED_DEVICE static int Channel(int thread, int n) { return thread % kLanes + kLanes * n; }

  HEED_DEVICE int64_t Position(int t) const {
    return t + (p_.positions == nullptr ? 0 : p_.positions[batch_]);
  }
  HEED_DEVICE float Decay(int t, int c) const {
    return p_.log_decay.data == nullptr ? 1.0f : Exp(p_.log_decay.At(batch_, head_, t, c));
  }
  HEED_DEVICE float Beta(int t) const {
    return p_.beta.data == nullptr ? 1.0f : p_.beta.At(batch_, head_, t, 0);
  }
  HEED_DEVICE float Skip(int head, int t) const {
    return p_.skip != nullptr && t < length_ ? p_.skip[head] : 0.0f;
  }
  // The thread's column of the value of token t.
  HEED_DEVICE float Value(int thread, int t) const {
    return HasCol(thread) ? p_.v.Row(batch_, head_, t)[Col(thread)] : 0.0f;
  }

  // body(thread, n, channel) for the rows of every thread, those behind the last one left out.
  template <class Body>
  HEED_DEVICE void EachRow(const Body& body) {
    block_.Each([&](int thread) {
      HEED_UNROLL for (int n = 0; n < kStateRows; ++n) {
        if (Channel(thread, n) < p_.features) body(thread, n, Channel(thread, n));
      }
    });
  }
  // The sums of part(thread, n, channel) over the channels, for each group its own.
  template <class Part>
  HEED_DEVICE void Sum(Number& sum, const Part& part) {
    block_.Each([&](int thread) { sum(thread, 0) = 0; });
    EachRow([&](int thread, int n, int c) { sum(thread, 0) += part(thread, n, c); });
    block_.template GroupSum<kLanes>(sum);
  }
  template <class Part>
  HEED_DEVICE void Largest(Number& largest, Row& row, const Part& part) {
    block_.Each([&](int thread) { largest(thread, 0) = kMinusInfinity; });
    EachRow([&](int thread, int n, int) {
      largest(thread, 0) = fmaxf(largest(thread, 0), part(row(thread, n)));
    });
    block_.template GroupMax<kLanes>(largest);
  }

  // `row` becomes the features of the row of token t.
  HEED_DEVICE void LoadFeatures(Row& row, const float* from, int t, bool is_key) {
    switch (p_.feature_map) {
      case FeatureMap::kTaylor:
        LoadTaylor(row, from, is_key ? p_.key_factor : p_.query_factor);
        break;
      case FeatureMap::kCosine:
        LoadCosine(row, from, t);
        break;
      default:
        EachRow([&](int thread, int n, int c) { row(thread, n) = from[c]; });
        MapElements(row, is_key);
        break;
    }
    if (is_key || p_.scale == 1) return;
    EachFeature(row, [&](float x) { return p_.scale * x; });
  }
  // Divided by the largest element first, so that squares stay within float32.
  HEED_DEVICE void MakeUnit(Row& row) {
    Number largest, squares;
    Largest(largest, row, [](float x) { return fabsf(x); });
    EachRow([&](int thread, int n, int) {
      if (largest(thread, 0) > 0) row(thread, n) /= largest(thread, 0);
    });
    Sum(squares, [&](int thread, int n, int) { return row(thread, n) * row(thread, n); });
    EachRow([&](int thread, int n, int) {
      if (squares(thread, 0) != 0) row(thread, n) /= sqrtf(squares(thread, 0));
    });
  }

  // What the state answers to query head `head` at token t, and `own` of the token's own value.
  HEED_DEVICE void StoreAnswer(int head, int t, Number& answer, bool adds_own, Number& own) {
    block_.Each([&](int thread) {
      if (thread % kLanes != 0 || !HasCol(thread)) return;
      float out = answer(thread, 0);
      if (adds_own) out += own(thread, 0) * Value(thread, t);
      p_.output.Row(batch_, head, t)[Col(thread)] = out;
    });
  }
  // Divides by the sums of weights; rows without weight are zeros.
  HEED_DEVICE void Normalize(Number& answer, Number& denominator) {
    block_.Each([&](int thread) {
      const float sum = denominator(thread, 0);
      answer(thread, 0) = sum == 0 ? 0.0f : answer(thread, 0) / sum;
    });
  }

  Block& block_;
  const RecurrentParams& p_;
  int first_col_, batch_, head_, length_;

 private:
  // 1, x and all products of two elements: see TaylorRow() of the CPU.
  HEED_DEVICE void LoadTaylor(Row& row, const float* from, float factor) {
    EachRow([&](int thread, int n, int c) {
      if (c <= p_.head_dim) {
        row(thread, n) = c == 0 ? 1.0f : factor * from[c - 1];
        return;
      }
      int i = 0, ahead = c - 1 - p_.head_dim;  // the pair (i, i + ahead), row after row
      for (; ahead >= p_.head_dim - i; ++i) ahead -= p_.head_dim - i;
      const float x = factor * factor * from[i] * from[i + ahead];
      row(thread, n) = ahead == 0 ? x * 0.70710678f : x;
    });
  }
  // max(0, x) times the cosine, then the sine, of the token's angle.
  HEED_DEVICE void LoadCosine(Row& row, const float* from, int t) {
    const float half_turns =
        static_cast<float>(static_cast<double>(Position(t)) / (2 * static_cast<double>(p_.period)));
    const float cosine = CosineOfPi(half_turns), sine = CosineOfPi(half_turns - 0.5f);
    EachRow([&](int thread, int n, int c) {
      const float x = from[c % p_.head_dim];
      row(thread, n) = (x <= 0 ? 0.0f : x) * (c < p_.head_dim ? cosine : sine);
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
  HEED_DEVICE void MapElements(Row& row, bool is_key) {
    switch (p_.feature_map) {
      case FeatureMap::kEluPlusOne:
        EachFeature(row, [](float x) { return x <= 0 ? Exp(x) : x + 1; });
        break;
      case FeatureMap::kRelu:
        EachFeature(row, [](float x) { return x <= 0 ? 0.0f : x; });
        break;
      case FeatureMap::kComplement:
        if (is_key) EachFeature(row, [](float x) { return -expm1f(x); });
        break;
      case FeatureMap::kSoftmax:
        Softmax(row);
        break;
      case FeatureMap::kUnit:
        MakeUnit(row);
        break;
      default:
        break;
    }
  }
  template <class Map>
  HEED_DEVICE void EachFeature(Row& row, const Map& map) {
    EachRow([&](int thread, int n, int) { row(thread, n) = map(row(thread, n)); });
  }
  HEED_DEVICE void Softmax(Row& row) {
    Number largest, sum;
    Largest(largest, row, [](float x) { return x; });
    EachRow(
        [&](int thread, int n, int) { row(thread, n) = Exp(row(thread, n) - largest(thread, 0)); });
    Sum(sum, [&](int thread, int n, int) { return row(thread, n); });
    EachRow([&](int thread, int n, int) { row(thread, n) /= sum(thread, 0); });
  }
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RECURRENT_COLUMNS_H_
