#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "heed/linear.h"
#include "src/recurrent/backward_levels.h"
#include "src/rows/dot.h"

namespace heed {
namespace {

bool CopyFinite(const float* from, int64_t width, float* to) {
  std::copy_n(from, width, to);
  return std::all_of(from, from + width, [](float x) { return std::isfinite(x); });
}

}  // namespace

void ScaleRow(const float* row, int64_t width, float factor, float* to) {
  for (int64_t c = 0; c < width; ++c) to[c] = factor * row[c];
}

void AddRow(const TensorView<float>& to, const TokenPlace& at, float factor, const float* row) {
  if (to.has_value()) AddTimes(factor, row, to.shape[3], RowOf(to, at.b, at.head, at.t));
}

LevelsHead::LevelsHead(const RecurrentBackwardProblem& g, int64_t unit, const HeadGradients& sums)
    : HeadBackward(g, unit, sums),
      d_decay(static_cast<size_t>(p_.kv_len)),
      d_beta(d_decay.size()),
      gates_(d_decay.size()) {}

void LevelsHead::Begin() {
  for (int64_t t = 0; t < Length(); ++t) gates_[static_cast<size_t>(t)] = Decay(t, 0);
  std::fill(d_decay.begin(), d_decay.end(), 0.0);
  std::fill(d_beta.begin(), d_beta.end(), 0.0);
  const auto clear = [&](const TensorView<float>& view, int64_t head) {
    for (int64_t t = 0; t < view.shape[2] && view.has_value(); ++t) {
      std::fill_n(RowOf(view, b_, head, t), view.shape[3], 0.0f);
    }
  };
  clear(to_.d_k, h_);
  clear(to_.d_v, h_);
  clear(to_.d_initial_state, h_);
  for (int64_t head = FirstHead(); head < FirstHead() + p_.group; ++head) {
    clear(to_.d_q, head);
    clear(to_.d_level_weights, head);
  }
}

void LevelsHead::Itself(int64_t t) {
  const float* const k = RowOf(p_.k, b_, h_, t);
  for (int64_t n = 0; n < p_.group; ++n) {
    const int64_t head = FirstHead() + n;
    const float* const q = RowOf(p_.q, b_, head, t);
    const float* const arriving = RowOf(g_.d_out, b_, head, t);
    const double meet = DotRows(q, k, p_.head_dim);
    const double along = DotRows(arriving, RowOf(p_.v, b_, h_, t), p_.head_dim_v);
    const double factor = double{p_.scale} * Beta(t);
    const double weight = double{p_.options.level_weights(b_, head, t, 0)};
    const double skip =
        p_.options.skip.empty() ? 0 : double{p_.options.skip[static_cast<size_t>(head)]};
    if (to_.d_level_weights.has_value()) {
      to_.d_level_weights(b_, head, t, 0) = static_cast<float>(factor * meet * along);
    }
    d_beta[static_cast<size_t>(t)] += double{p_.scale} * weight * meet * along;
    if (!sums_.skip.empty()) sums_.skip[static_cast<size_t>(n)] += along;
    const float read = static_cast<float>(factor * weight * along);
    AddRow(to_.d_q, {b_, head, t}, read, k);
    AddRow(to_.d_k, {b_, h_, t}, read, q);
    AddRow(to_.d_v, {b_, h_, t}, static_cast<float>(factor * weight * meet + skip), arriving);
  }
}

void LevelsHead::Store() {
  for (int64_t t = 0; t < Length(); ++t) {
    // A factor of 0 stays 0, whatever its logarithm does.
    const double decay = Gate(t) == 0 ? 0 : d_decay[static_cast<size_t>(t)];
    g_.d_log_decay.Add(sums_.log_decay, {b_, h_, t}, 0, decay);
    g_.d_beta.Add(sums_.beta, {b_, h_, t}, 0, d_beta[static_cast<size_t>(t)]);
  }
  ClearBeyondLength();
}

LevelsChunk::LevelsChunk(const RecurrentBackwardProblem& g, ThreadPool& pool)
    : g_(g), p_(g.forward), pool_(pool), finite_(static_cast<size_t>(p_.num_kv_heads)) {
  const int64_t rows = p_.group * kLevelsChunk;
  const auto make = [&](OwnedTensor& tensor, int64_t m, int64_t n) {
    tensor = OwnedTensor({1, p_.num_kv_heads, m, n});
  };
  make(queries_, rows, p_.head_dim);
  make(d_queries_, rows, p_.head_dim);
  make(arriving_, rows, p_.head_dim_v);
  for (OwnedTensor* pairs : {&meets_, &along_, &meets_turned_, &along_turned_}) {
    make(*pairs, rows, kLevelsChunk);
  }
  for (OwnedTensor* keys : {&keys_, &d_keys_}) make(*keys, kLevelsChunk, p_.head_dim);
  for (OwnedTensor* values : {&values_, &d_values_}) make(*values, kLevelsChunk, p_.head_dim_v);
}

TensorView<float> LevelsChunk::Matrix(const OwnedTensor& memory, int64_t rows, int64_t cols) const {
  return Contiguous(memory.view().data, 1, p_.num_kv_heads, rows, cols);
}

bool LevelsChunk::Run(int64_t b, int64_t t, const TokenSpan& span, std::vector<LevelsHead>& heads) {
  b_ = b;
  t_ = t;
  span_ = span;
  if (!Load()) return false;
  const int64_t count = span.size(), rows = p_.group * count;
  const TensorView<float> queries = Matrix(queries_, rows, p_.head_dim);
  const TensorView<float> arriving = Matrix(arriving_, rows, p_.head_dim_v);
  const TensorView<float> keys = Matrix(keys_, count, p_.head_dim);
  const TensorView<float> values = Matrix(values_, count, p_.head_dim_v);
  Bmm(queries, TransposedView(keys), Matrix(meets_, rows, count), &pool_);
  Bmm(arriving, TransposedView(values), Matrix(along_, rows, count), &pool_);
  pool_.Run(p_.num_kv_heads, [&](int64_t h, int) { Pairs(h, heads[static_cast<size_t>(h)]); });
  Bmm(Matrix(along_, rows, count), keys, Matrix(d_queries_, rows, p_.head_dim), &pool_);
  Bmm(Matrix(along_turned_, count, rows), queries, Matrix(d_keys_, count, p_.head_dim), &pool_);
  Bmm(Matrix(meets_turned_, count, rows), arriving, Matrix(d_values_, count, p_.head_dim_v),
      &pool_);
  pool_.Run(p_.num_kv_heads, [&](int64_t h, int) { Add(h); });
  return true;
}

bool LevelsChunk::Load() {
  pool_.Run(p_.num_kv_heads,
            [&](int64_t h, int) { finite_[static_cast<size_t>(h)] = LoadHead(h) ? 1 : 0; });
  return std::all_of(finite_.begin(), finite_.end(), [](char finite) { return finite != 0; });
}

bool LevelsChunk::LoadHead(int64_t h) {
  const int64_t count = span_.size(), dim = p_.head_dim, cols = p_.head_dim_v;
  const TensorView<float> queries = Matrix(queries_, p_.group * count, dim);
  const TensorView<float> arriving = Matrix(arriving_, p_.group * count, cols);
  const TensorView<float> keys = Matrix(keys_, count, dim), values = Matrix(values_, count, cols);
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite &= CopyFinite(RowOf(p_.k, b_, h, t_ + i), dim, RowOf(keys, 0, h, i));
    finite &= CopyFinite(RowOf(p_.v, b_, h, t_ + i), cols, RowOf(values, 0, h, i));
    for (int64_t n = 0; n < p_.group; ++n) {
      const int64_t head = h * p_.group + n, row = n * count + i;
      finite &= CopyFinite(RowOf(p_.q, b_, head, t_ + i), dim, RowOf(queries, 0, h, row));
      finite &= CopyFinite(RowOf(g_.d_out, b_, head, t_ + i), cols, RowOf(arriving, 0, h, row));
    }
  }
  return finite;
}

// What meets in each pair becomes what keys, queries and values are multiplied by.
void LevelsChunk::Pairs(int64_t h, LevelsHead& own) const {
  const int64_t count = span_.size();
  for (int64_t n = 0; n < p_.group; ++n) {
    for (int64_t i = 0; i < count; ++i) PairsOf(n * count + i, h * p_.group + n, i, h, own);
  }
}

// Of token i of a query head with the keys before it.
void LevelsChunk::PairsOf(int64_t row, int64_t head, int64_t i, int64_t h, LevelsHead& own) const {
  const int64_t count = span_.size(), rows = p_.group * count;
  float* const meets = RowOf(Matrix(meets_, rows, count), 0, h, row);
  float* const along = RowOf(Matrix(along_, rows, count), 0, h, row);
  float* const meets_turned = RowOf(Matrix(meets_turned_, count, rows), 0, h, 0) + row;
  float* const along_turned = RowOf(Matrix(along_turned_, count, rows), 0, h, 0) + row;
  std::array<double, kLevelsChunk> given{};  // to L, by each pair
  std::array<double, kLevelsInChunk + 1> d_weights{};
  double passed = double{p_.scale};
  for (int64_t j = count; j-- > 0;) {
    double of_meets = 0, of_along = 0;
    if (j < i && passed != 0) {
      passed *= own.Gate(t_ + j + 1);
      const uint64_t differs = static_cast<uint64_t>((span_.first + i) ^ (span_.first + j));
      const int64_t level = std::bit_width(differs);
      const double weight = double{p_.options.level_weights(b_, head, t_ + i, level)};
      const double factor = passed * own.Beta(t_ + j);
      const double both = double{meets[j]} * double{along[j]};
      d_weights[static_cast<size_t>(level)] += factor * both;
      own.d_beta[static_cast<size_t>(t_ + j)] += passed * weight * both;
      given[static_cast<size_t>(j)] = weight * factor * both;
      of_meets = weight * factor * double{meets[j]};
      of_along = weight * factor * double{along[j]};
    }
    meets_turned[j * rows] = meets[j] = static_cast<float>(of_meets);
    along_turned[j * rows] = along[j] = static_cast<float>(of_along);
  }
  double sum = 0;
  for (int64_t j = 0; j < i; ++j) {
    sum += given[static_cast<size_t>(j)];
    own.d_decay[static_cast<size_t>(t_ + j + 1)] += sum;
  }
  const TensorView<float>& to = g_.gradients.d_level_weights;
  for (int64_t l = 1; l <= kLevelsInChunk && l < to.shape[3] && to.has_value(); ++l) {
    to(b_, head, t_ + i, l) += static_cast<float>(d_weights[static_cast<size_t>(l)]);
  }
}

void LevelsChunk::Add(int64_t h) const {
  const int64_t count = span_.size();
  const TensorView<float> queries = Matrix(d_queries_, p_.group * count, p_.head_dim);
  const TensorView<float> keys = Matrix(d_keys_, count, p_.head_dim);
  const TensorView<float> values = Matrix(d_values_, count, p_.head_dim_v);
  for (int64_t i = 0; i < count; ++i) {
    AddRow(g_.gradients.d_k, {b_, h, t_ + i}, 1, RowOf(keys, 0, h, i));
    AddRow(g_.gradients.d_v, {b_, h, t_ + i}, 1, RowOf(values, 0, h, i));
    for (int64_t n = 0; n < p_.group; ++n) {
      AddRow(g_.gradients.d_q, {b_, h * p_.group + n, t_ + i}, 1,
             RowOf(queries, 0, h, n * count + i));
    }
  }
}

}  // namespace heed
