#include "gradient_oracle.h"

#include <cmath>
#include <utility>

#include "gtest/gtest.h"

namespace heed::testing {
namespace {

// The error of a central difference is about kStep^2 in itself and 2^-53 / kStep by rounding.
constexpr double kStep = 2e-5;

std::vector<double> ToDoubles(const AnyTensor& tensor) {
  Extents shape = {1, 1, 1, 1}, strides = {};
  for (size_t axis = 0; axis < static_cast<size_t>(tensor.rank); ++axis) {
    shape[axis] = tensor.shape[axis];
    strides[axis] = tensor.strides[axis];
  }
  const TensorView<const float> view = {static_cast<const float*>(tensor.data), shape, strides};
  std::vector<double> values;
  for (int64_t a = 0; a < shape[0]; ++a) {
    for (int64_t b = 0; b < shape[1]; ++b) {
      for (int64_t c = 0; c < shape[2]; ++c) {
        for (int64_t d = 0; d < shape[3]; ++d) {
          values.push_back(static_cast<double>(view(a, b, c, d)));
        }
      }
    }
  }
  return values;
}

}  // namespace

GradientOracle::GradientOracle(const Request& request, Values cotangents)
    : request_(request), cotangents_(std::move(cotangents)) {
  for (NamedTensor& input : request_.inputs) {
    AnyTensor& tensor = input.tensor;
    if (tensor.dtype != DType::kFloat32) continue;
    std::vector<double>& values = inputs_[input.name] = ToDoubles(tensor);
    const std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
    tensor = ContiguousTensor(DType::kFloat64, values.data(), shape);
  }
}

double GradientOracle::Value() const {
  const Values results = RunOracle(request_);
  double sum = 0;
  for (const auto& [name, cotangent] : cotangents_) {
    const std::vector<double>& result = results.at(name);
    for (size_t n = 0; n < result.size(); ++n) {
      // The lse of an empty row is -inf, whatever the inputs are.
      if (cotangent[n] != 0 && std::isfinite(result[n])) sum += cotangent[n] * result[n];
    }
  }
  return sum;
}

void GradientOracle::Move(const Values& directions, double step) {
  for (const auto& [name, direction] : directions) {
    std::vector<double>& input = inputs_.at(name);
    for (size_t n = 0; n < input.size(); ++n) input[n] += step * direction[n];
  }
}

double GradientOracle::Along(const Values& directions) {
  const Values before = inputs_;
  const auto restore = [&] {
    for (auto& [name, values] : inputs_)
      std::copy(before.at(name).begin(), before.at(name).end(), values.begin());
  };
  Move(directions, kStep);
  const double up = Value();
  restore();
  Move(directions, -kStep);
  const double down = Value();
  restore();
  return (up - down) / (2 * kStep);
}

std::vector<double> GradientOracle::Gradient(const std::string& input) {
  std::vector<double>& values = inputs_.at(input);
  std::vector<double> gradient;
  for (double& x : values) {
    const double at = x;
    x = at + kStep;
    const double up = Value();
    x = at - kStep;
    const double down = Value();
    x = at;
    gradient.push_back((up - down) / (2 * kStep));
  }
  return gradient;
}

void ExpectAlong(GradientOracle& oracle, const std::string& input,
                 const std::vector<double>& gradient, double bound, Random& random,
                 const std::string& what) {
  Values direction;
  double along = 0, total = 0;
  for (const double g : gradient) {
    const double x = static_cast<double>(random.Normal());
    direction[input].push_back(x);
    along += g * x;
    total += std::abs(g * x);
  }
  EXPECT_NEAR(along, oracle.Along(direction), bound * total + 1e-7) << input << ": " << what;
}

}  // namespace heed::testing
