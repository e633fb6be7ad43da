// Sums of gradients that batch entries, heads or tokens share: of each KV head apart, then added in
// ascending order.
#ifndef HEED_SRC_RECURRENT_BACKWARD_SUMS_H_
#define HEED_SRC_RECURRENT_BACKWARD_SUMS_H_

#include <span>

#include "src/parallel/dry_run.h"
#include "src/recurrent/backward_problem.h"

namespace heed {

// Sums of one KV head of one batch entry; empty where nobody wants them.
struct HeadGradients {
  std::span<double> log_decay, beta;  // cells, where tokens, channels, heads or entries share them
  std::span<double> skip;             // [query head of the group]
  std::span<double> bonus;            // [query head of the group][head_dim]
  std::span<double> norm_weight, norm_bias;  // [head_dim]
  std::span<double> position_rate;           // [mini_batch]
};

class SharedSums {
 public:
  explicit SharedSums(const RecurrentBackwardProblem& g);

  // `unit`: batch entry * num_kv_heads + KV head.
  HeadGradients Of(int64_t unit);
  // The sums over units, to the caller.
  void Write();

 private:
  int64_t Units() const { return p_.batch * p_.num_kv_heads; }
  std::span<double> Part(ScratchVector<double>& sums, int64_t unit) const;
  float OverBatch(ScratchVector<double>& sums, int64_t head, int64_t each, int64_t at) const;
  void WriteFactor(const FactorGradient& factor, ScratchVector<double>& sums) const;
  void WriteNorm(std::span<float> to, ScratchVector<double>& sums) const;

  const RecurrentBackwardProblem& g_;
  const RecurrentProblem& p_;
  ScratchVector<double> log_decay_, beta_, skip_, bonus_, norm_weight_, norm_bias_, position_rate_;
};

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_BACKWARD_SUMS_H_
