// Backward of Nystrom attention, o = F V', V' = Z R, with the landmarks Q' and K' of queries and
// keys, F = softmax(q K'^T), R = softmax(Q' k^T) v, A = softmax(Q' K'^T) and Z its pseudo-inverse:
//
//   dZ = dV' R^T,  dR = Z^T dV',  dS = A (dA - sum over a row of A dA),  dQ' += scale dS K'
//
// and through a step of the iteration, with x = A z, l = 7 - x, r = 15 - x l and g what arrives at
// z' = z (13 - x r) / 4:
//
//   h = -z^T g / 4,  dx = h r^T,  t = -x^T h,  dx += t l^T - x^T t,
//   dz = g (13 - x r)^T / 4 + A^T dx,  dA += dx z^T
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "heed/linear.h"
#include "src/low_rank/backward.h"
#include "src/low_rank/nystrom_steps.h"
#include "src/low_rank/problem.h"

namespace heed {
namespace {

// a^T b.
void TransposedBmm(const TensorView<float>& a, const TensorView<float>& b,
                   const TensorView<float>& to, ThreadPool& pool) {
  const OwnedTensor turned = Transposed(a, pool);
  Bmm(turned.view(), b, to, &pool);
}

// to = first * to + factor * from.
void Combine(float first, const TensorView<float>& to, float factor, const TensorView<float>& from,
             ThreadPool& pool) {
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < to.shape[3]; ++j) {
      const float kept = first == 0.0f ? 0.0f : first * to(b, h, i, j);
      to(b, h, i, j) = kept + factor * from(b, h, i, j);
    }
  });
}

// The iterations of the pseudo-inverse, all of them kept.
class InverseSteps {
 public:
  InverseSteps(const TensorView<float>& a, int64_t iterations, ThreadPool& pool)
      : a_(a),
        pool_(pool),
        x_(a.shape),
        left_(a.shape),
        right_(a.shape),
        last_(a.shape),
        product_(a.shape),
        d_x_(a.shape),
        inner_(a.shape) {
    for (int64_t n = 0; n <= iterations; ++n) z_.emplace_back(a.shape);
    StartInverse(a, z_[0].view(), pool_);
    for (size_t n = 0; n + 1 < z_.size(); ++n) {
      Step(z_[n].view());
      Bmm(z_[n].view(), last_.view(), z_[n + 1].view(), &pool_);
      Combine(0.25f, z_[n + 1].view(), 0, z_[n + 1].view(), pool_);
    }
  }

  const TensorView<float>& z() const { return z_.back().view(); }

  // Adds what z gets to d_a; leaves in d_z what the first z gets.
  void Back(const TensorView<float>& d_z, const TensorView<float>& d_a) {
    for (size_t n = z_.size() - 1; n-- > 0;) BackStep(z_[n].view(), d_z, d_a);
    BackStart(d_z, d_a);
  }

 private:
  // x = A z, left = 7 - x, right = 15 - x left, last = 13 - x right.
  void Step(const TensorView<float>& z) {
    Bmm(a_, z, x_.view(), &pool_);
    SubtractFrom(7, x_.view(), left_.view(), pool_);
    Bmm(x_.view(), left_.view(), right_.view(), &pool_);
    SubtractFrom(15, right_.view(), right_.view(), pool_);
    Bmm(x_.view(), right_.view(), last_.view(), &pool_);
    SubtractFrom(13, last_.view(), last_.view(), pool_);
  }

  void BackStep(const TensorView<float>& z, const TensorView<float>& d_z,
                const TensorView<float>& d_a) {
    Step(z);
    const TensorView<float>&product = product_.view(), &d_x = d_x_.view(), &inner = inner_.view();
    TransposedBmm(z, d_z, inner, pool_);
    Combine(-0.25f, inner, 0, inner, pool_);
    Bmm(inner, TransposedView(right_.view()), d_x, &pool_);
    TransposedBmm(x_.view(), inner, product, pool_);
    Combine(0, inner, -1, product, pool_);
    Bmm(inner, TransposedView(left_.view()), product, &pool_);
    Combine(1, d_x, 1, product, pool_);
    TransposedBmm(x_.view(), inner, product, pool_);
    Combine(1, d_x, -1, product, pool_);
    Bmm(d_x, TransposedView(z), product, &pool_);
    Combine(1, d_a, 1, product, pool_);
    Bmm(d_z, TransposedView(last_.view()), product, &pool_);
    TransposedBmm(a_, d_x, inner, pool_);
    Combine(0, d_z, 0.25f, product, pool_);
    Combine(1, d_z, 1, inner, pool_);
  }

  // Through z = A^T / (the largest sum of a column): those of rows are 1.
  void BackStart(const TensorView<float>& d_z, const TensorView<float>& d_a) {
    const int64_t count = a_.shape[2];
    ForEachRow({a_.shape[0], a_.shape[1], 1, 1}, pool_, [&](int64_t b, int64_t h, int64_t) {
      int64_t largest = 0;
      double most = 0, along = 0;
      for (int64_t j = 0; j < count; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < count; ++i) {
          sum += double{a_(b, h, i, j)};
          along += double{d_z(b, h, j, i)} * double{a_(b, h, i, j)};
        }
        if (sum > most) largest = j;
        most = std::max(most, sum);
      }
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t j = 0; j < count; ++j) {
          const double of_sum = j == largest ? along / most : 0;
          d_a(b, h, i, j) += static_cast<float>((double{d_z(b, h, j, i)} - of_sum) / most);
        }
      }
    });
  }

  const TensorView<float>& a_;
  ThreadPool& pool_;
  std::vector<OwnedTensor> z_;
  OwnedTensor x_, left_, right_, last_, product_, d_x_, inner_;
};

// Sequences of one length, of which `tokens` count.
class NystromGradient {
 public:
  NystromGradient(const NystromOptions& options, ThreadPool& pool) : pool_(pool) {
    scaled_.scale = options.scale;
    iterations_ = options.iterations;
  }

  void Run(const TensorView<const float>& q, const TensorView<const float>& k,
           const TensorView<const float>& v, const TensorView<const float>& d_out, int64_t tokens,
           int64_t num_landmarks, const LowRankGradients& to) {
    if (tokens <= num_landmarks) {
      const std::vector<int32_t> lengths(static_cast<size_t>(q.shape[0]),
                                         static_cast<int32_t>(tokens));
      AttentionOptions options = scaled_;
      options.key_lengths = lengths;
      return Exact(q, k, v, d_out, options, to);
    }
    const auto first = [&](const auto& view) {
      return view.has_value() ? RowsOf(view, 0, tokens) : view;
    };
    Landmarks(q, first(k), first(v), d_out, num_landmarks, {to.d_q, first(to.d_k), first(to.d_v)});
    for (int64_t b = 0; b < q.shape[0]; ++b) {
      ClearRows(to.d_k, b, tokens);
      ClearRows(to.d_v, b, tokens);
    }
  }

 private:
  // Forward of the exact loop once more, then backward.
  void Exact(const TensorView<const float>& q, const TensorView<const float>& k,
             const TensorView<const float>& v, const TensorView<const float>& d_out,
             const AttentionOptions& options, const LowRankGradients& to) {
    const auto [batch, heads, len, dim] = q.shape;
    const OwnedTensor out({batch, heads, len, v.shape[3]}), lse({batch, heads, len, 1});
    Attention(q, k, v, options, {.output = out.view(), .lse = lse.view()}, &pool_);
    AttentionBackward(q, k, v, out.view(), lse.view(), d_out, options,
                      {.d_q = to.d_q, .d_k = to.d_k, .d_v = to.d_v}, &pool_);
  }

  void Landmarks(const TensorView<const float>& q, const TensorView<const float>& k,
                 const TensorView<const float>& v, const TensorView<const float>& d_out,
                 int64_t num, const LowRankGradients& to) {
    const auto [batch, heads, q_len, dim] = q.shape;
    const int64_t tokens = k.shape[2];
    const Extents marks = {batch, heads, num, dim}, read = {batch, heads, num, v.shape[3]};
    const OwnedTensor queries(marks), keys(marks), d_queries(marks), d_keys(marks);
    const OwnedTensor a({batch, heads, num, num}), d_a(a.view().shape), d_z(a.view().shape);
    const OwnedTensor r(read), lse({batch, heads, num, 1}), values(read), d_values(read), d_r(read);
    MeansOfSegments(q, tokens, queries.view(), pool_);
    MeansOfSegments(k, tokens, keys.view(), pool_);
    float nothing = 0;
    AttentionOutputs between;
    between.output = Contiguous(&nothing, batch, heads, num, 0);
    between.weights = a.view();
    Attention(queries.view(), keys.view(), Planned({batch, heads, num, 0}), scaled_, between,
              &pool_);
    Attention(queries.view(), k, v, scaled_, {.output = r.view(), .lse = lse.view()}, &pool_);
    InverseSteps inverse(a.view(), iterations_, pool_);
    Bmm(inverse.z(), r.view(), values.view(), &pool_);

    Exact(q, keys.view(), values.view(), d_out, scaled_, {to.d_q, d_keys.view(), d_values.view()});
    Bmm(d_values.view(), TransposedView(r.view()), d_z.view(), &pool_);
    TransposedBmm(inverse.z(), d_values.view(), d_r.view(), pool_);
    AttentionBackward(queries.view(), k, v, r.view(), lse.view(), d_r.view(), scaled_,
                      {.d_q = d_queries.view(), .d_k = to.d_k, .d_v = to.d_v}, &pool_);
    Combine(0, d_a.view(), 0, a.view(), pool_);
    inverse.Back(d_z.view(), d_a.view());
    PassWeights(a.view(), d_a.view(), dim);
    AddProducts(d_a.view(), keys.view(), d_queries.view());
    AddProducts(Transposed(d_a.view(), pool_).view(), queries.view(), d_keys.view());
    AddMeans(d_queries.view(), tokens, to.d_q);
    AddMeans(d_keys.view(), tokens, to.d_k);
  }

  // d_a, of weights, becomes that of products of landmarks.
  void PassWeights(const TensorView<float>& a, const TensorView<float>& d_a, int64_t dim) {
    const double scale = scaled_.scale.value_or(1 / std::sqrt(static_cast<double>(dim)));
    ForEachRow(a.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      double along = 0;
      for (int64_t j = 0; j < a.shape[3]; ++j) {
        along += double{a(b, h, i, j)} * double{d_a(b, h, i, j)};
      }
      for (int64_t j = 0; j < a.shape[3]; ++j) {
        const double slope = double{a(b, h, i, j)} * (double{d_a(b, h, i, j)} - along);
        d_a(b, h, i, j) = static_cast<float>(scale * slope);
      }
    });
  }

  // to += matrix landmarks.
  void AddProducts(const TensorView<float>& matrix, const TensorView<float>& landmarks,
                   const TensorView<float>& to) {
    const OwnedTensor products(to.shape);
    Bmm(matrix, landmarks, products.view(), &pool_);
    Combine(1, to, 1, products.view(), pool_);
  }

  // A mean gives to its tokens evenly; those of several heads are summed.
  void AddMeans(const TensorView<float>& means, int64_t tokens, const TensorView<float>& to) {
    if (!to.has_value()) return;
    const int64_t group = means.shape[1] / std::max<int64_t>(to.shape[1], 1);
    const int64_t segments = means.shape[2];
    ForEachRow({to.shape[0], to.shape[1], segments, 1}, pool_,
               [&](int64_t b, int64_t h, int64_t n) {
                 const int64_t begin = n * tokens / segments, end = (n + 1) * tokens / segments;
                 for (int64_t d = 0; d < to.shape[3]; ++d) {
                   float sum = 0;
                   for (int64_t g = 0; g < group; ++g) sum += means(b, h * group + g, n, d);
                   sum /= static_cast<float>(end - begin);
                   for (int64_t j = begin; j < end; ++j) to(b, h, j, d) += sum;
                 }
               });
  }

  AttentionOptions scaled_;
  int64_t iterations_;
  ThreadPool& pool_;
};

// d_v += what the convolution gives of token j.
void AddConvolved(const TensorView<const float>& conv, const TensorView<const float>& d_out,
                  const AttentionProblem& p, const TensorView<float>& to, ThreadPool& pool) {
  const int64_t taps = conv.shape[3];
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t j) {
    if (j >= p.KeyLength(b, 0)) return;
    for (int64_t head = h * p.group; head < (h + 1) * p.group; ++head) {
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t i = j - t + taps / 2;
        if (i < 0 || i >= p.q_len) continue;
        const float weight = conv(0, 0, conv.shape[2] == 1 ? 0 : head, t);
        for (int64_t d = 0; d < to.shape[3]; ++d) to(b, h, j, d) += weight * d_out(b, head, i, d);
      }
    }
  });
}

// A tap gets the sum over all rows, and over heads that share it.
void ConvolutionGradient(const TensorView<const float>& v, const TensorView<const float>& d_out,
                         const AttentionProblem& p, const TensorView<float>& to, ThreadPool& pool) {
  const int64_t taps = to.shape[3], shared = to.shape[2] == 1 ? p.num_heads : 1;
  ForEachRow({1, to.shape[2], taps, 1}, pool, [&](int64_t, int64_t h, int64_t t) {
    double sum = 0;
    for (int64_t row = 0; row < p.batch * shared * p.q_len; ++row) {
      const int64_t b = row / p.q_len / shared, i = row % p.q_len, j = i + t - taps / 2;
      const int64_t head = shared == 1 ? h : row / p.q_len % shared;
      if (j < 0 || j >= p.KeyLength(b, 0)) continue;
      for (int64_t d = 0; d < p.head_dim_v; ++d) {
        sum += double{d_out(b, head, i, d)} * double{v(b, head / p.group, j, d)};
      }
    }
    to(0, 0, h, t) = static_cast<float>(sum);
  });
}

}  // namespace

void NystromBackward(const TensorView<const float>& q, const TensorView<const float>& k,
                     const TensorView<const float>& v, const NystromOptions& options,
                     const LowRankArriving& arriving, const LowRankGradients& to,
                     ThreadPool& pool) {
  const NystromProblem n = ValidateNystrom(q, k, v, options);
  const AttentionProblem& p = n.tokens;
  const TensorView<const float> d_out = arriving.d_out;
  NystromGradient gradient(options, pool);
  const auto entry = [](const auto& view, int64_t b) {
    return view.has_value() ? EntryOf(view, b) : view;
  };
  if (options.key_lengths.empty()) {
    gradient.Run(q, k, v, d_out, p.kv_len, n.num_landmarks, to);
  }
  for (int64_t b = 0; b < p.batch && !options.key_lengths.empty(); ++b) {
    gradient.Run(EntryOf(q, b), EntryOf(k, b), EntryOf(v, b), EntryOf(d_out, b), p.KeyLength(b, 0),
                 n.num_landmarks, {entry(to.d_q, b), entry(to.d_k, b), entry(to.d_v, b)});
  }
  const TensorView<const float>& conv = options.depthwise_conv;
  if (conv.has_value() && to.d_v.has_value()) AddConvolved(conv, d_out, p, to.d_v, pool);
  if (to.d_depthwise_conv.has_value()) {
    ConvolutionGradient(v, d_out, p, to.d_depthwise_conv, pool);
  }
}

}  // namespace heed
