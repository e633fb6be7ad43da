// Recurrent attention: linear time, constant state. A matrix per head is decayed, erased, written
// and read, one token after the other: linear attention, retention, gated linear attention, state
// space duality, delta rules.
#ifndef HEED_RECURRENT_H_
#define HEED_RECURRENT_H_

#include <cstdint>
#include <optional>
#include <span>

#include "heed/feature_map.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Largest error of outputs and states against the float64 reference, relative to the largest
// absolute value of the same output or state of the call, for delta rules with keys of length 1 and
// beta or erase_rate up to 1. Docs and tests read this constant.
inline constexpr double kRecurrentMaxError = 1e-5;

// Tokens that the chunked form works through as matrix products, at most.
inline constexpr int64_t kMaxChunkLen = 64;

// Tokens of a mini-batch, at most.
inline constexpr int64_t kMaxMiniBatch = int64_t{1} << 31;

// Levels of level_weights, at most.
inline constexpr int64_t kMaxLevels = 48;

// What queries and keys become before they meet, element by element unless said otherwise.
enum class FeatureMap {
  kIdentity,    // x
  kEluPlusOne,  // x + 1 for x > 0, else exp(x). Katharopoulos 2020, arXiv:2006.16236
  kRelu,        // max(0, x)
  kSoftmax,     // softmax over head_dim
  kUnit,        // x / |x|, 0 where x is a vector of zeros: what delta rules need to stay stable
  // Keys 1 - exp(x), x <= 0 a logarithm of a gate; queries as they are. Qin 2024, arXiv:2404.07904
  kComplement,
  // 1 + head_dim + head_dim (head_dim + 1) / 2 features whose products are 1 + s + s^2 / 2,
  // s = scale q.k. Arora 2024, arXiv:2402.18668
  kTaylor,
  kAppendOne,  // x and a 1: set by mini_batch
  // 2 head_dim features: max(0, x) cos a, max(0, x) sin a, a = pi / 2 * position / period.
  // Qin 2022, arXiv:2202.08791
  kCosine,
  // exp(w.x - |x|^2 / 2) for each row w of `projection`, x = sqrt(scale) times the row: products
  // estimate exp(scale q.k). Relative to the largest so far, so that nothing overflows or
  // vanishes. Choromanski 2020, arXiv:2009.14794
  kRandom,
  kUser,  // `feature_mod`
};

// Random features, at most.
inline constexpr int64_t kMaxRandomFeatures = 65536;

// Draws the rows of a projection for FeatureMap::kRandom: blocks of head_dim orthogonal directions,
// each as long as a vector of independent normal numbers. Another seed is a redraw.
//
// Shapes   projection [1, 1, num_features, head_dim], rows of any stride.
// Errors   Error(kShape | kRange | kMemory) before anything is written.
// Cost     2 num_features head_dim^2 multiply-adds in float64; allocates a block of head_dim rows.
//          The same numbers on every machine but for rounding: words of Philox-4x32-10, key = seed,
//          counter = (column / 4, row, 0 for directions or 1 for lengths, 0).
// Source   Choromanski 2020, arXiv:2009.14794, section 2.4.
void DrawRandomFeatures(uint64_t seed, TensorView<float> projection);

// The largest variance of an estimate of exp(scale q.k), divided by its square:
// (exp(|scale| |q + k|^2) - 1) / num_features, with q negated where scale is negative. Orthogonal
// rows stay below it, independent ones reach it. Outputs, ratios of sums of such estimates, come
// nearer as 1 / sqrt(num_features).
// Source   Choromanski 2020, arXiv:2009.14794, lemma 2 and theorem 2.
double RandomFeatureVariance(std::span<const float> q, std::span<const float> k, double scale,
                             int64_t num_features);

// Options of recurrent attention. One token, with the tensors of its KV head:
//
//   S = diag(exp(log_decay)) S               decay
//   u = beta (v - S^T k)  or  beta v         erase (delta), or not
//   S = S + k u^T                            write
//   o = scale * S^T q                        read
struct RecurrentOptions {
  // Applied to q and k.
  FeatureMap feature_map = FeatureMap::kIdentity;

  // Of kUser: what a query and a key become, as many features as head_dim. Wider ones are mapped by
  // the caller, with kIdentity. What it makes of one head stays in that head. Absent = another map.
  FeatureFunction feature_mod;

  // Of kRandom: the directions, [1, 1, num_features, head_dim], last dimension contiguous.
  TensorView<const float> projection;

  // Of kCosine: positions lie in [0, period). Token t of batch entry b stands at position_offset[b]
  // + t, there, for level_weights and mini_batch. Empty = 0, else 1 or batch values.
  int64_t period = 1;
  std::span<const int64_t> position_offset;

  // Divides outputs by scale * q.z, z the sum of keys, decayed as the state is: weights then sum to
  // 1. Rows whose denominator is 0 are zeros. The state has one more column, z; with kRandom two:
  // z, and the logarithm of what the row was divided by (unused where z is 0). Refused with delta.
  bool normalize = false;

  // Factor on the output, with kTaylor and kRandom inside the features; absent = 1 /
  // sqrt(head_dim), with normalize and none of the two 1. Finite.
  std::optional<double> scale;

  // Token i reads what tokens up to i wrote. Not causal: every query reads what all keys wrote, and
  // q_len may differ from kv_len. By id (heed/registry.h) `linear`, `performer`, `cosformer` and
  // `based` are causal only where the parameter `causal` asks for it; the others always are.
  bool causal = true;

  // Logarithm of what the state is multiplied by before a token writes, <= 0; -inf forgets all.
  // Extents broadcast (1) to [batch, num_kv_heads, kv_len, features]. Absent = no decay.
  TensorView<const float> log_decay;

  // Strength of writing. Extents broadcast (1) to [batch, num_kv_heads, kv_len, 1]. Absent = 1.
  TensorView<const float> beta;

  // The delta rule: what the state already answers to the key is taken off the value first.
  bool delta = false;

  // Adds skip[h] * v to the output of query head h: D of state space models. Empty = off, else
  // num_heads finite values; needs causal.
  std::span<const float> skip;

  // Tokens read the state before it decays and is written to, and get scale * (sum of q bonus k) of
  // their own value besides: RWKV's u. [1, num_heads, 1, head_dim], last dimension contiguous.
  // Absent = they read last. Needs causal, kIdentity, and neither normalize nor delta.
  TensorView<const float> bonus;

  // The generalised delta rule: before it writes, a token takes (erase_rate e) (e^T S) off the
  // state, e = erase_key / |erase_key| and S the state before its decay: what S answers to e,
  // channel by channel as strongly as erase_rate says. Both [batch, num_kv_heads, kv_len,
  // head_dim], last dimension contiguous. Absent = off. Needs kIdentity, and neither normalize,
  // delta nor bonus.
  TensorView<const float> erase_key, erase_rate;

  // One state for each level instead of one for all: query i reads what token j <= i wrote with the
  // factor level_weights[i, level], level the number of bits of i XOR j (0: itself; 1: the pair;
  // 2: the four; ...). Positions count from position_offset, the tokens that the state has seen.
  //
  //   i = 6   levels of j   3 3 3 3 2 2 0
  //
  // [batch, num_heads, len, levels], last dimension contiguous; position_offset + len <= 2^(levels
  // - 1). The state has levels - 1 times as many rows: states of 1, 2, 4, ... tokens, and zeros
  // after the last one that the levels hold. Queries beyond key_lengths get 0. Absent = off. Needs
  // causal, and neither normalize, delta, erase_key nor bonus.
  TensorView<const float> level_weights;

  // A state that learns: a linear model f(x) = x + norm(W^T x + b), of which every token is a step
  // of gradient descent on |f(k) - v|^2 / 2 at the rate beta. Gradients of the tokens of a
  // mini-batch are all taken at the model it began with; mini-batches begin at positions
  // (position_offset) that are multiples of mini_batch. Outputs are f(q) after the step of their
  // own token; those of queries beyond key_lengths after the last one. norm is a layer norm with
  // these factors and sums, [num_kv_heads, head_dim], empty = ones and zeros, and epsilon 1e-6. The
  // state has 2 (head_dim + 1) rows: W and b as the mini-batch began, then as they are. 0 = off,
  // else 1 to kMaxMiniBatch. Needs head_dim_v = head_dim, causal, and no other rule.
  int64_t mini_batch = 0;
  std::span<const float> norm_weight, norm_bias;

  // How much of its mini-batch's steps the model at each place of a mini-batch has taken: token_idx
  // of the authors' code. With B the model that the mini-batch began with and U that after all its
  // steps so far, queries ask B + position_rate[place] (U - B), and that of the last place is what
  // the next mini-batch begins with; queries beyond key_lengths take the place of the last token.
  // The second half of the state is U. mini_batch finite values; empty = ones. Needs mini_batch.
  std::span<const float> position_rate;

  // Tokens at or beyond the length do not exist: nothing of theirs is read. Empty = kv_len, else
  // [batch] values in [0, kv_len].
  std::span<const int32_t> key_lengths;

  // State before the first token, [batch, num_kv_heads, features, head_dim_v], more columns with
  // normalize; last dimension contiguous. Absent = zeros.
  TensorView<const float> initial_state;

  // Tokens per matrix product, 1 to kMaxChunkLen. Changes rounding only.
  int64_t chunk_len = kMaxChunkLen;
};

// Where results go.
struct RecurrentOutputs {
  // [batch, num_heads, q_len, head_dim_v], any strides with a contiguous last dimension.
  TensorView<float> output{};
  // State after the last token, shaped as initial_state, whose memory it may be. Absent = not
  // wanted.
  TensorView<float> final_state{};
};

// All tokens of a sequence, chunk by chunk.
//
// Shapes   q [batch, num_heads, q_len, head_dim], k [batch, num_kv_heads, kv_len, head_dim],
//          v [batch, num_kv_heads, kv_len, head_dim_v]; q_len = kv_len when causal. num_heads is a
//          multiple of num_kv_heads: query heads share the state of their KV head.
// Errors   Error(kShape | kRange | kOption | kUnsupported | kMemory) before anything is written.
// Accuracy kRecurrentMaxError. Agrees with RecurrentStep() token by token within twice as much.
// Cost     multiply-adds per token and KV head, with C = chunk_len, G query heads per KV head:
//          head_dim * head_dim_v * (1 + G) + C / 2 * (head_dim + head_dim_v) * G, and for delta as
//          much again as one query head. Memory O(C * (head_dim + head_dim_v)) and a state per
//          thread, whatever the length.
// Threads  one task per batch entry and KV head. Same inputs give the same bits for any number of
//          threads. feature_mod is called on them.
// Source   Katharopoulos 2020, arXiv:2006.16236; chunks: Yang 2023, arXiv:2312.06635, and for delta
//          rules Yang 2024, arXiv:2406.06484.
void RecurrentAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const RecurrentOptions& options,
                        const RecurrentOutputs& outputs, ThreadPool* pool = nullptr);

// One token: replaces `state` by the state after it, and reads that.
//
// Shapes   as RecurrentAttention() with q_len = kv_len = 1; up to 4096 features. `state` is shaped
//          as initial_state, any strides with a contiguous last dimension.
// Options  initial_state and key_lengths are not used and must be empty; chunk_len has no effect.
// Errors   Error(kShape | kRange | kOption | kUnsupported) before anything is written.
// Accuracy kRecurrentMaxError.
// Cost     head_dim * head_dim_v multiply-adds to write, as many to erase, and as many for each
//          query head that reads. Allocates nothing; runs on the calling thread.
void RecurrentStep(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                   const RecurrentOptions& options, TensorView<float> state,
                   TensorView<float> output);

}  // namespace heed

#endif  // HEED_RECURRENT_H_
