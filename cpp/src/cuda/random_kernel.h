// Recurrent attention over random features, token by token (Choromanski 2020, arXiv:2009.14794).
// Rows of the state are relative to the largest exponent that a key gave them, as on the CPU, so
// that nothing overflows or vanishes. All threads of the block make the exponents of a row
// together: they are head_dim multiply-adds each, and the same for all columns.
#ifndef HEED_SRC_CUDA_RANDOM_KERNEL_H_
#define HEED_SRC_CUDA_RANDOM_KERNEL_H_

#include <cfloat>
#include <cstdint>

#include "src/cuda/recurrent_columns.h"

namespace heed::cuda {

template <class Block, int kLanes>
class RandomKernel : public RecurrentColumns<Block, kLanes> {
  using Base = RecurrentColumns<Block, kLanes>;
  using typename Base::Number;
  using typename Base::Row;

 public:
  HEED_DEVICE RandomKernel(Block& block, const RecurrentParams& params)
      : Base(block, params), exponents_(block.template Allocate<float>(kLanes * kStateRows)) {}
  static int SharedBytes(const RecurrentParams& /*params*/) {
    return kLanes * kStateRows * static_cast<int>(sizeof(float));
  }

  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index);
    LoadState();
    HEED_NO_UNROLL for (int t = 0; t < p_.kv_len; ++t) {
      if (t < length_) Write(t);
      if (p_.causal) Read(t);
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

  // A row whose sum is 0 was written by no key, and has no peak.
  HEED_DEVICE void LoadState() {
    block_.Each([&](int thread) {
      HEED_UNROLL for (int n = 0; n < kStateRows; ++n) {
        state_(thread, n) = sums_(thread, n) = 0;
        peaks_(thread, n) = kMinusInfinity;
      }
    });
    if (p_.initial_state.data == nullptr) return;
    this->EachRow([&](int thread, int n, int c) {
      if (this->HasCol(thread)) {
        state_(thread, n) = p_.initial_state.Row(batch_, head_, c)[this->Col(thread)];
      }
      sums_(thread, n) = p_.InitialSums(batch_, head_, c)[0];
      if (sums_(thread, n) != 0) peaks_(thread, n) = p_.InitialSums(batch_, head_, c)[1];
    });
  }
  HEED_DEVICE void StoreState() {
    this->EachRow([&](int thread, int n, int c) {
      float* row = p_.final_state.Row(batch_, head_, c);
      if (this->HasCol(thread)) row[this->Col(thread)] = state_(thread, n);
      if (this->Col(thread) != 0) return;
      row[p_.width] = sums_(thread, n);
      row[p_.width + 1] = Subtrahend(peaks_(thread, n));
    });
  }

  // Leaves the exponents of a row in shared memory. Returns whether one of them is not finite.
  HEED_DEVICE bool LoadExponents(const float* from, bool is_key) {
    const float factor = is_key ? p_.key_factor : p_.query_factor;
    typename Base::template Registers<int, 1> poisoned;
    block_.Sync();  // the row before has been read
    block_.Each([&](int thread) {
      poisoned(thread, 0) = 0;
      for (int c = thread; c < p_.features; c += kBlockThreads) {
        const float* direction = p_.projection.Row(0, 0, c);
        float sum = 0, squares = 0;
        for (int i = 0; i < p_.head_dim; ++i) {
          sum += direction[i] * from[i];
          squares += from[i] * from[i];
        }
        // Nothing is taken off the exponents of a query: its weights are divided by their sum.
        const float exponent = factor * sum - (is_key ? factor * factor * squares / 2 : 0.0f);
        exponents_.Store(thread, c, exponent);
        if (!(fabsf(exponent) <= FLT_MAX)) poisoned(thread, 0) = 1;
      }
    });
    return block_.Any([&](int thread) { return poisoned(thread, 0) != 0; });
  }

  // Token t raises the peaks, decays and writes. A key that is not finite makes every feature NaN.
  HEED_DEVICE void Write(int t) {
    const bool poisoned = LoadExponents(p_.k.Row(batch_, head_, t), true);
    const float beta = this->Beta(t);
    this->EachRow([&](int thread, int n, int c) {
      const float exponent = poisoned ? NAN : exponents_.Load(thread, c);
      const float before = peaks_(thread, n), raised = fmaxf(before, exponent);
      const float shrink = (raised == before ? 1.0f : Exp(before - raised)) * this->Decay(t, c);
      const float feature = beta * Exp(exponent - raised);
      peaks_(thread, n) = raised;
      state_(thread, n) = shrink * state_(thread, n) + feature * this->Value(thread, t);
      sums_(thread, n) = shrink * sums_(thread, n) + feature;
    });
  }

  HEED_DEVICE void Read(int t) {
    HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) ReadHead(head_ * p_.group + g, t);
  }
  // Features of the query relative to the largest that meets a key.
  HEED_DEVICE void ReadHead(int head, int t) {
    Number largest, answer, sum, own;
    LoadExponents(p_.q.Row(batch_, head, t), false);
    this->EachRow([&](int thread, int n, int c) {
      row_(thread, n) = exponents_.Load(thread, c) + peaks_(thread, n);
    });
    this->Largest(largest, row_, [](float x) { return x; });
    this->EachRow([&](int thread, int n, int) {
      row_(thread, n) = Exp(row_(thread, n) - Subtrahend(largest(thread, 0)));
    });
    this->Sum(answer, [&](int thread, int n, int) { return row_(thread, n) * state_(thread, n); });
    this->Sum(sum, [&](int thread, int n, int) { return row_(thread, n) * sums_(thread, n); });
    this->Normalize(answer, sum);
    block_.Each([&](int thread) { own(thread, 0) = this->Skip(head, t); });
    this->StoreAnswer(head, t, answer, p_.skip != nullptr && t < length_, own);
  }

  typename Block::template Shared<float> exponents_;  // of a row of q or k
  Row state_, sums_, peaks_;
  Row row_;  // features of a query
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RANDOM_KERNEL_H_
