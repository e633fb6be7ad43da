// Nystrom attention as three calls of the exact loop and, between them, products of the landmarks'
// matrices.
#include <algorithm>
#include <cmath>
#include <utility>

#include "heed/linear.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/low_rank/nystrom_steps.h"
#include "src/low_rank/problem.h"
#include "src/memory_errors.h"
#include "src/message.h"

namespace heed {
namespace {

constexpr int64_t kDefaultLandmarks = 64;
constexpr int64_t kMaxIterations = 100;

void CheckConvolution(const TensorView<const float>& conv, int64_t heads) {
  if (!conv.has_value()) return;
  CheckInput("depthwise_conv", conv);
  const Extents& s = conv.shape;
  if (s[0] == 1 && s[1] == 1 && (s[2] == 1 || s[2] == heads) && s[3] % 2 == 1) return;
  Fail(ErrorCode::kShape,
       "depthwise_conv has shape {}; expected [1, 1, 1 or num_heads = {}, an odd number]",
       {s, heads});
}

// |xa - a| / |a| of each matrix.
void MeasureResidual(const TensorView<float>& a, const TensorView<float>& aza,
                     const TensorView<float>& to, ThreadPool& pool) {
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t) {
    double far = 0, size = 0;
    for (int64_t i = 0; i < a.shape[2]; ++i) {
      for (int64_t j = 0; j < a.shape[3]; ++j) {
        const double x = a(b, h, i, j), difference = aza(b, h, i, j) - x;
        far += difference * difference;
        size += x * x;
      }
    }
    to(b, h, 0, 0) = static_cast<float>(std::sqrt(far / size));
  });
}

// The paper's iteration, of third order:
//   z <- z (13 - az (15 - az (7 - az))) / 4.
class PseudoInverse {
 public:
  PseudoInverse(const Extents& shape, ThreadPool& pool)
      : pool_(pool), z_(shape), next_(shape), az_(shape), left_(shape), right_(shape) {}

  const TensorView<float>& z() const { return z_.view(); }

  void Iterate(const TensorView<float>& a, int64_t iterations) {
    StartInverse(a, z_.view(), pool_);
    for (int64_t n = 0; n < iterations; ++n) {
      Bmm(a, z_.view(), az_.view(), &pool_);
      SubtractFrom(7, az_.view(), left_.view(), pool_);
      Bmm(az_.view(), left_.view(), right_.view(), &pool_);
      SubtractFrom(15, right_.view(), right_.view(), pool_);
      Bmm(az_.view(), right_.view(), left_.view(), &pool_);
      SubtractFrom(13, left_.view(), left_.view(), pool_);
      Bmm(z_.view(), left_.view(), next_.view(), &pool_);
      ForEachRow(next_.view().shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
        for (int64_t j = 0; j < next_.view().shape[3]; ++j) next_.view()(b, h, i, j) *= 0.25f;
      });
      std::swap(z_, next_);
    }
  }

  void Residual(const TensorView<float>& a, const TensorView<float>& to) {
    Bmm(a, z_.view(), az_.view(), &pool_);
    Bmm(az_.view(), a, left_.view(), &pool_);
    MeasureResidual(a, left_.view(), to, pool_);
  }

 private:
  ThreadPool& pool_;
  OwnedTensor z_, next_, az_, left_, right_;
};

// output += the convolution of the first `len` values.
void AddConvolution(const TensorView<const float>& conv, const TensorView<const float>& v,
                    int64_t len, const TensorView<float>& output, ThreadPool& pool) {
  const int64_t group = output.shape[1] / std::max<int64_t>(v.shape[1], 1);
  const int64_t taps = conv.shape[3], width = output.shape[3];
  if (DryRun* dry = DryRun::Current()) {
    dry->AddFlops(2.0 * static_cast<double>(output.size()) * static_cast<double>(taps));
  }
  ForEachRow(output.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t first = i - taps / 2;
    for (int64_t j = std::max<int64_t>(first, 0); j < std::min(first + taps, len); ++j) {
      const float weight = conv(0, 0, conv.shape[2] == 1 ? 0 : h, j - first);
      for (int64_t d = 0; d < width; ++d) output(b, h, i, d) += weight * v(b, h / group, j, d);
    }
  });
}

// Sequences of one length, of which `tokens` count.
class Nystrom {
 public:
  Nystrom(const NystromOptions& options, ThreadPool& pool) : options_(options), pool_(pool) {
    scaled_.scale = options.scale;
  }

  void Run(const TensorView<const float>& q, const TensorView<const float>& k,
           const TensorView<const float>& v, int64_t tokens, int64_t num_landmarks,
           const NystromOutputs& out) {
    if (tokens <= num_landmarks) {
      RunExact(q, k, v, tokens, out);
    } else {
      RunLandmarks(q, RowsOf(k, 0, tokens), RowsOf(v, 0, tokens), num_landmarks, out);
    }
    if (options_.depthwise_conv.has_value()) {
      AddConvolution(options_.depthwise_conv, v, tokens, out.output, pool_);
    }
  }

 private:
  void RunExact(const TensorView<const float>& q, const TensorView<const float>& k,
                const TensorView<const float>& v, int64_t tokens, const NystromOutputs& out) {
    const ScratchVector<int32_t> lengths(static_cast<size_t>(q.shape[0]),
                                         static_cast<int32_t>(tokens));
    AttentionOptions options = scaled_;
    options.key_lengths = lengths;
    AttentionOutputs exact;
    exact.output = out.output;
    exact.weights = out.weights;
    Attention(q, k, v, options, exact, &pool_);
    if (!out.residual.has_value()) return;
    ForEachRow(out.residual.shape, pool_,
               [&](int64_t b, int64_t h, int64_t) { out.residual(b, h, 0, 0) = 0; });
  }

  void RunLandmarks(const TensorView<const float>& q, const TensorView<const float>& k,
                    const TensorView<const float>& v, int64_t num, const NystromOutputs& out) {
    const auto [batch, heads, q_len, dim] = q.shape;
    const int64_t tokens = k.shape[2], dim_v = v.shape[3];
    const bool weights = out.weights.has_value();
    const auto if_weights = [&](const Extents& shape) {
      return weights ? OwnedTensor(shape) : OwnedTensor();
    };
    const OwnedTensor queries({batch, heads, num, dim}), keys({batch, heads, num, dim});
    const OwnedTensor a({batch, heads, num, num});
    const OwnedTensor read({batch, heads, num, dim_v}), values({batch, heads, num, dim_v});
    const OwnedTensor from = if_weights({batch, heads, num, tokens});
    const OwnedTensor inverted = if_weights({batch, heads, num, tokens});
    const OwnedTensor to = if_weights({batch, heads, q_len, num});
    PseudoInverse inverse(a.view().shape, pool_);

    MeansOfSegments(q, tokens, queries.view(), pool_);
    MeansOfSegments(k, tokens, keys.view(), pool_);
    float nothing = 0;
    AttentionOutputs between, first, last;
    between.output = Contiguous(&nothing, batch, heads, num, 0);
    between.weights = a.view();
    Attention(queries.view(), keys.view(), Planned({batch, heads, num, 0}), scaled_, between,
              &pool_);
    first.output = read.view();
    first.weights = from.view();
    Attention(queries.view(), k, v, scaled_, first, &pool_);
    inverse.Iterate(a.view(), options_.iterations);
    Bmm(inverse.z(), read.view(), values.view(), &pool_);
    last.output = out.output;
    last.weights = to.view();
    Attention(q, keys.view(), values.view(), scaled_, last, &pool_);
    if (weights) {
      Bmm(inverse.z(), from.view(), inverted.view(), &pool_);
      WriteWeights(to.view(), inverted.view(), out.weights);
    }
    if (out.residual.has_value()) inverse.Residual(a.view(), out.residual);
  }

  void WriteWeights(const TensorView<float>& to, const TensorView<float>& inverted,
                    TensorView<float> weights) {
    const int64_t tokens = inverted.shape[3], kv_len = weights.shape[3];
    ForEachRow(weights.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      for (int64_t j = tokens; j < kv_len; ++j) weights(b, h, i, j) = 0;
    });
    weights.shape[3] = tokens;
    Bmm(to, inverted, weights, &pool_);
  }

  const NystromOptions& options_;
  AttentionOptions scaled_;
  ThreadPool& pool_;
};

}  // namespace

void MeansOfSegments(const TensorView<const float>& rows, int64_t len, const TensorView<float>& to,
                     ThreadPool& pool) {
  const int64_t group = to.shape[1] / std::max<int64_t>(rows.shape[1], 1);
  const int64_t segments = to.shape[2], width = to.shape[3];
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t n) {
    const int64_t begin = n * len / segments, end = (n + 1) * len / segments;
    const float factor = 1.0f / static_cast<float>(end - begin);
    for (int64_t d = 0; d < width; ++d) to(b, h, n, d) = 0;
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t d = 0; d < width; ++d) to(b, h, n, d) += rows(b, h / group, j, d);
    }
    for (int64_t d = 0; d < width; ++d) to(b, h, n, d) *= factor;
  });
}

void SubtractFrom(float diagonal, const TensorView<float>& matrix, const TensorView<float>& to,
                  ThreadPool& pool) {
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < to.shape[3]; ++j) to(b, h, i, j) = -matrix(b, h, i, j);
    to(b, h, i, i) += diagonal;
  });
}

void StartInverse(const TensorView<float>& a, const TensorView<float>& z, ThreadPool& pool) {
  const int64_t n = a.shape[2];
  ForEachRow({a.shape[0], a.shape[1], 1, 1}, pool, [&](int64_t b, int64_t h, int64_t) {
    float rows = 0, cols = 0;
    for (int64_t i = 0; i < n; ++i) {
      float row = 0, col = 0;
      for (int64_t j = 0; j < n; ++j) {
        row += std::abs(a(b, h, i, j));
        col += std::abs(a(b, h, j, i));
      }
      rows = std::max(rows, row);
      cols = std::max(cols, col);
    }
    const float factor = 1 / (rows * cols);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) z(b, h, i, j) = factor * a(b, h, j, i);
    }
  });
}

NystromProblem ValidateNystrom(const TensorView<const float>& q, const TensorView<const float>& k,
                               const TensorView<const float>& v, const NystromOptions& o) {
  AttentionOptions over_tokens;
  over_tokens.scale = o.scale;
  over_tokens.key_lengths = o.key_lengths;
  NystromProblem p = {ValidateLowRank(q, k, v, over_tokens), 0};
  const int64_t len = p.tokens.kv_len;
  if (p.tokens.q_len != len) {
    Fail(ErrorCode::kShape, "q_len is {} and kv_len {}; landmarks need the same tokens in both",
         {p.tokens.q_len, len});
  }
  p.num_landmarks = o.num_landmarks.value_or(std::min(kDefaultLandmarks, len));
  if (o.num_landmarks && (p.num_landmarks < 1 || p.num_landmarks > len)) {
    Fail(ErrorCode::kRange, "num_landmarks = {}; expected 1 to kv_len = {}: each is made of tokens",
         {p.num_landmarks, len});
  }
  if (o.iterations < 1 || o.iterations > kMaxIterations) {
    Fail(ErrorCode::kRange, "iterations = {}; expected 1 to {}", {o.iterations, kMaxIterations});
  }
  CheckConvolution(o.depthwise_conv, p.tokens.num_heads);
  return p;
}

NystromProblem ValidateNystromCall(const TensorView<const float>& q,
                                   const TensorView<const float>& k,
                                   const TensorView<const float>& v, const NystromOptions& options,
                                   const NystromOutputs& outputs) {
  NystromProblem p = ValidateNystrom(q, k, v, options);
  AttentionOutputs checked;
  checked.output = outputs.output;
  checked.weights = outputs.weights;
  ValidateComposed(q, k, v, p.tokens.options, checked);
  if (outputs.residual.has_value()) {
    CheckOutput("residual", outputs.residual, {p.tokens.batch, p.tokens.num_heads, 1, 1},
                "[batch, num_heads, 1, 1]");
  }
  const auto& [output, weights, residual] = outputs;
  OutputSpans({{"output", output}, {"weights", weights}, {"residual", residual}})
      .ApartFrom("q", q)
      .ApartFrom("k", k)
      .ApartFrom("v", v)
      .ApartFrom(options);
  return p;
}

void NystromAttention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const NystromOptions& options,
                      const NystromOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("Nystrom attention", [&] {
    const NystromProblem p = ValidateNystromCall(q, k, v, options, outputs);
    Nystrom nystrom(options, PoolOrDefault(pool));
    if (options.key_lengths.empty()) {
      return nystrom.Run(q, k, v, p.tokens.kv_len, p.num_landmarks, outputs);
    }
    for (int64_t b = 0; b < p.tokens.batch; ++b) {
      const NystromOutputs entry = {EntryOf(outputs.output, b), EntryOf(outputs.weights, b),
                                    EntryOf(outputs.residual, b)};
      nystrom.Run(EntryOf(q, b), EntryOf(k, b), EntryOf(v, b), p.tokens.KeyLength(b, 0),
                  p.num_landmarks, entry);
    }
  });
}

}  // namespace heed
