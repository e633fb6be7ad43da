// What is trained: named tensors with their gradients, and the rows that flow between layers.
#ifndef HEED_TRAINING_PARAMETER_H_
#define HEED_TRAINING_PARAMETER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "heed/tensor.h"

namespace heed::training {

// Rows of floats that own their memory, [rows, dim], contiguous. Layers give and take these; the
// rows of a batch of sequences stand one after the other, [batch * len, dim].
class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t dim) { Resize(rows, dim); }
  // Copies. Throws Error(kMemory).
  Matrix(const Matrix& from) { *this = from; }
  Matrix& operator=(const Matrix& from);
  Matrix(Matrix&&) noexcept = default;
  Matrix& operator=(Matrix&&) noexcept = default;

  // Elements are then unspecified. Allocates only where more are needed than ever before. Throws
  // Error(kRange) for negative extents, Error(kMemory); the rows stay as they are then.
  void Resize(int64_t rows, int64_t dim);
  void Fill(float value);

  int64_t rows() const { return rows_; }
  int64_t dim() const { return dim_; }
  int64_t size() const { return rows_ * dim_; }
  float* data() { return values_.data(); }
  const float* data() const { return values_.data(); }
  float* Row(int64_t i) { return values_.data() + i * dim_; }
  const float* Row(int64_t i) const { return values_.data() + i * dim_; }
  // [1, 1, rows, dim].
  TensorView<float> View() { return Contiguous(data(), 1, 1, rows_, dim_); }
  TensorView<const float> View() const { return Contiguous(data(), 1, 1, rows_, dim_); }

 private:
  int64_t rows_ = 0, dim_ = 0;
  std::vector<float> values_;
};

// A tensor that is trained. Layers add to `gradient`; an optimiser reads it and writes `value`.
struct Parameter {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;
  std::vector<float> value, gradient;
  // Whether weight decay applies: to matrices, not to vectors (norms and biases).
  bool decays() const { return shape.size() > 1; }
};

// How a parameter begins: `mean` plus normal numbers of this standard deviation.
struct Initial {
  float mean = 0;
  double deviation = 0;
};

// The parameters of a model in the order in which they were added. References stay valid.
class ParameterSet {
 public:
  // The numbers of a parameter depend on the seed, on its name and on nothing else: another layer
  // changes none of them. Words of Philox-4x32-10 (Salmon et al. 2011), key = seed, counter =
  // (element / 4, 0, the two halves of the name's 64-bit FNV-1a hash), made normal by Box and
  // Muller in float64.
  // Throws Error(kMemory). Copies and moves throw what those of std::deque do.
  explicit ParameterSet(uint64_t seed);

  // Throws Error(kOption) for a name that is taken, Error(kShape) for an extent below 1,
  // Error(kMemory); the set stays as it is then.
  Parameter& Add(const std::string& name, const std::vector<int64_t>& shape,
                 const Initial& initial);

  // nullptr where there is none.
  Parameter* Find(std::string_view name);
  const Parameter* Find(std::string_view name) const;

  void ZeroGradients();

  // Elements of all parameters together.
  int64_t NumElements() const;

  std::deque<Parameter>::iterator begin() { return parameters_.begin(); }
  std::deque<Parameter>::iterator end() { return parameters_.end(); }
  std::deque<Parameter>::const_iterator begin() const { return parameters_.begin(); }
  std::deque<Parameter>::const_iterator end() const { return parameters_.end(); }

 private:
  uint64_t seed_;
  std::deque<Parameter> parameters_;
};

}  // namespace heed::training

#endif  // HEED_TRAINING_PARAMETER_H_
