// Positions: how a model learns where a token stands. Rotations of queries and keys (RoPE, xPos),
// codes that are added to embeddings (sinusoidal, learned), and the buckets of T5. ALiBi's slopes
// are in attention.h; a model without any position code (NoPE) needs nothing.
#ifndef HEED_POSITION_H_
#define HEED_POSITION_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "heed/error.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Largest error of one rotated pair against exact arithmetic, relative to the length of the pair
// times its factor (attention_factor, xPos scale): kRopeMaxError + |position| *
// kPositionAngleError. Angles are computed in float64 and their cosines and sines rounded once to
// float32. Docs and tests read these constants.
inline constexpr double kRopeMaxError = 3e-7;
// Sinusoidal and learned codes: absolute error of the code, relative to max(1, |x|) of the sum.
inline constexpr double kPositionCodeMaxError = 1.2e-7;
// Error of an angle in radians per unit of position: what float64 frequencies leave. A position of
// 1e6 costs 4e-10 radians; float32 angles would cost 6e-2.
inline constexpr double kPositionAngleError = 4e-16;

// Positions lie within +-kMaxRowPosition.
inline constexpr int64_t kMaxRowPosition = int64_t{1} << 31;

// Where the rows of x stand: row i of batch entry b at offset[b] + rows[b, i].
struct Positions {
  // Empty = 0, one value for all, or one per batch entry. May be negative.
  std::vector<int64_t> offset{};
  // Empty = 0, 1, 2, ...; else [len] (shared) or [batch, len] whole numbers, any order.
  std::span<const int32_t> rows{};
};

// Which dimensions of a head are rotated together. The two orders are one permutation apart and
// cannot be told from the outside: the weights decide. Therefore a choice, never a default.
enum class RopePairing {
  kHalf,         // t and t + rotary_dim / 2: GPT-NeoX, Hugging Face checkpoints of Llama
  kInterleaved,  // 2t and 2t + 1: the RoFormer paper, GPT-J, Meta's own Llama checkpoints
};

// How frequencies f_t = base^(-2t / rotary_dim) are changed to reach beyond the trained length.
struct RopeScaling {
  enum class Kind {
    kNone,
    // f_t / factor. Chen et al. 2023, arXiv:2306.15595.
    kLinear,
    // base * factor^(rotary_dim / (rotary_dim - 2)): the slowest pair is stretched by factor, the
    // fastest one stays. "NTK-aware", named in section 3.1 of arXiv:2309.00071.
    kNtk,
    // kNtk whose factor grows with the length: factor * seq_len / original_len - (factor - 1)
    // beyond original_len, 1 up to it. Section 3.3 of arXiv:2309.00071.
    kDynamicNtk,
    // f_t / factor for pairs that turn less than beta_slow times in original_len, f_t for those
    // that turn more than beta_fast times, a linear blend over the pair index in between; bounds
    // are rounded outwards to whole pairs as the authors' code has it, unless `bounds` differs.
    // All is multiplied by attention_factor. Peng et al. 2023, arXiv:2309.00071, section 3.4.
    kYarn,
    // f_t / factor for wavelengths above original_len / low_freq_factor, f_t below original_len /
    // high_freq_factor, a blend linear in original_len / wavelength in between; with equal factors
    // (Llama 4) there is nothing in between. Llama 3.1, arXiv:2407.21783.
    kLlama3,
  };
  Kind kind = Kind::kNone;
  // How much longer than trained; > 0. Read by all kinds but kNone.
  double factor = 1;
  // The trained length; needed by kDynamicNtk, kYarn and kLlama3.
  int64_t original_len = 0;
  // kDynamicNtk: the length to scale for. Absent = the largest position of the call plus 1. Give it
  // when keys rotated in earlier calls are still in use.
  std::optional<int64_t> seq_len{};
  double beta_fast = 32;
  double beta_slow = 1;
  // kYarn: where the blend begins and ends.
  enum class Bounds {
    kWhole,  // at whole pairs: the authors' code; `truncate` of Hugging Face
    kExact,  // between them: gpt-oss
  };
  Bounds bounds = Bounds::kWhole;
  // kYarn: factor on the rotated pairs. Absent = 0.1 ln(factor) + 1, and 1 for factor <= 1.
  std::optional<double> attention_factor{};
  double low_freq_factor = 1;  // kLlama3; at most high_freq_factor
  double high_freq_factor = 4;
};

// Two-dimensional (axial) positions: row-major patches of an image, len = height * width. The first
// half of the pairs turns by the patch row, the second half by the patch column; each half has the
// frequencies of a RoPE of rotary_dim / 2.
struct ImageGrid {
  int64_t height = 0;
  int64_t width = 0;
};

struct RopeOptions {
  Positions positions{};
  // Rotated dimensions, the first ones; the rest passes through unchanged. Absent = all. Even and
  // >= 2; a multiple of 4 with `image`.
  std::optional<int64_t> rotary_dim{};
  double base = 10000;  // > 1 and finite
  RopeScaling scaling;
  std::optional<ImageGrid> image{};  // refused together with positions
  // Undoes the rotation: negated angles, divided by attention_factor.
  bool inverse = false;
  // Given tables [1 or batch, 1, rows, rotary_dim / 2]: the row of a position, which must be in
  // [0, rows), replaces the angles. Both or none; base is not read, scaling and image are refused.
  // `inverse` negates the sines.
  TensorView<const float> cos{};
  TensorView<const float> sin{};
};

// Rotary position embedding: turns each pair of dimensions by position * frequency, so that the
// product of a rotated query and a rotated key depends on their positions' difference only.
//
//   (y1, y2) = m (x1 cos a - x2 sin a, x2 cos a + x1 sin a),  a = position * f_t
//
// Shapes   x and output [batch, num_heads, len, dim], any strides with a contiguous last dimension.
//          `output` may be exactly x (same memory, same strides), else it must not overlap.
// Errors   Error(kShape | kRange | kOption | kMemory), before anything is written.
// Accuracy kRopeMaxError. Non-finite values of x reach their own pair only.
// Cost     6 FLOPs a pair. Allocates, per thread, the cosines and sines of at most 64 positions,
//          and once those of 64 positions in float64; never O(len).
// Threads  `pool` or the default pool. A row's bits depend on its values and its position only: not
//          on its place in x, its neighbours, the offset or the number of threads.
// Source   Su et al. 2021, arXiv:2104.09864, section 3.2.2.
void Rope(TensorView<const float> x, RopePairing pairing, const RopeOptions& options,
          TensorView<float> output, ThreadPool* pool = nullptr);

// The frequencies after scaling, radians per position, [rotary_dim / 2]. `seq_len` is read by
// kDynamicNtk without an own seq_len. Throws Error(kRange | kOption).
std::vector<double> RopeFrequencies(int64_t rotary_dim, double base, const RopeScaling& scaling,
                                    int64_t seq_len = 0);

// What rotated pairs are multiplied by: attention_factor of kYarn, else 1.
double RopeMagnitude(const RopeScaling& scaling);

struct XposOptions {
  Positions positions{};
  std::optional<int64_t> rotary_dim{};
  double base = 10000;
  RopeScaling scaling;
  bool inverse = false;
  double gamma = 0.4;       // > 0; larger decays less
  double scale_base = 512;  // > 0: positions over which zeta_t is applied once
  // Subtracted from the position in the exponent. Cancels in q.k; keeps scales near 1 in long
  // sequences (the authors' code uses half the length).
  double center = 0;
};

enum class XposSide {
  kQuery,  // times zeta_t^( (position - center) / scale_base)
  kKey,    // times zeta_t^(-(position - center) / scale_base)
};

// xPos: RoPE whose pairs also decay with distance. Pair t is rotated as in Rope and multiplied by
// zeta_t^(+-(position - center) / scale_base), zeta_t = (2t / rotary_dim + gamma) / (1 + gamma), so
// that pair t of q.k carries the factor zeta_t^((i - j) / scale_base).
//
// Shapes, errors, cost and threads as Rope; also Error(kRange) when a scale would leave e^+-80.
// Accuracy kRopeMaxError, relative to the scaled pair.
// Limit    gamma -> inf: Rope.
// Source   Sun et al. 2022, arXiv:2212.10554, section 3; defaults are the authors' code.
void Xpos(TensorView<const float> x, RopePairing pairing, XposSide side, const XposOptions& options,
          TensorView<float> output, ThreadPool* pool = nullptr);

// Where sines and cosines stand in a row of the sinusoidal code.
enum class SinusoidalLayout {
  kInterleaved,   // sin, cos, sin, cos, ...: the paper. An odd last column is a sine
  kConcatenated,  // all sines, then all cosines: the authors' code. An odd last column is 0
};

// How n frequencies, n = dim / 2 rounded down (up when interleaved), are spread over [1, 1 / base].
enum class SinusoidalSpacing {
  kOpen,    // base^(-2t / dim), kConcatenated base^(-t / n): the paper; 1 / base is not reached
  kClosed,  // base^(-t / (n - 1)): the authors' code; the last frequency is 1 / base
};

struct SinusoidalOptions {
  Positions positions{};
  SinusoidalLayout layout = SinusoidalLayout::kInterleaved;
  SinusoidalSpacing spacing = SinusoidalSpacing::kOpen;
  double base = 10000;  // > 1 and finite
};

// output = x + P, P[position, 2t] = sin(position f_t), P[position, 2t + 1] = cos(position f_t). An
// absent x (data == nullptr) stands for zeros: the table itself.
//
// Shapes, errors, cost and threads as Rope.
// Accuracy kPositionCodeMaxError + |position| * kPositionAngleError, absolute, for |x| <= 1.
// Source   Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
void AddSinusoidal(TensorView<const float> x, const SinusoidalOptions& options,
                   TensorView<float> output, ThreadPool* pool = nullptr);

struct LearnedPositionOptions {
  Positions positions{};
  // Stretches or shrinks the table to len rows instead of looking positions up: row i reads the
  // table at (i + 0.5) * max_len / len - 0.5, clamped to it, linearly between two rows. With
  // len == max_len it is the table itself. Refused together with positions.
  bool interpolate = false;
};

// output = x + table[position], table [1, 1, max_len, dim].
//
// Errors   as Rope; a position outside [0, max_len) is Error(kRange).
// Accuracy one rounding of the sum; interpolated rows kPositionCodeMaxError times the largest of
//          |x| and the table's entries.
// Source   Gehring et al. 2017, arXiv:1705.03122, section 3.1.
void AddLearnedPosition(TensorView<const float> x, TensorView<const float> table,
                        const LearnedPositionOptions& options, TensorView<float> output,
                        ThreadPool* pool = nullptr);

// The T5 bucket of a relative position (key minus query): exact for the nearest distances,
// logarithmic up to max_distance, the last bucket beyond. Bidirectional: half of the buckets for
// keys after the query. Causal: keys after the query are all in bucket 0.
//
// num_buckets >= 2 (a multiple of 2, >= 4, when bidirectional), max_distance > the number of exact
// buckets: num_buckets / 2 (/ 4 when bidirectional). Throws Error(kRange).
// Source   Raffel et al. 2020, arXiv:1910.10683, section 2.1, and its code.
enum class T5Direction { kBidirectional, kCausal };
int64_t T5Bucket(int64_t relative_position, T5Direction direction, int64_t num_buckets = 32,
                 int64_t max_distance = 128);

}  // namespace heed

#endif  // HEED_POSITION_H_
