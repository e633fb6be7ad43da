// How large the terms are that a score is summed from: what its rounding errors grow with.
#ifndef HEED_TESTS_SCORE_SIZE_H_
#define HEED_TESTS_SCORE_SIZE_H_

#include <vector>

#include "attention_case.h"

namespace heed::testing {

// The largest absolute value of a tensor.
double LargestOf(const Buffer<float>& buffer);

// The sum of the absolute values of the terms of the score of each pair, bias and ALiBi included.
// What depends on a query or on a key alone is summed once; the case must outlive this.
class ScoreSizes {
 public:
  explicit ScoreSizes(const AttentionCase& c);

  double operator()(int64_t b, int64_t h, int64_t i, int64_t j) const;

 private:
  void PrepareDot();
  void PrepareBilinear();
  void PrepareAdditive();
  double DistanceSize(int64_t b, int64_t h, int64_t i, int64_t j) const;
  double CosineSize(int64_t h) const;
  double GateSize(int64_t b, int64_t h, int64_t i, int64_t j) const;

  size_t QueryRow(int64_t b, int64_t h, int64_t i) const;
  size_t KeyRow(int64_t b, int64_t h, int64_t j) const;
  template <class Visit>
  void ForEachQuery(const Visit& visit) const;
  template <class Visit>
  void ForEachKey(const Visit& visit) const;

  const AttentionCase& c_;
  int64_t head_dim_k_;
  double constant_ = 0;  // of every pair
  // The size of a pair is query_size_ + key_size_ + the product of dim_ numbers each, one row per
  // query and one per query head and key. Empty for distances and cosines.
  size_t dim_ = 0;
  std::vector<double> query_, key_, query_size_, key_size_;
};

}  // namespace heed::testing

#endif  // HEED_TESTS_SCORE_SIZE_H_
