#include "heed/training/transformer.h"

#include <cmath>
#include <utility>

#include "src/parallel/pieces.h"
#include "src/training/attention_options.h"
#include "src/training/checks.h"
#include "src/training/config_metadata.h"

namespace heed::training {
namespace {

// More layers than this are a mistake, not a model.
constexpr int64_t kMaxLayers = 1000;

HeadPosition InHeads(ModelPosition position) {
  if (position == ModelPosition::kRope) return HeadPosition::kRope;
  if (position == ModelPosition::kAlibi) return HeadPosition::kAlibi;
  return HeadPosition::kNone;
}

// What adds to the rows starts smaller the more often that happens (Radford et al. 2019, 2.3).
double Smaller(int64_t in_dim, int64_t num_layers) {
  return 1 / std::sqrt(2 * static_cast<double>(in_dim) * static_cast<double>(num_layers));
}

BlockOptions BlockOf(const TransformerOptions& c, int64_t num_layers) {
  BlockOptions block;
  block.norm = c.norm;
  AttentionLayerOptions& attention = block.attention;
  attention.embed_dim = c.embed_dim;
  attention.num_heads = c.num_heads;
  attention.num_kv_heads = c.num_kv_heads;
  attention.bias = c.bias;
  attention.position = InHeads(c.position);
  attention.rope_base = c.rope_base;
  attention.out_deviation = Smaller(c.embed_dim, num_layers);
  block.feed_forward = {.embed_dim = c.embed_dim,
                        .ff_dim = c.ff_dim,
                        .activation = c.activation,
                        .gated = c.gated,
                        .bias = c.bias,
                        .down_deviation = Smaller(c.ff_dim, num_layers)};
  return block;
}

BlockOptions DecoderBlock(const TransformerOptions& c) {
  BlockOptions block = BlockOf(c, c.num_layers);
  if (c.encoder_layers > 0) {
    block.cross_attention = block.attention;
    block.cross_attention->mechanism = c.cross_mechanism;
    block.cross_attention->position = HeadPosition::kNone;
  }
  block.attention.mechanism = c.mechanism;
  block.attention.params = c.params;
  block.attention.causal = c.causal;
  return block;
}

// With the sizes filled in that follow from others.
TransformerOptions Sized(TransformerOptions c) {
  CheckCount("vocabulary", c.vocabulary);
  CheckCount("embed_dim", c.embed_dim);
  CheckCount("num_layers", c.num_layers);
  CheckCount("max_len", c.max_len);
  if (c.encoder_layers < 0) {
    Fail(ErrorCode::kRange, "encoder_layers = {}; it must not be negative", {c.encoder_layers});
  }
  if (c.num_layers > kMaxLayers || c.encoder_layers > kMaxLayers) {
    Fail(ErrorCode::kRange, "{} layers; at most {}",
         {std::max(c.num_layers, c.encoder_layers), kMaxLayers});
  }
  if (c.num_kv_heads == 0) c.num_kv_heads = c.num_heads;
  if (c.ff_dim == 0) c.ff_dim = 4 * c.embed_dim;
  CheckCount("ff_dim", c.ff_dim);
  return c;
}

void CheckCross(const TransformerOptions& c, const BlockOptions& block) {
  if (!block.cross_attention) {
    if (c.cross_mechanism == TransformerOptions().cross_mechanism) return;
    Fail(ErrorCode::kOption, "cross_mechanism = \"{}\"; a model without an encoder reads none",
         {c.cross_mechanism});
  }
  try {
    CheckedAttention(*block.cross_attention);
  } catch (const Error& error) {
    // Its options are those of self-attention, which were right, but for the mechanism.
    Fail(error.code(),
         Join("cross_{}{}",
              {std::string_view(error.what()).starts_with("mechanism") ? "" : "mechanism: ",
               error.what()}));
  }
}

// All that can be wrong is found before anything is allocated.
TransformerOptions Checked(const TransformerOptions& given) {
  const TransformerOptions c = Sized(given);
  CheckRopeBase(c.rope_base);
  const BlockOptions block = DecoderBlock(c);
  CheckedAttention(block.attention);
  CheckCross(c, block);
  if (c.encoder_layers > 0) CheckedAttention(BlockOf(c, c.encoder_layers).attention);
  return c;
}

// Elements that a model of these sizes has at the very least: those of its matrices.
double LeastElements(const TransformerOptions& c) {
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  const double dim = number(c.embed_dim);
  const double places = c.position == ModelPosition::kLearned ? number(c.max_len) : 0;
  const double layers = number(c.num_layers + c.encoder_layers);
  return dim * (number(c.vocabulary) + places + layers * 2 * (dim + number(c.ff_dim)));
}

// A file's own words decide how much is allocated for it: they must not exceed what it holds.
void CheckFits(const TransformerOptions& config, const SafetensorsFile& file) {
  double elements = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    double count = 1;
    for (const int64_t extent : entry.shape) count *= static_cast<double>(extent);
    elements += count;
  }
  if (LeastElements(Sized(config)) <= elements) return;
  Fail(ErrorCode::kOption, "metadata: a model of these sizes has more weights than the file");
}

// The length of each sequence of `ids`, the argument called `name`.
int64_t LengthOf(const char* name, std::span<const int32_t> ids, int64_t batch,
                 const TransformerOptions& c) {
  const int64_t count = static_cast<int64_t>(ids.size());
  if (batch < 1 || count < batch || count % batch != 0) {
    Fail(ErrorCode::kShape, "{} has {} ids; expected as many for each of {} sequences",
         {name, count, batch});
  }
  const int64_t len = count / batch;
  if (c.position == ModelPosition::kLearned && len > c.max_len) {
    Fail(ErrorCode::kRange, "{} has {} ids for each sequence; expected at most max_len = {}",
         {name, len, c.max_len});
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < c.vocabulary) continue;
    Fail(ErrorCode::kRange, "{}[{}] = {}; ids lie in [0, vocabulary = {})",
         {name, i, ids[i], c.vocabulary});
  }
  return len;
}

}  // namespace

TokenStack::TokenStack(ParameterSet& parameters, const std::string& name,
                       const TransformerOptions& config, const BlockOptions& block,
                       int64_t num_layers) try
    : embedding_(parameters, name + ".embed_tokens", config.vocabulary, config.embed_dim,
                 1 / std::sqrt(static_cast<double>(config.embed_dim))),
      norm_(parameters, name + ".norm", {.dim = config.embed_dim, .norm = config.norm}) {
  if (config.position == ModelPosition::kLearned) {
    positions_.emplace(parameters, name + ".embed_positions", config.max_len, config.embed_dim,
                       1 / std::sqrt(static_cast<double>(config.embed_dim)));
  }
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    blocks_.emplace_back(parameters, name + ".layers." + std::to_string(layer), block);
  }
} catch (...) {
  RethrowMemoryError("a stack of blocks");
}

const Matrix& TokenStack::Forward(std::span<const int32_t> tokens, const TokenBatch& batch,
                                  const Matrix* context, int64_t context_len, ThreadPool* pool) {
  return *WithMemoryErrors("a stack of blocks", [&] {
    has_forward_ = false;
    const int64_t len = static_cast<int64_t>(tokens.size()) / batch.batch;
    const Matrix* rows = &embedding_.Forward(tokens, pool);
    if (positions_) {
      std::vector<int32_t> places;
      MakeRoom("places", static_cast<int64_t>(tokens.size()), places);
      for (size_t i = 0; i < places.size(); ++i) {
        places[i] = static_cast<int32_t>(static_cast<int64_t>(i) % len);
      }
      embedded_ = *rows;
      AddTo(positions_->Forward(places, pool).data(), embedded_.size(), pool, embedded_.data());
      rows = &embedded_;
    }
    has_context_ = context != nullptr;
    for (Block& block : blocks_) {
      const SequenceShape shape = {batch.batch, len, len, batch.dropout_draw};
      rows = has_context_ ? &block.Forward(*rows, shape, *context, context_len, pool)
                          : &block.Forward(*rows, shape, pool);
    }
    const Matrix& y = norm_.Forward(*rows, pool);
    has_forward_ = true;
    return &y;
  });
}

void TokenStack::Backward(const Matrix& d_y, ThreadPool* pool) {
  WithMemoryErrors("a stack of blocks", [&] {
    CheckHasForward(has_forward_);
    const Matrix* d_rows = &norm_.Backward(d_y, pool);
    bool first = true;
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      d_rows = &block->Backward(*d_rows, pool);
      if (!has_context_) continue;
      const Matrix& more = block->context_gradient();
      if (first) {
        d_context_ = more;
      } else {
        AddTo(more.data(), more.size(), pool, d_context_.data());
      }
      first = false;
    }
    embedding_.Backward(*d_rows, pool);
    if (positions_) positions_->Backward(*d_rows, pool);
  });
}

Transformer::Transformer(const TransformerOptions& config) try
    : options_(Checked(config)),
      parameters_(config.seed),
      decoder_(parameters_, "model", options_, DecoderBlock(options_), options_.num_layers),
      output_(options_.tied
                  ? LinearLayer(decoder_.embedding().table())
                  : LinearLayer(parameters_, "lm_head",
                                {.in_dim = options_.embed_dim, .out_dim = options_.vocabulary})) {
  if (options_.encoder_layers == 0) return;
  encoder_.emplace(parameters_, "encoder", options_, BlockOf(options_, options_.encoder_layers),
                   options_.encoder_layers);
} catch (...) {
  RethrowMemoryError("a transformer");
}

const Matrix& Transformer::Forward(const TokenBatch& batch, ThreadPool* pool) {
  return *WithMemoryErrors("a transformer", [&] {
    LengthOf("tokens", batch.tokens, batch.batch, options_);
    if (batch.source.empty() != !encoder_) {
      Fail(ErrorCode::kOption, encoder_ ? "source: a model with an encoder needs it"
                                        : "source: the model has no encoder that would read it");
    }
    const int64_t context_len =
        encoder_ ? LengthOf("source", batch.source, batch.batch, options_) : 0;
    has_forward_ = false;
    const Matrix* context =
        encoder_ ? &encoder_->Forward(batch.source, batch, nullptr, 0, pool) : nullptr;
    const Matrix& hidden = decoder_.Forward(batch.tokens, batch, context, context_len, pool);
    const Matrix& logits = output_.Forward(hidden, pool);
    has_forward_ = true;
    return &logits;
  });
}

void Transformer::Backward(const Matrix& d_logits, ThreadPool* pool) {
  WithMemoryErrors("a transformer", [&] {
    CheckHasForward(has_forward_);
    decoder_.Backward(output_.Backward(d_logits, pool), pool);
    if (encoder_) encoder_->Backward(decoder_.context_gradient(), pool);
  });
}

void Transformer::Weights(Heads heads, int64_t layer, TensorView<float> weights, ThreadPool* pool) {
  WithMemoryErrors("the weights of heads", [&] {
    const bool of_encoder = heads == Heads::kEncoder;
    const int64_t layers = of_encoder ? options_.encoder_layers : options_.num_layers;
    if (layer < 0 || layer >= layers) {
      Fail(ErrorCode::kRange, "layer = {}; it must lie in [0, {})", {layer, layers});
    }
    const TokenStack& stack = of_encoder ? *encoder_ : decoder_;
    const Block& block = stack.blocks()[static_cast<size_t>(layer)];
    if (heads != Heads::kCross) return block.attention().Weights(weights, pool);
    if (block.cross_attention() == nullptr) {
      Fail(ErrorCode::kOption, "heads: the model has no cross-attention");
    }
    block.cross_attention()->Weights(weights, pool);
  });
}

std::vector<uint8_t> Transformer::Save(DType dtype) const {
  return WithMemoryErrors("a file of weights", [&] {
    return SaveSafetensors(parameters_, ToMetadata(options_), dtype);
  });
}

std::unique_ptr<Transformer> Transformer::Load(std::span<const uint8_t> bytes) {
  return WithMemoryErrors("a transformer", [&] {
    const SafetensorsFile file(bytes);
    const TransformerOptions config = FromMetadata(file.metadata());
    CheckFits(config, file);
    auto model = std::make_unique<Transformer>(config);
    LoadParameters(file, model->parameters());
    return model;
  });
}

}  // namespace heed::training
