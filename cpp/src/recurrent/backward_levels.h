// What backward of log-linear attention shares: a KV head's own sums, and the levels within a
// chunk.
#ifndef HEED_SRC_RECURRENT_BACKWARD_LEVELS_H_
#define HEED_SRC_RECURRENT_BACKWARD_LEVELS_H_

#include <cstdint>

#include "src/compose/rows.h"
#include "src/recurrent/backward_tokens.h"

namespace heed {

// Tokens [first, end), by their positions.
struct TokenSpan {
  int64_t first, end;
  int64_t size() const { return end - first; }
};

// to = factor * row.
void ScaleRow(const float* row, int64_t width, float factor, float* to);
// to += factor * row, of a token; nothing where nobody wants it.
void AddRow(const TensorView<float>& to, const TokenPlace& at, float factor, const float* row);

// What a KV head of a batch entry adds up.
class LevelsHead : public HeadBackward {
 public:
  LevelsHead(const RecurrentBackwardProblem& g, int64_t unit, const HeadGradients& sums);

  using HeadBackward::Beta;
  double Gate(int64_t t) const { return gates_[static_cast<size_t>(t)]; }

  // Decays, and zeros to all that is added to.
  void Begin();
  // A token reads what it wrote itself, at level 0, and by its direct path.
  void Itself(int64_t t);
  // The gradients of decays and strengths, to where they are wanted.
  void Store();

  ScratchVector<double> d_decay, d_beta;  // [kv_len]

 private:
  ScratchVector<double> gates_;  // [kv_len]
};

// Tokens whose blocks are within a chunk.
inline constexpr int64_t kLevelsChunk = 64;
inline constexpr int64_t kLevelsInChunk = 6;

// The levels within a chunk, of all KV heads of a batch entry, as products over all pairs. With
// A = q . k, G = do . v and M = scale weight P beta of a pair, P the decays between them:
//
//   dq_i += M G k_j,  dk_j += M G q_i,  dv_j += M A do_i,  dM = A G
//
// What a pair gives to L passes the decays between its tokens.
class LevelsChunk {
 public:
  LevelsChunk(const RecurrentBackwardProblem& g, ThreadPool& pool);

  // Tokens of an aligned chunk, the first of them token t of batch entry b. False, and nothing is
  // done, if a number of theirs is not finite: zeros do not hide it from a product.
  bool Run(int64_t b, int64_t t, const TokenSpan& span, std::vector<LevelsHead>& heads);

 private:
  bool Load();
  bool LoadHead(int64_t h);
  void Pairs(int64_t h, LevelsHead& own) const;
  void PairsOf(int64_t row, int64_t head, int64_t i, int64_t h, LevelsHead& own) const;
  void Add(int64_t h) const;
  TensorView<float> Matrix(const OwnedTensor& memory, int64_t rows, int64_t cols) const;

  const RecurrentBackwardProblem& g_;
  const RecurrentProblem& p_;
  ThreadPool& pool_;
  // [1, num_kv_heads, group * tokens, width], and for each pair; turned: [tokens, group * tokens].
  OwnedTensor queries_, arriving_, d_queries_, meets_, along_, meets_turned_, along_turned_;
  OwnedTensor keys_, values_, d_keys_, d_values_;  // [1, num_kv_heads, tokens, width]
  ScratchVector<char> finite_;                     // [num_kv_heads]
  int64_t b_ = 0, t_ = 0;
  TokenSpan span_ = {0, 0};
};

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_BACKWARD_LEVELS_H_
