// Recurrent attention, token by token: columns of one state in registers are taken past all tokens:
// decay, erase, write, read, in the order of heed/recurrent.h. A call of one token is a step.
#ifndef HEED_SRC_CUDA_RECURRENT_KERNEL_H_
#define HEED_SRC_CUDA_RECURRENT_KERNEL_H_

#include <cstdint>

#include "src/cuda/recurrent_columns.h"

namespace heed::cuda {

template <class Block, int kLanes>
class RecurrentKernel : public RecurrentColumns<Block, kLanes> {
  using Base = RecurrentColumns<Block, kLanes>;
  using typename Base::Number;
  using typename Base::Row;

 public:
  HEED_DEVICE RecurrentKernel(Block& block, const RecurrentParams& params) : Base(block, params) {}

  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index);
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
  using Base::batch_;
  using Base::block_;
  using Base::head_;
  using Base::length_;
  using Base::p_;

  HEED_DEVICE void LoadState() {
    block_.Each([&](int thread) {
      HEED_UNROLL for (int n = 0; n < kStateRows; ++n) state_(thread, n) = sums_(thread, n) = 0;
    });
    if (p_.initial_state.data == nullptr) return;
    this->EachRow([&](int thread, int n, int c) {
      if (this->HasCol(thread)) {
        state_(thread, n) = p_.initial_state.Row(batch_, head_, c)[this->Col(thread)];
      }
      if (p_.normalize) sums_(thread, n) = *p_.InitialSums(batch_, head_, c);
    });
  }
  HEED_DEVICE void StoreState() {
    this->EachRow([&](int thread, int n, int c) {
      float* row = p_.final_state.Row(batch_, head_, c);
      if (this->HasCol(thread)) row[this->Col(thread)] = state_(thread, n);
      if (p_.normalize && this->Col(thread) == 0) row[p_.width] = sums_(thread, n);
    });
  }

  // Token t decays, erases and writes.
  HEED_DEVICE void Write(int t) {
    if (p_.erase_key.data != nullptr) LoadEraser(t);
    this->EachRow([&](int thread, int n, int c) {
      const float decay = this->Decay(t, c);
      state_(thread, n) *= decay;
      sums_(thread, n) *= decay;
      if (p_.erase_key.data == nullptr) return;
      state_(thread, n) -=
          p_.erase_rate.Row(batch_, head_, t)[c] * row_(thread, n) * known_(thread, 0);
    });
    this->LoadFeatures(row_, p_.k.Row(batch_, head_, t), t, true);
    if (p_.delta) Answer();
    const float beta = this->Beta(t);
    block_.Each([&](int thread) {
      const float value = this->Value(thread, t);
      known_(thread, 0) = beta * (p_.delta ? value - known_(thread, 0) : value);
    });
    this->EachRow([&](int thread, int n, int) {
      state_(thread, n) += row_(thread, n) * known_(thread, 0);
      sums_(thread, n) += row_(thread, n) * beta;
    });
  }
  // The direction to erase by, and what the state answers to it before it decays.
  HEED_DEVICE void LoadEraser(int t) {
    const float* from = p_.erase_key.Row(batch_, head_, t);
    this->EachRow([&](int thread, int n, int c) { row_(thread, n) = from[c]; });
    this->MakeUnit(row_);
    Answer();
  }
  HEED_DEVICE void Answer() {
    this->Sum(known_, [&](int thread, int n, int) { return row_(thread, n) * state_(thread, n); });
  }

  // All query heads of the KV head read at token t.
  HEED_DEVICE void Read(int t) {
    HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) ReadHead(head_ * p_.group + g, t);
  }
  HEED_DEVICE void ReadHead(int head, int t) {
    Number denominator, own;
    this->LoadFeatures(row_, p_.q.Row(batch_, head, t), t, false);
    Answer();
    if (p_.normalize) {
      this->Sum(denominator,
                [&](int thread, int n, int) { return row_(thread, n) * sums_(thread, n); });
      this->Normalize(known_, denominator);
    }
    const bool has_bonus = p_.bonus.data != nullptr && t < length_;
    const bool has_skip = p_.skip != nullptr && t < length_;
    if (has_bonus) {
      this->Sum(own, [&](int thread, int n, int c) {
        return row_(thread, n) * p_.bonus.Row(0, head, 0)[c] * p_.k.Row(batch_, head_, t)[c];
      });
    }
    block_.Each([&](int thread) {
      own(thread, 0) = (has_bonus ? own(thread, 0) : 0.0f) + this->Skip(head, t);
    });
    this->StoreAnswer(head, t, known_, has_bonus || has_skip, own);
  }

  Row state_;
  Row sums_;      // of keys, with normalize
  Row row_;       // features of a token, or the direction that it erases by
  Number known_;  // what the state answers to row_, then what is written
};

// Copies what the initial state of KV head `unit` holds beyond the columns of values.
template <class Block>
HEED_DEVICE void CopySums(Block& block, const RecurrentParams& p, int64_t unit) {
  const int b = static_cast<int>(unit / p.num_kv_heads);
  const int h = static_cast<int>(unit % p.num_kv_heads);
  block.Each([&](int thread) {
    for (int c = thread; c < p.features; c += kBlockThreads) {
      for (int n = 0; n < p.sum_cols; ++n) {
        p.InitialSums(b, h, c)[n] = p.initial_state.Row(b, h, c)[p.width + n];
      }
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RECURRENT_KERNEL_H_
