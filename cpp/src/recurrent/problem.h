// What the recurrent loop works on: the caller's arguments after validation.
#ifndef HEED_SRC_RECURRENT_PROBLEM_H_
#define HEED_SRC_RECURRENT_PROBLEM_H_

#include <algorithm>
#include <numbers>

#include "heed/recurrent.h"

namespace heed {

enum class Side { kQuery, kKey };

// Whose row it is: a token of a query head, or of a KV head.
struct TokenPlace {
  int64_t b, head, t;
};

struct RecurrentProblem {
  TensorView<const float> q, k, v;
  RecurrentOptions options;  // log_decay and beta have stride 0 where they broadcast
  RecurrentOutputs outputs;
  int64_t batch = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t group = 1;
  int64_t q_len = 0;
  int64_t kv_len = 0;
  int64_t head_dim = 0;
  int64_t head_dim_v = 0;
  int64_t feature_dim = 0;       // what the feature map makes of head_dim: rows of the state
  int64_t num_states = 0;        // of levels, else 0
  int64_t state_cols = 0;        // head_dim_v, and one more with normalize
  bool decays_channels = false;  // does a channel have a decay of its own?
  float scale = 1;               // on the output
  // On rows inside the feature map.
  float query_factor = 1, key_factor = 1;

  float Factor(Side side) const { return side == Side::kQuery ? query_factor : key_factor; }

  // A token reads the state before it decays and writes, and its own value by the bonus.
  bool reads_first() const { return options.bonus.has_value(); }

  bool learns() const { return options.mini_batch > 0; }
  bool has_levels() const { return options.level_weights.has_value(); }
  bool erases() const { return options.delta || options.erase_key.has_value(); }
  // What a token writes one after the other: what it erases by a key of its own, and its value.
  size_t parts() const { return options.erase_key.has_value() ? 2 : 1; }

  // Tokens of a chunk.
  int64_t ChunkLen() const {
    const int64_t len = std::min(options.chunk_len, kMaxChunkLen / static_cast<int64_t>(parts()));
    return learns() ? std::min(len, options.mini_batch) : len;
  }

  // Random features: the state is divided by exp(peak), row by row, and peaks are its last column.
  bool has_peaks() const { return options.feature_map == FeatureMap::kRandom; }

  int64_t Position(int64_t b, int64_t t) const {
    const std::span<const int64_t> offsets = options.position_offset;
    return t + (offsets.empty() ? 0 : offsets[offsets.size() == 1 ? 0 : static_cast<size_t>(b)]);
  }
  // The place that token t has in its mini-batch; t = -1 is the token before the first.
  size_t Place(int64_t b, int64_t t) const {
    const int64_t position = Position(b, t), size = options.mini_batch;
    return static_cast<size_t>(position < 0 ? size - 1 : position % size);
  }
  float PositionRate(int64_t b, int64_t t) const {
    return options.position_rate.empty() ? 1.0f : options.position_rate[Place(b, t)];
  }
  // kCosine.
  double Angle(int64_t b, int64_t t) const {
    return std::numbers::pi / 2 * static_cast<double>(Position(b, t)) /
           static_cast<double>(options.period);
  }

  int64_t KeyLength(int64_t b) const {
    return options.key_lengths.empty() ? kv_len : options.key_lengths[static_cast<size_t>(b)];
  }
};

// Largest feature_dim of a step: its features and factors live on the stack.
inline constexpr int64_t kMaxStepDim = 4096;

// Added to the variance by the norm of a model that learns.
inline constexpr double kInnerNormEpsilon = 1e-6;

// Throws Error; fills defaults in.
RecurrentProblem ValidateRecurrent(const TensorView<const float>& q,
                                   const TensorView<const float>& k,
                                   const TensorView<const float>& v,
                                   const RecurrentOptions& options);

// The part of it that belongs to options.log_decay, but for what it holds: makes it broadcast.
void SetLogDecay(RecurrentProblem& p);

// Checks the outputs of a call, and the state and output of a step, and sets p.outputs; of a step
// its output only. Throws Error.
void CompleteRecurrent(RecurrentProblem& p, const RecurrentOutputs& outputs);
void CompleteStep(RecurrentProblem& p, const TensorView<float>& state,
                  const TensorView<float>& output);

// Multiplications and additions of the chunked form, as heed/recurrent.h counts them.
double RecurrentFlops(const RecurrentProblem& p);

// Extents of the state.
Extents StateShape(const RecurrentProblem& p);
const char* StateMeaning(const RecurrentProblem& p);

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_PROBLEM_H_
