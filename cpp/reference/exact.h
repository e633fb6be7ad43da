// What all mechanisms of the exact family share: modifiers, keep rules, sums over values. A
// mechanism brings the score of a pair and the normaliser of a row.
#ifndef HEED_REFERENCE_EXACT_H_
#define HEED_REFERENCE_EXACT_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "inputs.h"

namespace heed::reference {

// One row of the score matrix.
struct RowPlace {
  int64_t b, h, i;
};

// The score of query (b, h, i) and key j, after the scale.
using PairScore = std::function<double(int64_t b, int64_t h, int64_t i, int64_t j)>;

// Replaces a row of scores, -inf where a key is not kept, by weights, and returns the log of the
// denominator: -inf for an empty row, any other number where a denominator does not exist. A weight
// of -inf leaves the key out as if it were not kept.
using RowNormalize = std::function<double(const RowPlace& place, std::span<double> row)>;

// Runs score, softcap (Gemma 2, arXiv:2408.00118), bias, ALiBi (Press et al. 2021,
// arXiv:2108.12409), keep rules, normalize, the user's function on weights and the sum over values,
// in this order, with whatever options the request has.
std::vector<Result> RunExact(const Request& request, const Qkv& qkv, const PairScore& score,
                             const RowNormalize& normalize);

// A list with one value per query head; empty when the request does not have it.
std::vector<double> ReadPerHead(const Request& request, const char* name, const Qkv& qkv);

// The parameter `scale`, or 1 / sqrt(head_dim).
double ReadScale(const Request& request, const Qkv& qkv);

// One value or a list, as an input or as a parameter; empty when the request has neither. All
// values are > 0 and finite.
std::vector<double> ReadPositive(const Request& request, const std::string& name);

// The input `sinks`: one logit per query head, finite or -inf; empty when the request has none.
std::vector<double> ReadSinks(const Request& request, const Qkv& qkv);

// Refuses return_lse and sinks, for normalisers without a softmax denominator.
void RefuseDenominator(const Request& request, const char* normalize);

// Whether the row sees no key.
bool IsEmpty(std::span<const double> row);

// Whether a score of the row is NaN or +inf, or NaN alone.
bool HasNanOrInfinity(std::span<const double> row);
bool HasNan(std::span<const double> row);

// Makes the weights of all keys that are kept NaN: what is left of a row that is lost.
void LoseRow(std::span<double> row);

// n^-length_power for a row of n visible keys.
double LengthFactor(const Request& request, std::span<const double> row);

// The parts that mechanisms bring, each defined in the mechanism's own file.
PairScore DotScore(const Request& request, const Qkv& qkv);              // scaled_dot_product.cc
PairScore DotScore(const Qkv& qkv, double scale);                        // scaled_dot_product.cc
PairScore AdditiveScore(const Request& request, const Qkv& qkv);         // additive.cc
PairScore BilinearScore(const Request& request, const Qkv& qkv);         // luong_general.cc
PairScore CosineScore(const Request& request, const Qkv& qkv);           // cosine.cc
PairScore SquaredDistanceScore(const Request& request, const Qkv& qkv);  // kernel_regression.cc
PairScore ZeroScore();                                                   // average.cc
RowNormalize SoftmaxNormalize(const Request& request, const Qkv& qkv);   // scaled_dot_product.cc
RowNormalize KernelSumNormalize(const Request& request);                 // kernel_regression.cc
RowNormalize Softmax1Normalize(const Request& request);                  // softmax1.cc
RowNormalize AverageNormalize(const Request& request);                   // average.cc
RowNormalize HardNormalize(const Request& request);                      // hard.cc
RowNormalize TopKNormalize(const Request& request, const Qkv& qkv);      // top_k.cc
RowNormalize SigmoidNormalize(const Request& request, const Qkv& qkv);   // sigmoid.cc
RowNormalize ReluNormalize(const Request& request);                      // relu.cc
RowNormalize ReluSquaredNormalize(const Request& request);               // relu_squared.cc
RowNormalize SparsemaxNormalize(const Request& request);                 // sparsemax.cc
RowNormalize Entmax15Normalize(const Request& request);                  // entmax15.cc
RowNormalize StickBreakingNormalize(const Request& request);             // stick_breaking.cc
RowNormalize CopeNormalize(const Request& request, const Qkv& qkv);      // cope.cc

}  // namespace heed::reference

#endif  // HEED_REFERENCE_EXACT_H_
