// Based: the exponential of softmax attention, by its Taylor series to the second order.
//
// Source: Arora et al. 2024, arXiv:2402.18668.
#include <cmath>
#include <vector>

#include "recurrent.h"

namespace heed::reference::based {
namespace {

// One of each pair of equal products: sum x_i x_j y_i y_j / 2 over all i and j, twice those i < j.
std::vector<double> Taylor(const std::vector<double>& x) {
  std::vector<double> features = {1};
  features.insert(features.end(), x.begin(), x.end());
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = i; j < x.size(); ++j) {
      features.push_back(x[i] * x[j] * (i == j ? std::sqrt(0.5) : 1));
    }
  }
  return features;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r = Estimate(request);
  const double scale = ReadScale(request, qkv);
  r.feature_dim = 1 + qkv.head_dim + qkv.head_dim * (qkv.head_dim + 1) / 2;
  r.features = [&](std::vector<double> row, const Place& place) {
    const double sign = place.side == Side::kQuery && scale < 0 ? -1 : 1;
    for (double& x : row) x *= sign * std::sqrt(std::abs(scale));
    return Taylor(row);
  };
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::based
