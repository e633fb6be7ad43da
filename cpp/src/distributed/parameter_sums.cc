#include "src/distributed/parameter_sums.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <string_view>

#include "src/distributed/agreement.h"

namespace heed::distributed {
namespace {

constexpr size_t kTensors = std::size(kTensorGradients);
constexpr size_t kVectors = std::size(kVectorGradients);

double ToDouble(const StoredTensor& tensor, const void* row, int64_t d) {
  switch (tensor.dtype) {
    case DType::kFloat16:
      return static_cast<double>(ToFloat(static_cast<const Float16*>(row)[d]));
    case DType::kBFloat16:
      return static_cast<double>(ToFloat(static_cast<const BFloat16*>(row)[d]));
    default:
      return static_cast<double>(static_cast<const float*>(row)[d]);
  }
}

// d_out . out - d_lse
double RowTerm(const GradientProblem& p, int64_t b, int64_t h, int64_t i) {
  const void* out = p.out.Row(b, h, i);
  const void* d_out = p.d_out.Row(b, h, i);
  double sum = 0;
  for (int64_t d = 0; d < p.out.shape[3]; ++d) {
    sum += ToDouble(p.out, out, d) * ToDouble(p.d_out, d_out, d);
  }
  const TensorView<const float>& d_lse = p.gradients.d_lse;
  return d_lse.has_value() ? sum - static_cast<double>(d_lse(b, h, i, 0)) : sum;
}

TensorView<float> View(std::vector<float>& values, const Extents& shape) {
  return Contiguous(values.data(), shape[0], shape[1], shape[2], shape[3]);
}

// Writes values that lie one after the other.
void WriteAll(const double* values, const TensorView<float>& to) {
  for (int64_t a = 0; a < to.shape[0]; ++a) {
    for (int64_t b = 0; b < to.shape[1]; ++b) {
      for (int64_t c = 0; c < to.shape[2]; ++c) {
        for (int64_t d = 0; d < to.shape[3]; ++d) {
          to(a, b, c, d) = static_cast<float>(*values++);
        }
      }
    }
  }
}

}  // namespace

ParameterSums::ParameterSums(const AttentionOptions& options, const AttentionGradients& gradients,
                             int num_ranks)
    : sums_(kTensors + kVectors) {
  for (size_t n = 0; n < kTensors; ++n) {
    const TensorView<float>& wanted = gradients.*kTensorGradients[n].gradient;
    if (wanted.has_value()) Make(sums_[n], (options.*kTensorGradients[n].option).shape);
  }
  for (size_t n = 0; n < kVectors; ++n) {
    const std::span<float>& wanted = gradients.*kVectorGradients[n].gradient;
    if (wanted.empty()) continue;
    Make(sums_[kTensors + n], {1, 1, 1, static_cast<int64_t>(wanted.size())});
    sums_[kTensors + n].of_parts = std::string_view(kVectorGradients[n].name) != "sinks";
  }
  gathered_.resize(totals_.size() * static_cast<size_t>(num_ranks));
}

void ParameterSums::Make(Sum& sum, const Extents& shape) {
  sum.shape = shape;
  const size_t count = static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
  sum.part.assign(count, 0.0f);
  sum.begin = totals_.size();
  totals_.resize(sum.begin + count, 0.0);
}

void ParameterSums::Place(AttentionGradients& part) {
  for (size_t n = 0; n < kTensors; ++n) {
    Sum& sum = sums_[n];
    part.*kTensorGradients[n].gradient =
        sum.part.empty() ? TensorView<float>{} : View(sum.part, sum.shape);
  }
  for (size_t n = 0; n < kVectors; ++n) {
    Sum& sum = sums_[kTensors + n];
    part.*kVectorGradients[n].gradient =
        sum.of_parts ? std::span<float>(sum.part) : std::span<float>();
  }
}

void ParameterSums::Add() {
  for (const Sum& sum : sums_) {
    if (!sum.of_parts) continue;
    for (size_t n = 0; n < sum.part.size(); ++n) {
      totals_[sum.begin + n] += static_cast<double>(sum.part[n]);
    }
  }
}

void ParameterSums::AddSinks(const GradientProblem& p) {
  const std::span<const float> sinks = p.attention.options.sinks;
  for (size_t n = 0; n < kVectors; ++n) {
    const Sum& sum = sums_[kTensors + n];
    if (sum.of_parts || sum.part.empty()) continue;
    const Extents& rows = p.lse.shape;
    for (int64_t b = 0; b < rows[0]; ++b) {
      for (int64_t h = 0; h < rows[1]; ++h) {
        const size_t head = static_cast<size_t>(h);
        if (std::isinf(sinks[head])) continue;  // of weight 0, whatever else the row has
        for (int64_t i = 0; i < rows[2]; ++i) {
          const double lse = static_cast<double>(p.lse(b, h, i, 0));
          if (std::isinf(lse) && lse < 0) continue;
          totals_[sum.begin + head] -=
              std::exp(static_cast<double>(sinks[head]) - lse) * RowTerm(p, b, h, i);
        }
      }
    }
  }
}

void ParameterSums::Gather(Communicator& communicator) {
  AllGather<double>(communicator, totals_, gathered_);
  std::fill(totals_.begin(), totals_.end(), 0.0);
  for (size_t n = 0; n < gathered_.size(); ++n) totals_[n % totals_.size()] += gathered_[n];
}

void ParameterSums::Write(const AttentionGradients& gradients) const {
  for (size_t n = 0; n < sums_.size(); ++n) {
    const double* total = totals_.data() + sums_[n].begin;
    if (sums_[n].part.empty()) continue;
    if (n < kTensors) {
      WriteAll(total, gradients.*kTensorGradients[n].gradient);
      continue;
    }
    for (float& value : gradients.*kVectorGradients[n - kTensors].gradient) {
      value = static_cast<float>(*total++);
    }
  }
}

int64_t ParameterSums::Wanted(const AttentionGradients& gradients) {
  int64_t bits = 0, bit = 1;
  for (const TensorGradient& tensor : kTensorGradients) {
    if ((gradients.*tensor.gradient).has_value()) bits |= bit;
    bit <<= 1;
  }
  for (const VectorGradient& vector : kVectorGradients) {
    if (!(gradients.*vector.gradient).empty()) bits |= bit;
    bit <<= 1;
  }
  return bits;
}

}  // namespace heed::distributed
