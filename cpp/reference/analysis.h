// The float64 oracle of heed/analysis.h: plain loops over whole matrices of weights.
#ifndef HEED_REFERENCE_ANALYSIS_H_
#define HEED_REFERENCE_ANALYSIS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "heed/request.h"

namespace heed::reference {

// The weights of a request of the exact family, [batch, num_heads, q_len, kv_len].
struct WeightMaps {
  int64_t batch = 0, num_heads = 0, q_len = 0, kv_len = 0;
  std::vector<double> weights;

  std::span<const double> Row(int64_t b, int64_t h, int64_t i) const {
    const int64_t at = ((b * num_heads + h) * q_len + i) * kv_len;
    return std::span(weights).subspan(static_cast<size_t>(at), static_cast<size_t>(kv_len));
  }
  std::span<const double> Map(int64_t b, int64_t h) const {
    const int64_t at = (b * num_heads + h) * q_len * kv_len;
    return std::span(weights).subspan(static_cast<size_t>(at), static_cast<size_t>(q_len * kv_len));
  }
};

// Runs the request's mechanism for its weights.
WeightMaps Weights(const Request& request);

// -sum p log p, 0 log 0 = 0.
double Entropy(std::span<const double> row);
// sum p |position - j|.
double ExpectedDistance(std::span<const double> row, int64_t position);
// Indices by descending weight, ties to the lower index; only weights above 0.
std::vector<int64_t> Ranking(std::span<const double> row);
// sum_i p[i, j] for every j.
std::vector<double> ColumnSums(const WeightMaps& maps, int64_t b, int64_t h);

double Cosine(std::span<const double> a, std::span<const double> b);
double Frobenius(std::span<const double> a, std::span<const double> b);
// Mean over rows of row_len.
double JensenShannon(std::span<const double> a, std::span<const double> b, int64_t row_len);

// residual I + (1 - residual) mean_h A_h of a batch entry, [len, len].
std::vector<double> MixedMap(const WeightMaps& maps, int64_t b, double residual);
// a b of two [len, len] matrices.
std::vector<double> Product(std::span<const double> a, std::span<const double> b, int64_t len);

// Largest flow from token `source` above the last layer to token `sink` below the first;
// capacities [layers, len, len]. Augmenting paths, shortest first (Edmonds & Karp 1972).
double MaxFlow(std::span<const double> capacities, int64_t layers, int64_t len, int64_t source,
               int64_t sink);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_ANALYSIS_H_
