// A transformer over tokens: what the demos train, natively and in the browser.
#ifndef HEED_TRAINING_TRANSFORMER_H_
#define HEED_TRAINING_TRANSFORMER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/thread_pool.h"
#include "heed/training/block.h"
#include "heed/training/layers.h"
#include "heed/training/parameter.h"
#include "heed/training/safetensors.h"

namespace heed::training {

// How the model learns where tokens stand.
enum class ModelPosition {
  kNone,     // it does not, but for what causal attention tells
  kLearned,  // a vector for each of max_len places, added to the embedding
  kRope,     // HeadPosition::kRope in every block
  kAlibi,    // HeadPosition::kAlibi in every block
};

struct TransformerOptions {
  int64_t vocabulary = 0;  // token ids lie in [0, vocabulary)
  int64_t embed_dim = 64;  // a multiple of num_heads
  int64_t num_layers = 2;
  int64_t num_heads = 4;
  int64_t num_kv_heads = 0;  // 0 = num_heads
  int64_t ff_dim = 0;        // 0 = 4 embed_dim
  int64_t max_len = 256;     // read by ModelPosition::kLearned only
  // Of self-attention: see AttentionLayerOptions.
  std::string mechanism = "scaled_dot_product";
  std::vector<NamedParam> params{};
  bool causal = true;
  ModelPosition position = ModelPosition::kRope;
  double rope_base = 10000;  // finite and above 1
  Norm norm = Norm::kRms;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool bias = false;
  // The output matrix is the embedding's.
  bool tied = false;
  // Layers of an encoder whose rows the blocks attend to; 0 = none. It reads source tokens, sees
  // all of them (scaled_dot_product, not causal), and has the same sizes and kind of positions.
  int64_t encoder_layers = 0;
  // Of the attention to it; without an encoder it stays as it is.
  std::string cross_mechanism = "scaled_dot_product";
  uint64_t seed = 0;
};

// Tokens of `batch` sequences of equal length, one after the other. `source` for models with an
// encoder: `batch` sequences of a length of their own.
struct TokenBatch {
  int64_t batch = 0;
  std::span<const int32_t> tokens{};
  std::span<const int32_t> source{};
  // SequenceShape::dropout_draw of all layers.
  std::optional<uint64_t> dropout_draw{};
};

// Embedding, positions, blocks and a last norm: rows of tokens.
class TokenStack {
 public:
  // Names under `<name>`: embed_tokens, embed_positions, layers.0, .., norm.
  TokenStack(ParameterSet& parameters, const std::string& name, const TransformerOptions& config,
             const BlockOptions& block, int64_t num_layers);
  TokenStack(const TokenStack&) = delete;  // refers to its own rows
  TokenStack& operator=(const TokenStack&) = delete;

  // `tokens` are those of the batch, or its source. `context` has batch * context_len rows, or is
  // nullptr.
  const Matrix& Forward(std::span<const int32_t> tokens, const TokenBatch& batch,
                        const Matrix* context, int64_t context_len, ThreadPool* pool);
  void Backward(const Matrix& d_y, ThreadPool* pool);
  // The gradient of the context, after Backward().
  const Matrix& context_gradient() const { return d_context_; }

  const std::deque<Block>& blocks() const { return blocks_; }
  EmbeddingLayer& embedding() { return embedding_; }

 private:
  EmbeddingLayer embedding_;
  std::optional<EmbeddingLayer> positions_;
  std::deque<Block> blocks_;
  NormLayer norm_;
  bool has_context_ = false;
  bool has_forward_ = false;  // the last one came to its end
  Matrix embedded_, d_context_;
};

// logits_i = W_out norm(blocks(embedding(tokens)))_i, blocks pre-norm. Its tensors have the names
// of Llama checkpoints (model.layers.0.self_attn.q_proj.weight, ..), and with the default options
// also their meaning; biases end in `.bias`; what the encoder has begins with `encoder.`.
class Transformer {
 public:
  // Throws Error(kRange | kShape | kOption | kUnsupported), naming the option that does not fit or
  // that nothing would read, before anything is allocated; Error(kMemory).
  explicit Transformer(const TransformerOptions& config);

  // Logits of every place, [batch * len, vocabulary], valid until the next call. Throws
  // Error(kShape) where tokens do not divide into sequences, Error(kOption) for a missing or an
  // unasked source, Error(kRange) for ids and, with learned positions, lengths; all before anything
  // is computed. What AttentionLayer::Forward() throws for lengths.
  const Matrix& Forward(const TokenBatch& batch, ThreadPool* pool = nullptr);

  // After Forward() of the same batch: adds to the gradients of all parameters. What Error(kMemory)
  // leaves of either is said in heed/training/layers.h.
  void Backward(const Matrix& d_logits, ThreadPool* pool = nullptr);

  // The weights of a layer's heads in the last Forward(), AttentionLayer::Weights(). `kSelf` has
  // extents [batch, num_heads, len, len], `kCross` [.., len, source_len], `kEncoder` [..,
  // source_len, source_len]. Throws Error(kRange) for a layer that there is not, Error(kShape).
  enum class Heads { kSelf, kCross, kEncoder };
  void Weights(Heads heads, int64_t layer, TensorView<float> weights, ThreadPool* pool = nullptr);

  const TransformerOptions& options() const { return options_; }
  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }

  // The model as a file, its configuration among the metadata, and back. Throws as
  // SaveSafetensors(), SafetensorsFile and LoadParameters(); Error(kOption) for metadata that are
  // none of such a model.
  std::vector<uint8_t> Save(DType dtype = DType::kFloat32) const;
  static std::unique_ptr<Transformer> Load(std::span<const uint8_t> file);

 private:
  TransformerOptions options_;  // defaults filled in
  ParameterSet parameters_;
  std::optional<TokenStack> encoder_;
  TokenStack decoder_;
  LinearLayer output_;
  bool has_forward_ = false;  // the last one came to its end
};

}  // namespace heed::training

#endif  // HEED_TRAINING_TRANSFORMER_H_
