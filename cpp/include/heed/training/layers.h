// Layers with their way back: linear maps, embeddings, norms, feed-forward networks.
//
// Forward() returns rows that the layer owns, valid until its next Forward(). It remembers what it
// was given by address: the input must live, unchanged, until Backward(). Backward() takes the
// gradient that arrives at those rows, adds to the gradients of the parameters, and returns the
// gradient of the input, which the layer owns too. Layers refer to parameters of a ParameterSet,
// which must outlive them.
//
// All of them: Error(kShape | kRange | kOption) for what does not fit, before anything is written;
// `pool` or the default pool; the same bits for any number of threads. One layer is used by one
// thread at a time.
//
// Error(kMemory) may come at any time. It changes no value of a parameter, and what has thrown it
// may be called again. So it is with attention layers, blocks and models too. Of
//
//   a constructor   the set may keep parameters that it has added: start with a new set
//   Forward()       there is nothing to go back from: until another one returns, Backward() throws
//                   Error(kOption)
//   Backward()      parts may have been added to gradients: ParameterSet::ZeroGradients()
#ifndef HEED_TRAINING_LAYERS_H_
#define HEED_TRAINING_LAYERS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/layers.h"
#include "heed/thread_pool.h"
#include "heed/training/parameter.h"

namespace heed::training {

struct LinearLayerOptions {
  int64_t in_dim = 0;
  int64_t out_dim = 0;
  bool bias = false;
  // Standard deviation of the weights at the start; absent = 1 / sqrt(in_dim).
  std::optional<double> deviation{};
  float bias_start = 0;
};

// y = x W^T + b. Forward is heed::Linear(), and backward two products of the same kind:
// d_x = d_y W, dW = d_y^T x; db is the sum of the rows of d_y. 2 and 4 rows * in_dim * out_dim
// FLOPs.
class LinearLayer {
 public:
  // Adds `<name>.weight`, [out_dim, in_dim], and with bias `<name>.bias`, [out_dim].
  LinearLayer(ParameterSet& parameters, const std::string& name, const LinearLayerOptions& options);
  // Shares a matrix that another layer has: an output that is tied to the embedding.
  explicit LinearLayer(Parameter& weight);

  // x [rows, in_dim] to [rows, out_dim].
  const Matrix& Forward(const Matrix& x, ThreadPool* pool = nullptr);
  const Matrix& Backward(const Matrix& d_y, ThreadPool* pool = nullptr);

  // What Forward() returned, where the next step may work in place.
  Matrix& y() { return y_; }
  const Matrix& y() const { return y_; }

 private:
  void AddWeightGradient(const Matrix& d_y, ThreadPool* pool);

  Parameter* weight_;
  Parameter* bias_ = nullptr;
  const Matrix* x_ = nullptr;
  Matrix y_, d_x_, transposed_, product_;
};

// y_i = table[ids_i].
class EmbeddingLayer {
 public:
  // Adds `<name>.weight`, [count, dim].
  EmbeddingLayer(ParameterSet& parameters, const std::string& name, int64_t count, int64_t dim,
                 double deviation);

  // Throws Error(kRange) for an id outside [0, count).
  const Matrix& Forward(std::span<const int32_t> ids, ThreadPool* pool = nullptr);
  // Adds the rows of d_y to those of the table that were read, in ascending order. Ids have no
  // gradient.
  void Backward(const Matrix& d_y, ThreadPool* pool = nullptr);

  Parameter& table() { return *table_; }

 private:
  Parameter* table_;
  std::vector<int32_t> ids_;
  Matrix y_;
};

struct NormLayerOptions {
  int64_t dim = 0;
  Norm norm = Norm::kRms;
  double epsilon = 1e-5;  // > 0 and finite
};

// Layer norm or RMS norm of `dim` values at a time: rows may hold several such groups side by side,
// which share the factors (the outputs of heads). Moments and their gradients are float64.
//   with n = (x - mean) r, r = 1 / sqrt(variance + epsilon), g = d_y * weight:
//   d_x = r (g - mean(g) - n mean(g n)), for RMS without mean(g)
// Source: Ba et al. 2016, arXiv:1607.06450; Zhang & Sennrich 2019, arXiv:1910.07467.
class NormLayer {
 public:
  // Adds `<name>.weight`, [dim], ones, and for Norm::kLayer `<name>.bias`, zeros.
  NormLayer(ParameterSet& parameters, const std::string& name, const NormLayerOptions& options);

  // x [rows, dim] or [rows, groups * dim].
  const Matrix& Forward(const Matrix& x, ThreadPool* pool = nullptr);
  const Matrix& Backward(const Matrix& d_y, ThreadPool* pool = nullptr);

 private:
  NormLayerOptions options_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
  const Matrix* x_ = nullptr;
  Matrix y_, d_x_;
};

struct FeedForwardOptions {
  int64_t embed_dim = 0;
  int64_t ff_dim = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool bias = false;
  std::optional<double> down_deviation{};  // absent = 1 / sqrt(ff_dim)
};

// W_down act(W_up x), or with a gate W_down (act(W_gate x) * (W_up x)): SwiGLU with kSilu.
// Source: Shazeer 2020, arXiv:2002.05202.
class FeedForward {
 public:
  // Adds `<name>.up_proj`, `<name>.down_proj` and, gated, `<name>.gate_proj`.
  FeedForward(ParameterSet& parameters, const std::string& name, const FeedForwardOptions& options);
  FeedForward(const FeedForward&) = delete;  // refers to its own rows
  FeedForward& operator=(const FeedForward&) = delete;

  const Matrix& Forward(const Matrix& x, ThreadPool* pool = nullptr);
  const Matrix& Backward(const Matrix& d_y, ThreadPool* pool = nullptr);

 private:
  FeedForwardOptions options_;
  LinearLayer up_, down_;
  std::optional<LinearLayer> gate_;
  const Matrix* ups_ = nullptr;    // W_up x
  const Matrix* gates_ = nullptr;  // W_gate x, or W_up x
  Matrix activated_, hidden_, d_up_, d_gate_, d_x_;
};

}  // namespace heed::training

#endif  // HEED_TRAINING_LAYERS_H_
