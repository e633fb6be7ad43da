#include "heed/training/block.h"

#include "src/parallel/pieces.h"
#include "src/training/checks.h"

namespace heed::training {
namespace {

// to = a + b.
void Add(const Matrix& a, const Matrix& b, Matrix& to, ThreadPool* pool) {
  to.Resize(a.rows(), a.dim());
  ForEachPiece(a.size(), kTaskElements, pool, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t n = begin; n < end; ++n) to.data()[n] = a.data()[n] + b.data()[n];
  });
}

NormLayerOptions NormOf(const BlockOptions& o) {
  return {.dim = o.attention.embed_dim, .norm = o.norm, .epsilon = o.epsilon};
}

const BlockOptions& Checked(const BlockOptions& o) {
  const int64_t dim = o.attention.embed_dim;
  const int64_t cross_dim = o.cross_attention ? o.cross_attention->embed_dim : dim;
  if (o.feed_forward.embed_dim == dim && cross_dim == dim) return o;
  Fail(ErrorCode::kShape, "embed_dim is {}, {} and {} in the parts of a block; expected one",
       {dim, cross_dim, o.feed_forward.embed_dim});
}

}  // namespace

Block::Cross::Cross(ParameterSet& parameters, const std::string& name, const BlockOptions& options)
    : norm(parameters, name + ".cross_layernorm", NormOf(options)),
      attention(parameters, name + ".cross_attn", *options.cross_attention) {}

Block::Block(ParameterSet& parameters, const std::string& name, const BlockOptions& options) try
    : norm1_(parameters, name + ".input_layernorm", NormOf(Checked(options))),
      norm2_(parameters, name + ".post_attention_layernorm", NormOf(options)),
      attention_(parameters, name + ".self_attn", options.attention),
      mlp_(parameters, name + ".mlp", options.feed_forward) {
  if (options.cross_attention) cross_.emplace(parameters, name, options);
} catch (...) {
  RethrowMemoryError("a transformer block");
}

const Matrix& Block::Forward(const Matrix& x, const SequenceShape& shape, ThreadPool* pool) {
  return *WithMemoryErrors("a transformer block", [&] {
    if (cross_) Fail(ErrorCode::kOption, "a block with cross-attention needs a context");
    has_forward_ = false;
    const Matrix& normed = norm1_.Forward(x, pool);
    Add(x, attention_.Forward(normed, normed, shape, pool), attended_, pool);
    return &Finish(attended_, pool);
  });
}

const Matrix& Block::Forward(const Matrix& x, const SequenceShape& shape, const Matrix& context,
                             int64_t context_len, ThreadPool* pool) {
  return *WithMemoryErrors("a transformer block", [&] {
    if (!cross_) Fail(ErrorCode::kOption, "a block without cross-attention takes no context");
    has_forward_ = false;
    const Matrix& normed = norm1_.Forward(x, pool);
    Add(x, attention_.Forward(normed, normed, shape, pool), attended_, pool);
    SequenceShape across = shape;
    across.kv_len = context_len;
    const Matrix& queries = cross_->norm.Forward(attended_, pool);
    Add(attended_, cross_->attention.Forward(queries, context, across, pool), crossed_, pool);
    return &Finish(crossed_, pool);
  });
}

const Matrix& Block::Finish(const Matrix& x, ThreadPool* pool) {
  Add(x, mlp_.Forward(norm2_.Forward(x, pool), pool), y_, pool);
  has_forward_ = true;
  return y_;
}

const Matrix& Block::Backward(const Matrix& d_y, ThreadPool* pool) {
  WithMemoryErrors("a transformer block", [&] {
    CheckHasForward(has_forward_);
    Add(d_y, norm2_.Backward(mlp_.Backward(d_y, pool), pool), d_crossed_, pool);
    const Matrix* d_attended = &d_crossed_;
    if (cross_) {
      const Matrix& d_queries = cross_->attention.Backward(d_crossed_, pool);
      Add(d_crossed_, cross_->norm.Backward(d_queries, pool), d_attended_, pool);
      d_attended = &d_attended_;
    }
    Add(*d_attended, norm1_.Backward(attention_.Backward(*d_attended, pool), pool), d_x_, pool);
  });
  return d_x_;
}

}  // namespace heed::training
