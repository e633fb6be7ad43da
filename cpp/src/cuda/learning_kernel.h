// Recurrent attention whose state is a linear model that learns, token by token (mini_batch; see
// heed/recurrent.h and src/recurrent/inner_model-inl.h). The norm of the model joins its columns,
// so a block takes all of them, a thread every kBlockThreads-th; both models lie in device memory,
// where each number belongs to one thread.
#ifndef HEED_SRC_CUDA_LEARNING_KERNEL_H_
#define HEED_SRC_CUDA_LEARNING_KERNEL_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/recurrent_params.h"
#include "src/cuda/row_block.h"

namespace heed::cuda {

template <class Block>
class LearningKernel {
 public:
  HEED_DEVICE LearningKernel(Block& block, const RecurrentParams& params)
      : columns_(block),
        p_(params),
        row_(block.template Allocate<float>(params.width)),
        all_{0, params.width} {}
  static int SharedBytes(const RecurrentParams& p) {
    return RowBlock<Block>::kSharedBytes +
           (p.width * static_cast<int>(sizeof(float)) + 15) / 16 * 16;
  }

  // KV head `unit`.
  HEED_DEVICE void Run(int64_t unit) {
    batch_ = static_cast<int>(unit / p_.num_kv_heads);
    head_ = static_cast<int>(unit % p_.num_kv_heads);
    length_ = p_.key_lengths == nullptr ? p_.kv_len : p_.key_lengths[batch_];
    LoadModels();
    HEED_NO_UNROLL for (int t = 0; t < p_.q_len; ++t) {
      if (t < length_) Learn(t);
      HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) Answer(head_ * p_.group + g, t);
    }
  }

 private:
  // Rows of the state: the model that the mini-batch began with, then the one that learns.
  HEED_DEVICE float& Begun(int c, int e) const { return p_.states.Row(batch_, head_, c)[e]; }
  HEED_DEVICE float& Current(int c, int e) const { return Begun(p_.features + c, e); }
  HEED_DEVICE double Weight(int e) const {
    return p_.norm_weight == nullptr ? 1.0 : p_.norm_weight[head_ * p_.width + e];
  }
  HEED_DEVICE double Bias(int e) const {
    return p_.norm_bias == nullptr ? 0.0 : p_.norm_bias[head_ * p_.width + e];
  }

  HEED_DEVICE void LoadModels() {
    const bool given = p_.initial_state.data != nullptr;
    columns_.EachKey(all_, [&](int, int e) {
      for (int c = 0; c < 2 * p_.features; ++c) {
        Begun(c, e) = given ? p_.initial_state.Row(batch_, head_, c)[e] : 0.0f;
      }
    });
  }

  // W^T x + b, column e, of the rows of the state from `first` on.
  HEED_DEVICE float Column(int first, const float* x, int e) const {
    float sum = Begun(first + p_.head_dim, e);
    for (int c = 0; c < p_.head_dim; ++c) sum += Begun(first + c, e) * x[c];
    return sum;
  }
  // row_ = what column(e) gives; then its mean and 1 / deviation.
  template <class GivesColumn>
  HEED_DEVICE void Apply(GivesColumn column) {
    columns_.EachKey(all_, [&](int t, int e) { row_.Store(t, e, column(e)); });
    const double count = p_.width;
    mean_ = columns_.SumKeys(all_, [&](int t, int e) { return double{row_.Load(t, e)}; }) / count;
    const double squares = columns_.SumKeys(all_, [&](int t, int e) {
      const double apart = row_.Load(t, e) - mean_;
      return apart * apart;
    });
    inverse_ = 1 / sqrt(squares / count + p_.norm_epsilon);
  }
  HEED_DEVICE double Normed(int t, int e) const { return (row_.Load(t, e) - mean_) * inverse_; }

  // A step of gradient descent on |k + norm(W^T k + b) - v|^2 / 2.
  HEED_DEVICE void Learn(int t) {
    if (Position(t) % p_.mini_batch == 0) BeginMiniBatch(t);
    const float* key = p_.k.Row(batch_, head_, t);
    const float* value = p_.v.Row(batch_, head_, t);
    Apply([&](int e) { return Column(0, key, e); });
    const auto slope = [&](int thread, int e) {
      return Weight(e) * (key[e] + Weight(e) * Normed(thread, e) + Bias(e) - value[e]);
    };
    const double sum = columns_.SumKeys(all_, slope);
    const double along = columns_.SumKeys(
        all_, [&](int thread, int e) { return slope(thread, e) * Normed(thread, e); });
    const double rate = p_.beta.data == nullptr ? 1.0 : p_.beta.At(batch_, head_, t, 0);
    columns_.EachKey(all_, [&](int thread, int e) {
      const double centred =
          slope(thread, e) - (sum + Normed(thread, e) * along) / static_cast<double>(p_.width);
      const float step = static_cast<float>(-rate * centred * inverse_);
      for (int c = 0; c < p_.head_dim; ++c) Current(c, e) += key[c] * step;
      Current(p_.head_dim, e) += step;
    });
  }
  HEED_DEVICE void BeginMiniBatch(int t) {
    columns_.EachKey(all_, [&](int, int e) {
      for (int c = 0; c < p_.features; ++c) {
        Current(c, e) = Between(Begun(c, e), Current(c, e), t - 1);
        Begun(c, e) = Current(c, e);
      }
    });
  }
  HEED_DEVICE int64_t Position(int t) const {
    return t + (p_.positions == nullptr ? 0 : p_.positions[batch_]);
  }
  // Of what the model that the mini-batch began with and that after all steps give, what the model
  // at the place of token t does; t = -1 is the token before the first.
  HEED_DEVICE float Between(float begun, float now, int t) const {
    if (p_.position_rate == nullptr) return now;
    const int64_t position = Position(t);
    const int64_t place = position < 0 ? p_.mini_batch - 1 : position % p_.mini_batch;
    return begun + p_.position_rate[place] * (now - begun);
  }

  HEED_DEVICE void Answer(int head, int t) {
    const float* query = p_.q.Row(batch_, head, t);
    Apply([&](int e) {
      const float now = Column(p_.features, query, e);
      if (p_.position_rate == nullptr) return now;
      return Between(Column(0, query, e), now, t < length_ ? t : length_ - 1);
    });
    columns_.EachKey(all_, [&](int thread, int e) {
      p_.output.Row(batch_, head, t)[e] =
          static_cast<float>(query[e] + Weight(e) * Normed(thread, e) + Bias(e));
    });
  }

  RowBlock<Block> columns_;
  const RecurrentParams& p_;
  typename Block::template Shared<float> row_;  // what a model gives, before its norm
  const RowKeys all_;                           // columns
  int batch_, head_, length_;
  double mean_, inverse_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_LEARNING_KERNEL_H_
