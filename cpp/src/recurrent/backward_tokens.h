// Backward token by token, for rules that have no chunks backwards: rows of a state, and
// the way back to the states before and after each token.
#ifndef HEED_SRC_RECURRENT_BACKWARD_TOKENS_H_
#define HEED_SRC_RECURRENT_BACKWARD_TOKENS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/parallel/dry_run.h"
#include "src/recurrent/backward_problem.h"
#include "src/recurrent/backward_sums.h"

namespace heed {

// One KV head of one batch entry.
class HeadBackward {
 public:
  HeadBackward(const RecurrentBackwardProblem& g, int64_t unit, const HeadGradients& sums);

  int64_t Length() const { return p_.KeyLength(b_); }
  void LoadInitialState(float* state) const;

 protected:
  int64_t FirstHead() const { return h_ * p_.group; }
  double Beta(int64_t t) const;
  // What the state decays by before token t writes.
  double Decay(int64_t t, int64_t c) const;
  // What arrives at the state after the last token, and at the first one.
  void LoadArriving(float* d_state) const;
  void StoreInitial(const float* d_state) const;
  // Tokens beyond the length have gradients of 0.
  void ClearBeyondLength() const;

  const RecurrentBackwardProblem& g_;
  const RecurrentProblem& p_;
  const RecurrentGradients& to_;
  HeadGradients sums_;
  int64_t b_, h_;

 private:
  void Load(const TensorView<const float>& from, float* to) const;
};

class TokenStates;

// One whose tokens change a state one after the other.
class TokenRule : public HeadBackward {
 public:
  using HeadBackward::HeadBackward;
  virtual ~TokenRule() = default;

  // The state after token t from the one before it, whose memory it may be.
  virtual void Advance(int64_t t, const float* before, float* after) = 0;
  // The gradients of token t, from the states before and after it; what arrives at the first is
  // kept.
  virtual void Retreat(int64_t t, const float* before, const float* after) = 0;
  // Queries that read the last state alone.
  virtual void ReadLast(const float* state) = 0;

 protected:
  // All tokens, through states that are run through again; `d_state` is as large as one.
  void RunTokens(TokenStates& states, float* d_state);
};

// The states of a worker: one for every 2048 tokens, for every 32 of such a segment, and for every
// token of such a block. The state before a token is at hand after three passes of forward.
class TokenStates {
 public:
  TokenStates(size_t state_size, int64_t len);

  // Calls ReadLast(), then Retreat() for all tokens of the rule, from the last to the first.
  void Reverse(TokenRule& rule);

 private:
  void Reverse(TokenRule& rule, size_t level, int64_t first, int64_t end);

  size_t size_;
  ScratchVector<float> state_;
  std::array<ScratchVector<float>, 3> kept_;
};

// Rule(g, unit, sums, memory).Run() for each KV head of each batch entry, with memory for each
// worker.
template <class Rule, class Memory>
void RunHeads(const RecurrentBackwardProblem& g, ThreadPool& pool) {
  SharedSums sums(g);
  std::vector<std::unique_ptr<Memory>> workers;
  const int64_t tasks = g.forward.batch * g.forward.num_kv_heads;
  for (int w = 0; w < pool.NumThreads() && tasks > 0; ++w) {
    workers.push_back(std::make_unique<Memory>(g.forward));
  }
  if (DryRun::Current() != nullptr) return;
  pool.Run(tasks, [&](int64_t unit, int worker) {
    Rule(g, unit, sums.Of(unit), *workers[static_cast<size_t>(worker)]).Run();
  });
  sums.Write();
}

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_BACKWARD_TOKENS_H_
