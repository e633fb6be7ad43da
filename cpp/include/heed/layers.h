// Layers: projections around exact attention. Multi-head attention with the weights of PyTorch and
// Keras as they are.
#ifndef HEED_LAYERS_H_
#define HEED_LAYERS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "heed/attention.h"
#include "heed/request.h"

namespace heed {

// Largest error of a multi-head layer's output against the float64 reference, relative to
// sum_n max |v| |w_o[o, n]| + |b_o[o]|, max |v| taken over the projected values, for inputs and
// projections of unit variance (logits of size 16). Weights and lse stay within it too. Docs and
// tests read this constant.
inline constexpr double kMultiHeadMaxError = 1e-5;

// Weights of multi-head attention: views, nothing is copied. PyTorch's order, with the rows of each
// projection split into heads. Dimensions that belong together (num_heads with head_dim) must be
// flattenable: stride(num_heads) = head_dim * stride(head_dim), as in every reshaped matrix; one of
// the two sides of each matrix must be contiguous, so that PyTorch's [out, in] and Keras' [in, out]
// both serve without a copy.
struct MultiHeadWeights {
  TensorView<const float> w_q;  // [1, num_heads, head_dim, embed_dim]
  TensorView<const float> w_k;  // [1, num_kv_heads, head_dim, kdim]
  TensorView<const float> w_v;  // [1, num_kv_heads, head_dim_v, vdim]
  // [1, out_dim, num_heads, head_dim_v]; absent = the heads side by side, out_dim = num_heads *
  // head_dim_v.
  TensorView<const float> w_o{};
  std::span<const float> b_q{};  // num_heads * head_dim values; empty = 0, like all biases
  std::span<const float> b_k{};  // num_kv_heads * head_dim
  std::span<const float> b_v{};  // num_kv_heads * head_dim_v
  std::span<const float> b_o{};  // out_dim
  // One more key and value, after the projection (PyTorch's add_bias_kv): num_kv_heads * head_dim
  // and num_kv_heads * head_dim_v values. Both or none.
  std::span<const float> bias_k{};
  std::span<const float> bias_v{};
};

struct MultiHeadOptions {
  // What happens between the projections; its num_heads, q_len and kv_len are those of the heads.
  AttentionOptions attention;
  // One more key and value of zeros (PyTorch's add_zero_attn).
  bool add_zero_attn = false;
  // num_heads finite factors on the heads' outputs; exactly 0 prunes a head, whatever is in it.
  // Empty = 1. Returned weights do not see it. Michel et al. 2019, arXiv:1905.10650.
  std::span<const float> head_mask;
};

struct MultiHeadOutputs {
  TensorView<float> output{};  // [batch, 1, q_len, out_dim], contiguous last dimension
  TensorView<float> lse{};     // [batch, num_heads, q_len, 1], extra keys included
  // [batch, num_heads, q_len, kv_len + extra], or with 1 in place of num_heads their mean; extra
  // counts bias_k (column kv_len) and the key of zeros (the last column).
  TensorView<float> weights{};
};

// Multi-head, grouped-query (num_kv_heads < num_heads) and multi-query (num_kv_heads 1) attention:
//   head_h = Attention(query W_q,h, key W_k,g, value W_v,g),  output = sum_h head_h W_o,h + b_o,
//   g = h / (num_heads / num_kv_heads).
//
// Shapes   query [batch, 1, q_len, embed_dim], key [batch, 1, kv_len, kdim], value [batch, 1,
//          kv_len, vdim]; other strides than the last are free.
// Extra keys  (bias_k, add_zero_attn) every query sees them; bias, ALiBi and keep rules do not
//          touch them, softcap does. They need Score::kDot and Normalize::kSoftmax, and no tables
//          of relative positions.
// Empty row  (no key kept, no extra keys) its heads are zero, its output is b_o, its lse -inf.
//          NaN or Inf in masked keys and values never reaches a row that does not see them.
// Errors   Error(kShape | kRange | kOption | kUnsupported | kMemory), before anything is written,
//          but kMemory may leave results half written.
// Accuracy kMultiHeadMaxError.
// Cost     the four projections and Attention(). Allocates the projected queries, keys, values and
//          heads: O((q_len + kv_len) * num_heads * head_dim) per batch entry; with averaged weights
//          also those of every head.
// Threads  `pool` or the default pool. Same bits for any number of threads. Safe to call from
//          several threads at once.
// Source   Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2; one KV head: Shazeer 2019,
//          arXiv:1911.02150; groups: Ainslie et al. 2023, arXiv:2305.13245.
void MultiHead(TensorView<const float> query, TensorView<const float> key,
               TensorView<const float> value, const MultiHeadWeights& weights,
               const MultiHeadOptions& options, const MultiHeadOutputs& outputs,
               ThreadPool* pool = nullptr);

// Sizes of a MultiHeadAttention; 0 = the default.
struct MultiHeadAttentionSizes {
  int64_t embed_dim = 0;     // of queries and output; required
  int64_t num_heads = 1;     // 1 = a single head
  int64_t num_kv_heads = 0;  // default num_heads; 1 = multi-query, between = grouped-query
  int64_t head_dim = 0;      // default embed_dim / num_heads, which must be whole
  int64_t head_dim_v = 0;    // default head_dim
  int64_t kdim = 0;          // of keys; default embed_dim
  int64_t vdim = 0;          // of values; default embed_dim
  bool bias = true;          // of all four projections
  bool add_bias_kv = false;  // one more learned key and value
};

// A multi-head attention layer that owns its weights. They start as zeros.
class MultiHeadAttention {
 public:
  // Throws Error(kRange) for sizes that do not fit together, Error(kMemory).
  explicit MultiHeadAttention(const MultiHeadAttentionSizes& sizes);

  // Copies the weights of PyTorch's nn.MultiheadAttention by its names and shapes:
  //   in_proj_weight [(num_heads + num_kv_heads) * head_dim + num_kv_heads * head_dim_v, embed_dim]
  //   (where kdim = vdim = embed_dim), or q_proj_weight, k_proj_weight, v_proj_weight;
  //   in_proj_bias; bias_k, bias_v [1, 1, num_kv_heads * head_dim]; out_proj.weight, out_proj.bias.
  // Float32, any strides. Every name must be there, and no other. Throws Error(kOption | kShape |
  // kDType); the weights are then as before.
  void LoadStateDict(std::span<const NamedTensor> state);

  // Copies the weights of Keras' MultiHeadAttention and GroupedQueryAttention, by its variables'
  // paths below the layer:
  //   query/kernel [embed_dim, num_heads, head_dim], key/kernel, value/kernel,
  //   attention_output/kernel [num_heads, head_dim_v, embed_dim], and with biases
  //   query/bias [num_heads, head_dim], key/bias, value/bias, attention_output/bias [embed_dim].
  void LoadKerasWeights(std::span<const NamedTensor> weights);

  // MultiHead() with these weights.
  void Forward(TensorView<const float> query, TensorView<const float> key,
               TensorView<const float> value, const MultiHeadOptions& options,
               const MultiHeadOutputs& outputs, ThreadPool* pool = nullptr) const;

  const MultiHeadAttentionSizes& sizes() const { return sizes_; }
  // Views of the weights, valid while this object lives and nothing is loaded.
  MultiHeadWeights weights() const;

 private:
  struct Storage {
    std::vector<float> w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o, bias_k, bias_v;
  };

  MultiHeadAttentionSizes sizes_;  // defaults filled in
  Storage storage_;
};

// Largest error of an element of TransformerBlock's output against the float64 reference, relative
// to max(1, max |output|), for inputs and projections of unit variance. Docs and tests read this
// constant.
inline constexpr double kTransformerBlockMaxError = 2e-5;

enum class Norm {
  kLayer,  // (x - mean) / sqrt(variance + epsilon) * weight + bias. Ba et al. 2016,
           // arXiv:1607.06450
  kRms,    // x / sqrt(mean(x^2) + epsilon) * weight + bias. Zhang & Sennrich 2019, arXiv:1910.07467
};

enum class NormOrder {
  kPre,   // y = x + attention(norm1(x)),  output = y + mlp(norm2(y))
  kPost,  // y = norm1(x + attention(x)),  output = norm2(y + mlp(y))
};

enum class Activation {
  kGelu,      // x * (1 + erf(x / sqrt(2))) / 2. Hendrycks & Gimpel 2016, arXiv:1606.08415
  kGeluTanh,  // its tanh form
  kSilu,      // x / (1 + exp(-x))
  kRelu,      // max(x, 0)
};

struct TransformerBlockWeights {
  MultiHeadWeights attention;  // kdim, vdim and out_dim are embed_dim
  // embed_dim values; empty = 1 and 0.
  std::span<const float> norm1_weight{}, norm1_bias{}, norm2_weight{}, norm2_bias{};
  TensorView<const float> w_up;                       // [1, 1, ff_dim, embed_dim]
  TensorView<const float> w_down;                     // [1, 1, embed_dim, ff_dim]
  TensorView<const float> w_gate{};                   // as w_up; absent = no gate
  std::span<const float> b_up{}, b_gate{}, b_down{};  // empty = 0
};

struct TransformerBlockOptions {
  MultiHeadOptions attention;
  Norm norm = Norm::kLayer;
  NormOrder order = NormOrder::kPre;
  Activation activation = Activation::kGelu;
  double epsilon = 1e-5;  // > 0 and finite
};

// A block of a transformer: self-attention and a feed-forward network, each with a residual and a
// norm; see NormOrder.
//   mlp(x) = act(x W_up + b_up) W_down + b_down, or with a gate (SwiGLU with kSilu)
//            (act(x W_gate + b_gate) * (x W_up + b_up)) W_down + b_down
//
// Shapes   x and output [batch, 1, len, embed_dim]. Every option of the attention inside sees
//          q_len = kv_len = len. Rows beyond key_lengths are computed like all others.
// Empty row  the attention gives b_o; the rest goes on.
// Errors   as MultiHead().
// Accuracy kTransformerBlockMaxError.
// Cost     MultiHead() and 4 (6 with a gate) * rows * embed_dim * ff_dim FLOPs. Allocates two
//          tensors like x, and one (two) of [rows, ff_dim].
// Threads  as MultiHead().
// Source   Vaswani et al. 2017, arXiv:1706.03762, section 3.1 (kPost); Xiong et al. 2020,
//          arXiv:2002.04745 (kPre); gates: Shazeer 2020, arXiv:2002.05202.
void TransformerBlock(TensorView<const float> x, const TransformerBlockWeights& weights,
                      const TransformerBlockOptions& options, TensorView<float> output,
                      ThreadPool* pool = nullptr);

// How the rows of a sequence become one.
enum class Pooling {
  kMean,       // their mean
  kFirst,      // row 0
  kMax,        // the largest of each element
  kAttention,  // sum_i softmax_i(x_i . pool_query) x_i, without HAN's projection and tanh
};

struct AttentionClassifierWeights {
  TensorView<const float> embedding;         // [1, 1, vocabulary, embed_dim]
  TensorView<const float> position_table{};  // [1, 1, max_len, embed_dim], added; absent = none
  MultiHeadWeights attention;                // kdim and vdim are embed_dim
  std::span<const float> pool_query{};       // out_dim values; for Pooling::kAttention only
  TensorView<const float> w_class;           // [1, 1, num_classes, out_dim]
  std::span<const float> b_class{};          // num_classes; empty = 0
};

struct AttentionClassifierOptions {
  MultiHeadOptions attention;  // its key_lengths, [batch], also bound the pooling
  Pooling pooling = Pooling::kMean;
};

// A classifier of token sequences: embedding, self-attention, pooling, linear map.
//   x_i = embedding[tokens_i] + position_table[i],  h = MultiHead(x, x, x),
//   output = pool(h_0 .. h_(length - 1)) W_class + b_class
//
// Shapes   tokens [1, 1, batch, len], any strides; output [1, 1, batch, num_classes]: logits.
// Lengths  tokens at or beyond key_lengths[b] are never read. A sequence of length 0 pools to
//          zeros: its logits are b_class.
// Errors   as MultiHead(); Error(kRange) for a token outside [0, vocabulary), before anything is
//          written.
// Accuracy kMultiHeadMaxError, relative to sum_n max |h| |w_class[c, n]| + |b_class[c]|.
// Cost     MultiHead() of len rows and 2 batch * out_dim * num_classes FLOPs. Allocates what
//          MultiHead() does, and the embedded and attended rows.
// Threads  as MultiHead().
// Source   attention pooling: Yang et al. 2016, Hierarchical Attention Networks, section 2.2.
void AttentionClassifier(TensorView<const int32_t> tokens,
                         const AttentionClassifierWeights& weights,
                         const AttentionClassifierOptions& options, TensorView<float> output,
                         ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_LAYERS_H_
