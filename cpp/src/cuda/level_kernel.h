// Recurrent attention over a state for each power of two, token by token (level_weights; see
// heed/recurrent.h and src/recurrent/levels-inl.h). The states are too many for registers: they
// lie in device memory, where each number belongs to one thread.
#ifndef HEED_SRC_CUDA_LEVEL_KERNEL_H_
#define HEED_SRC_CUDA_LEVEL_KERNEL_H_

#include <cstdint>

#include "src/cuda/recurrent_columns.h"

namespace heed::cuda {

template <class Block, int kLanes>
class LevelKernel : public RecurrentColumns<Block, kLanes> {
  using Base = RecurrentColumns<Block, kLanes>;
  using typename Base::Number;
  using typename Base::Row;

 public:
  HEED_DEVICE LevelKernel(Block& block, const RecurrentParams& params) : Base(block, params) {}

  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index);
    LoadLevels();
    HEED_NO_UNROLL for (int t = 0; t < length_; ++t) {
      this->LoadFeatures(key_, p_.k.Row(batch_, head_, t), t, true);
      DecayLevels(t);
      HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) ReadHead(head_ * p_.group + g, t);
      Write(t);
    }
    HEED_NO_UNROLL for (int t = length_; t < p_.q_len; ++t) StoreZeros(t);
  }

 private:
  using Base::batch_;
  using Base::block_;
  using Base::head_;
  using Base::length_;
  using Base::p_;

  // Whether state `level` holds tokens when `position` of them have been seen.
  HEED_DEVICE static bool IsSet(int64_t position, int level) {
    return (position >> level & 1) != 0;
  }
  // body(number of the state, n, channel, thread) for the numbers of every thread.
  template <class Body>
  HEED_DEVICE void EachNumber(int level, const Body& body) {
    this->EachRow([&](int thread, int n, int c) {
      if (!this->HasCol(thread)) return;
      body(p_.states.Row(batch_, head_, level * p_.features + c)[this->Col(thread)], thread, n, c);
    });
  }

  HEED_DEVICE void LoadLevels() {
    HEED_NO_UNROLL for (int l = 0; l < p_.num_states; ++l) {
      const bool given = p_.initial_state.data != nullptr && IsSet(this->Position(0), l);
      EachNumber(l, [&](float& x, int thread, int, int c) {
        const int row = l * p_.features + c;
        x = given ? p_.initial_state.Row(batch_, head_, row)[this->Col(thread)] : 0.0f;
      });
    }
  }

  HEED_DEVICE void DecayLevels(int t) {
    if (p_.log_decay.data == nullptr) return;
    this->EachRow([&](int thread, int n, int c) { row_(thread, n) = this->Decay(t, c); });
    HEED_NO_UNROLL for (int l = 0; l < p_.num_states; ++l) {
      if (!IsSet(this->Position(t), l)) continue;
      EachNumber(l, [&](float& x, int thread, int n, int) { x *= row_(thread, n); });
    }
  }

  HEED_DEVICE void ReadHead(int head, int t) {
    Number answer, own;
    const float* weights = p_.level_weights.Row(batch_, head, t);
    this->LoadFeatures(row_, p_.q.Row(batch_, head, t), t, false);
    block_.Each([&](int thread) { answer(thread, 0) = 0; });
    HEED_NO_UNROLL for (int l = 0; l < p_.num_states; ++l) {
      if (!IsSet(this->Position(t), l)) continue;
      EachNumber(l, [&](float& x, int thread, int n, int) {
        answer(thread, 0) += weights[l + 1] * row_(thread, n) * x;
      });
    }
    block_.template GroupSum<kLanes>(answer);
    this->Sum(own, [&](int thread, int n, int) { return row_(thread, n) * key_(thread, n); });
    block_.Each([&](int thread) {
      own(thread, 0) = own(thread, 0) * weights[0] * this->Beta(t) + this->Skip(head, t);
    });
    this->StoreAnswer(head, t, answer, true, own);
  }

  // The states of the lowest bits and the token's own become that of the next bit, a binary sum;
  // after 2^num_states tokens nothing can read it.
  HEED_DEVICE void Write(int t) {
    const float beta = this->Beta(t);
    this->EachRow([&](int thread, int n, int) {
      row_(thread, n) = key_(thread, n) * (beta * this->Value(thread, t));
    });
    int level = 0;
    HEED_NO_UNROLL for (; level < p_.num_states && IsSet(this->Position(t), level); ++level) {
      EachNumber(level, [&](float& x, int thread, int n, int) {
        row_(thread, n) += x;
        x = 0;
      });
    }
    if (level == p_.num_states) return;
    EachNumber(level, [&](float& x, int thread, int n, int) { x = row_(thread, n); });
  }

  // Queries beyond the length.
  HEED_DEVICE void StoreZeros(int t) {
    Number zero;
    block_.Each([&](int thread) { zero(thread, 0) = 0; });
    HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) {
      this->StoreAnswer(head_ * p_.group + g, t, zero, false, zero);
    }
  }

  Row key_;  // features of the token
  Row row_;  // those of a query, factors of decay, or what is written
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_LEVEL_KERNEL_H_
