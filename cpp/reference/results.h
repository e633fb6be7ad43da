// What a mechanism of the exact family returns, filled row by row.
#ifndef HEED_REFERENCE_RESULTS_H_
#define HEED_REFERENCE_RESULTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "inputs.h"
#include "relative.h"

namespace heed::reference {

// A row of the score matrix at each of its stages. In `biased`, a key that is not kept is -inf.
struct ScoreRow {
  explicit ScoreRow(int64_t kv_len) : raw(kv_len), capped(kv_len), biased(kv_len) {}
  std::vector<double> raw, capped, biased;
};

// output [batch, num_heads, q_len, head_dim_v] always; lse [batch, num_heads, q_len], weights and
// scores [batch, num_heads, q_len, kv_len] as return_lse, return_weights and return_scores say.
class ExactResults {
 public:
  ExactResults(const Request& request, const Qkv& qkv);

  bool wants_lse() const { return wants_lse_; }
  bool wants_scores() const { return !score_stage_.empty(); }

  // Stores what query i of head h found, and its output: sum over kept keys of weight * v. A weight
  // of -inf is 0 and leaves its key out of the sum, like one that is not kept. `lse` is the log of
  // the denominator; -inf marks an empty row, whose output is zeros. `dropped` are the weights that
  // the values are summed with.
  void SetRow(int64_t b, int64_t h, int64_t i, const ScoreRow& scores,
              std::span<const double> weights, std::span<const double> dropped, double lse);

  // Hands over the results, "output" first.
  std::vector<Result> Take();

 private:
  void Aggregate(int64_t b, int64_t h, int64_t i, const ScoreRow& scores,
                 std::span<const double> weights);

  const Qkv& qkv_;
  Relative relative_;
  bool wants_lse_;
  bool wants_weights_;
  std::string score_stage_;  // "", "raw", "capped" or "biased"
  Result output_, lse_, weights_, scores_;
};

}  // namespace heed::reference

#endif  // HEED_REFERENCE_RESULTS_H_
