// Gradients of differential attention: back through the sub-norm, the difference and both maps.
#include <algorithm>
#include <cmath>

#include "src/compose/backward_attention.h"
#include "src/compose/backward_request.h"
#include "src/compose/backward_rows.h"
#include "src/compose/compose_problem.h"
#include "src/compose/composed_request.h"
#include "src/compose/differential.h"

namespace heed {
namespace {

// One row of head_dim_v values.
struct DifferenceRow {
  const float* first;   // of the first map
  const float* second;  // of the second
  const float* d_out;
  float lambda;
  float* d_first;
  float* d_second;
  float* d_weight;  // what the row gives to norm_weight
};

// Both maps of a query without keys are 0: nothing that arrives counts.
bool IsZero(const DifferenceRow& row, int64_t width) {
  const auto zero = [](float x) { return x == 0; };
  return std::all_of(row.first, row.first + width, zero) &&
         std::all_of(row.second, row.second + width, zero);
}

// Writes the gradient of the difference to d_first. Returns that of lambda.
double RowBackward(const DifferentialOptions& o, const DifferenceRow& row, int64_t width) {
  const bool norm = o.sub_norm == SubNorm::kRms;
  const auto x = [&](int64_t d) {
    return static_cast<double>(row.first[d]) - static_cast<double>(row.lambda) * row.second[d];
  };
  const auto weight = [&](int64_t d) {
    return o.norm_weight.empty() ? 1.0 : static_cast<double>(o.norm_weight[static_cast<size_t>(d)]);
  };
  double squares = 0, along = 0;
  for (int64_t d = 0; d < width; ++d) {
    squares += x(d) * x(d);
    along += x(d) * weight(d) * static_cast<double>(row.d_out[d]);
  }
  const double mean = squares / static_cast<double>(width) + o.epsilon;
  const double factor = (1 - o.lambda_init) / std::sqrt(mean);
  const double pull = along / (mean * static_cast<double>(width));
  double d_lambda = 0;
  for (int64_t d = 0; d < width; ++d) {
    const double arriving = static_cast<double>(row.d_out[d]);
    const double d_x = norm ? factor * (weight(d) * arriving - x(d) * pull) : arriving;
    row.d_first[d] = static_cast<float>(d_x);
    row.d_second[d] = static_cast<float>(-static_cast<double>(row.lambda) * d_x);
    row.d_weight[d] = norm ? static_cast<float>(factor * x(d) * arriving) : 0.0f;
    d_lambda -= d_x * static_cast<double>(row.second[d]);
  }
  return d_lambda;
}

float ZeroRow(const DifferenceRow& row, int64_t width) {
  std::fill_n(row.d_first, width, 0.0f);
  std::fill_n(row.d_second, width, 0.0f);
  std::fill_n(row.d_weight, width, 0.0f);
  return 0;
}

// The same half of a gradient; absent stays absent.
StoredOutput HalfOf(TensorView<float> whole, int64_t half) {
  if (!whole.has_value()) return {};
  whole.shape[3] /= 2;
  whole.data += half * whole.shape[3];
  return whole;
}

class DifferenceBackward {
 public:
  explicit DifferenceBackward(const ComposedBackward& call)
      : call_(call),
        r_(ReadComposed(call.reader)),
        o_(ReadDifferential(call.reader, r_)),
        q_(Halved("q", r_.q)),
        k_(Halved("k", r_.k)),
        first_(q_.first, k_.first, r_.v, o_.attention, call.pool),
        second_(q_.second, k_.second, r_.v, o_.attention, call.pool) {}

  void Run() {
    const Extents& shape = first_.out().shape;
    const OwnedTensor d_first(shape), d_second(shape), d_weight(shape);
    const OwnedTensor d_lambda({shape[0], shape[1], shape[2], 1});
    const TensorView<const float> d_output = call_.d_output();
    ForEachRow(shape, call_.pool, [&](int64_t b, int64_t h, int64_t i) {
      const DifferenceRow row = {&first_.out()(b, h, i, 0),   &second_.out()(b, h, i, 0),
                                 &d_output(b, h, i, 0),       LambdaOf(o_, h),
                                 &d_first.view()(b, h, i, 0), &d_second.view()(b, h, i, 0),
                                 &d_weight.view()(b, h, i, 0)};
      d_lambda.view()(b, h, i, 0) = IsZero(row, shape[3])
                                        ? ZeroRow(row, shape[3])
                                        : static_cast<float>(RowBackward(o_, row, shape[3]));
    });
    MapsBackward(d_first.view(), d_second.view());
    SumOver(d_weight.view(), call_.Wanted("norm_weight"), call_.pool);
    SumOver(d_lambda.view(), LambdaGradient(), call_.pool);
  }

 private:
  void MapsBackward(const TensorView<float>& d_first, const TensorView<float>& d_second) {
    OptionSums sums(call_.WantedOptions(), call_.pool);
    const TensorView<float> d_q = call_.Wanted("q"), d_k = call_.Wanted("k"),
                            d_v = call_.Wanted("v");
    const OwnedTensor more = d_v.has_value() ? OwnedTensor(d_v.shape) : OwnedTensor();
    for (const int64_t half : {0, 1}) {
      AttentionGradients to = sums.Next();
      to.d_q = HalfOf(d_q, half);
      to.d_k = HalfOf(d_k, half);
      to.d_v = half == 0 ? d_v : more.view();
      (half == 0 ? first_ : second_).Backward(half == 0 ? d_first : d_second, to);
      sums.Add(to);
    }
    if (d_v.has_value()) AddRows(more.view(), d_v, call_.pool);
  }

  // One for each head, or one for all.
  TensorView<float> LambdaGradient() const {
    const TensorView<float> given = call_.Wanted("lambda");
    if (!given.has_value()) return {};
    return Contiguous(given.data, 1, given.size(), 1, 1);
  }

  const ComposedBackward& call_;
  ComposedRequest r_;
  DifferentialOptions o_;
  Halves q_, k_;
  KeptAttention first_, second_;
};

}  // namespace

void DifferentialBackward(const ComposedBackward& call) { DifferenceBackward(call).Run(); }

}  // namespace heed
