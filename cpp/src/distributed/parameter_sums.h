// Gradients of what all ranks share: sums over the parts of each rank, and over ranks.
#ifndef HEED_SRC_DISTRIBUTED_PARAMETER_SUMS_H_
#define HEED_SRC_DISTRIBUTED_PARAMETER_SUMS_H_

#include <cstdint>
#include <vector>

#include "heed/distributed.h"
#include "heed/gradient.h"
#include "src/gradient/problem.h"

namespace heed::distributed {

// Of slopes, sinks, tables and weights: those that `gradients` asks for.
class ParameterSums {
 public:
  ParameterSums(const AttentionOptions& options, const AttentionGradients& gradients,
                int num_ranks);

  // Gives the gradients of a part places of their own, from which Add() takes them.
  void Place(AttentionGradients& part);
  void Add();

  // Sinks are no part's: their gradient is that of the rows of the whole,
  // -sum of exp(sink - lse) (d_out . out - d_lse).
  void AddSinks(const GradientProblem& p);

  // Sums over ranks, in their order.
  void Gather(Communicator& communicator);
  void Write(const AttentionGradients& gradients) const;

  // How many numbers they are.
  int64_t Count() const { return static_cast<int64_t>(totals_.size()); }

  // Which are asked for, a bit each.
  static int64_t Wanted(const AttentionGradients& gradients);

 private:
  struct Sum {
    bool of_parts = true;
    Extents shape{};
    size_t begin = 0;  // among the totals
    std::vector<float> part;
  };
  void Make(Sum& sum, const Extents& shape);

  // As kTensorGradients, and then kVectorGradients; empty where not asked for.
  std::vector<Sum> sums_;
  std::vector<double> totals_, gathered_;
};

}  // namespace heed::distributed

#endif  // HEED_SRC_DISTRIBUTED_PARAMETER_SUMS_H_
