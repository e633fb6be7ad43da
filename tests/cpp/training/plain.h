// The training kit once more: float64, plain loops, no gradients. What finite differences are taken
// of.
#ifndef HEED_TESTS_TRAINING_PLAIN_H_
#define HEED_TESTS_TRAINING_PLAIN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "heed/training.h"
#include "random.h"

namespace heed::testing {

// Parameters and inputs by name.
using Tensors = std::map<std::string, std::vector<double>>;

// Rows of a sequence, [rows, dim].
struct Plain {
  int64_t dim = 0;
  std::vector<double> values;

  int64_t rows() const { return static_cast<int64_t>(values.size()) / dim; }
  double& operator()(int64_t i, int64_t c) { return values[static_cast<size_t>(i * dim + c)]; }
  double operator()(int64_t i, int64_t c) const { return values[static_cast<size_t>(i * dim + c)]; }
};

Plain PlainLinear(const Tensors& t, const std::string& name, const Plain& x);
Plain PlainNorm(const Tensors& t, const std::string& name, Norm norm, const Plain& x);
double PlainActivation(Activation activation, double x);
Plain PlainFeedForward(const Tensors& t, const std::string& name,
                       const training::FeedForwardOptions& options, const Plain& x);
// The mechanism itself is the oracle's (heed/reference.h).
Plain PlainAttention(const Tensors& t, const std::string& name,
                     const training::AttentionLayerOptions& options, const Plain& x,
                     const Plain& context, const training::SequenceShape& shape);
// `context` may be empty.
Plain PlainBlock(const Tensors& t, const std::string& name, const training::BlockOptions& options,
                 const Plain& x, const Plain& context, const training::SequenceShape& shape,
                 int64_t context_len);
double PlainCrossEntropy(const Plain& logits, const std::vector<int32_t>& targets);

// Sum of the products of the elements.
double Dot(const Plain& a, const training::Matrix& b);

training::Matrix RandomMatrix(int64_t rows, int64_t dim, uint64_t seed);
Plain ToPlain(const training::Matrix& matrix);
Tensors ToTensors(const training::ParameterSet& parameters);
// Replaces all values by normal numbers of this deviation: no gradient then is small by chance.
void Scramble(training::ParameterSet& parameters, uint64_t seed, double deviation);

// Compares gradients with central differences of `value`, element by element; `bound` is relative
// to the largest element of the same gradient.
void ExpectGradient(const std::function<double(const Tensors&)>& value, Tensors at,
                    const std::string& name, const float* gradient, double bound);
// Of all parameters.
void ExpectGradients(const std::function<double(const Tensors&)>& value, const Tensors& at,
                     const training::ParameterSet& parameters, double bound);

}  // namespace heed::testing

#endif  // HEED_TESTS_TRAINING_PLAIN_H_
