// Exact attention: one tiled loop with four sockets (score, modify, keep, normalize).
#ifndef HEED_ATTENTION_H_
#define HEED_ATTENTION_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "heed/error.h"
#include "heed/expression.h"
#include "heed/keep.h"
#include "heed/position.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Largest error of the float32 kernels against the float64 reference, relative to max |v| over the
// keys a row sees, for logits of size S up to 16, and S / 16 times as much beyond. Scores and lse,
// which are scores themselves, stay within it times max(1, S / 4). Normalisers other than softmax
// pass the errors of scores on by a factor of their own, which docs/accuracy.md lists. Docs and
// tests read this constant.
inline constexpr double kAttentionMaxError = 2e-6;

// What storing the output as float16 or bfloat16 adds, relative to the output itself: half a unit
// of its last place (float16 outputs below 2^-14 are off by up to 2^-25).
inline constexpr double kFloat16Rounding = 0x1p-11;
inline constexpr double kBFloat16Rounding = 0x1p-8;

// What multiplying in bfloat16 adds, relative to max |v|: see Attention() of stored tensors.
inline constexpr double kBFloat16Products = 0x1p-8;

// A forget gate whose logarithm is below this is closed: what came before it is hidden, as by -inf.
inline constexpr float kClosedLogGate = -1e5f;

// Where query 0 stands among the keys. Serves causal, window and ALiBi alike.
//
//   q_len = 2, kv_len = 4, causal:      At(0): x . . .      End(): x x x .
//                                              x x . .             x x x x
class QueryOffset {
 public:
  // Not given: 0 when q_len == kv_len; an error when they differ and a position is needed.
  QueryOffset() = default;
  // Query 0 of every batch entry has this position; may be negative. At(0) is PyTorch's top-left.
  static QueryOffset At(int64_t position);
  // One position per batch entry.
  static QueryOffset PerBatch(std::vector<int64_t> positions);
  // The queries are the last tokens: (key_lengths[b] or kv_len) - q_len, FlashAttention's rule.
  static QueryOffset End();

  enum class Kind { kUnset, kNumber, kPerBatch, kEnd };
  Kind kind() const { return kind_; }
  const std::vector<int64_t>& positions() const { return positions_; }

 private:
  Kind kind_ = Kind::kUnset;
  std::vector<int64_t> positions_;
};

// How many keys before and after the query's own position are visible, itself not counted, ends
// inclusive; an omitted side is unlimited. {0, 0} sees only itself.
//
//   left = 1, right = 0, 4 x 4:   x . . .
//                                 x x . .
//                                 . x x .
//                                 . . x x
struct Window {
  std::optional<int64_t> left;
  std::optional<int64_t> right;
  // The last n keys, the query's own included: {left = n - 1, right = 0}. n >= 1.
  static Window LastN(int64_t n);
};

// How a query and a key become a number.
enum class Score {
  kDot,              // scale * q.k; scale defaults to 1 / sqrt(head_dim)
  kSquaredDistance,  // -scale / 2 * |(q - k) / width|^2; scale defaults to 1
  // scale / temperature * q.k / (|q| |k|), 0 where q or k is a vector of zeros; scale defaults
  // to 1. Henry 2020, arXiv:2010.04245; Liu 2022 (Swin v2), arXiv:2111.09883.
  kCosine,
  kBilinear,  // scale * q^T M k, M = score_matrix; scale defaults to 1. Luong 2015,
              // arXiv:1508.04025
  // scale * v^T tanh(W_q q + W_k k + b); scale defaults to 1. Bahdanau 2014, arXiv:1409.0473.
  kAdditive,
};

// Which row of a relative table belongs to a key at position j for a query at position i.
enum class RelativeRows {
  kClip,     // 2 m + 1 rows: row m + clamp(j - i, -m, m). Shaw 2018, Transformer-XL with clamp_len
  kSpan,     // 2 k rows: row clamp(i - j + k, 0, 2 k - 1). DeBERTa, arXiv:2006.03654, equation 2
  kLogSpan,  // the same with distances in DeBERTa v2's buckets: exact up to k / 2, then logarithmic
};

// How a row of scores becomes a row of weights. n is the number of keys that the row sees.
//
// Those marked (rows) keep the scores of up to 24 rows at once, 24 * kv_len floats per thread; the
// others see one tile at a time. Those marked (lse) have a softmax denominator: they return lse and
// take sinks; the others refuse both.
enum class Normalize {
  kSoftmax,  // exp(s) / sum exp(s), with optional sinks (lse)
  // K(u) / sum K(u), u = |(q - k) / width|. Needs Score::kSquaredDistance. Refuses scale, softcap,
  // score_mod, sinks, bias, alibi_slopes, distance_bias, bucket_bias and log_gates; lse with
  // kernels other than the gaussian.
  kKernelSum,
  kSoftmax1,       // exp(s) / (1 + sum exp(s)): a sink of 0 for every head (lse, no other sinks)
  kSigmoid,        // sigmoid(s + sigmoid_bias), each key by itself
  kRelu,           // max(0, s) / n^length_power
  kReluSquared,    // max(0, s)^2 / n^length_power
  kAverage,        // 1 / n; scores do not matter, not even NaN in q and k: they count as 0
  kHard,           // 1 for the largest score, the first one of equals (rows)
  kTopK,           // softmax over the top_k largest scores, lower keys first of equals (rows, lse)
  kSparsemax,      // max(0, s - tau), tau such that they sum to 1 (rows)
  kEntmax15,       // max(0, s / 2 - tau)^2, tau such that they sum to 1 (rows)
  kStickBreaking,  // sigmoid(s_j) * prod over visible keys i > j of (1 - sigmoid(s_i)) (rows)
  kCope,  // softmax of s_j + q.cope_table[sum over visible i >= j of sigmoid(s_i)], between
          // whole positions their linear mix, beyond the last one the last (rows, lse)
};

// Dropout of weights: each is zeroed with probability p and divided by 1 - p otherwise, after the
// normaliser, so that denominators, lse and returned weights do not change. Which ones depends on
// the seed and the place of the pair alone: on no target, thread count or tile size. Philox-4x32-10
// (Salmon et al. 2011), key = seed, counter = (batch, query head, query, key / 4), word key % 4;
// kept iff word >= floor(p * 2^32). Places count from `origin`.
struct Dropout {
  double p = 0;  // in [0, 1); 0 = off
  uint64_t seed = 0;
  // For a call that computes a part of another one, and drops the same weights: which batch entry,
  // query head, query and key of the whole are the first of the part. >= 0, below 2^32 and 2^34,
  // the last a multiple of 4.
  Extents origin{};
};

// Writes 1 where a weight is kept and 0 where it is dropped, to a view of [batch, num_heads, q_len,
// kv_len]. What Attention() does, as a picture: for tests and for other back ends. Throws
// Error(kRange | kShape | kOption).
void DropoutMask(const Dropout& dropout, TensorView<uint8_t> kept);

// Kernels of Normalize::kKernelSum, each up to a constant factor, which cancels in the quotient.
enum class Kernel {
  kGaussian,      // exp(-u^2 / 2)
  kBoxcar,        // 1 for u <= 1
  kTriangular,    // max(0, 1 - u); some teaching texts call this one Epanechnikov
  kEpanechnikov,  // max(0, 1 - u^2)
  kConstant,      // 1: every visible key alike
};

// Which scores `AttentionOutputs::scores` receives. The first two come before the keep rules and
// show every pair, also keys beyond key_lengths.
enum class ScoreStage {
  kRaw,     // after the scale
  kCapped,  // after softcap
  kBiased,  // after bias and ALiBi: what the normaliser sees; keys that are not kept are -inf
};

// Options of exact attention. Every field has a default; any combination works together except
// those that the comments of fields and of their types refuse.
// Order: score (with scale and relative terms), softcap, biases of all kinds, keep rules,
// normalize, prob_mod, dropout.
struct AttentionOptions {
  Score score = Score::kDot;
  Normalize normalize = Normalize::kSoftmax;
  Kernel kernel = Kernel::kGaussian;  // read only by Normalize::kKernelSum

  // Width of the distance in input units: empty = 1, one value, or head_dim values; each > 0 and
  // finite. Read only by Score::kSquaredDistance.
  std::span<const float> width;

  // What a cosine score is divided by: empty = 1, one value, or num_heads values; each > 0 and
  // finite. Values below `min_temperature` (absent = off; Swin v2 has 0.01) are raised to it. Read
  // only by Score::kCosine.
  std::span<const float> temperature;
  std::optional<double> min_temperature;

  // Tensors of Score::kBilinear and Score::kAdditive, where q and k may have different widths. One
  // for all heads or one each; the last dimension is contiguous. Packed once a call: O(size)
  // memory.
  //   score_matrix  M, [1, 1 or num_heads, head_dim, head_dim of k]
  //   query_weight  W_q, [1, 1 or num_heads, hidden_dim, head_dim]; absent = identity
  //   key_weight    W_k, [1, 1 or num_kv_heads, hidden_dim, head_dim of k]; absent = identity
  //   score_bias    b, hidden_dim values; empty = 0
  //   score_vector  v, [1, 1, 1 or num_heads, hidden_dim]; absent = ones
  // Additive scores cost hidden_dim tanh a pair (error of one: 3.5 ULP) instead of head_dim
  // multiplications: a call takes 10 times as long (AVX2, both 64, 1024 keys).
  TensorView<const float> score_matrix;
  TensorView<const float> query_weight;
  TensorView<const float> key_weight;
  std::span<const float> score_bias;
  TensorView<const float> score_vector;

  // Relative terms of Score::kDot: s = scale * ((q + content_bias).k + (q + position_bias).r + k.t)
  // with r and t the rows of relative_keys and relative_queries that belong to the distance, and
  // o_i = sum_j p_ij (v_j + w) with w that of relative_values, which takes any score. Tables have
  // the same number of rows, 1 table or num_heads tables, and are packed once a call.
  //   relative_keys     [1, 1 or num_heads, rows, head_dim]    Shaw 2018, arXiv:1803.02155; r of
  //                     Transformer-XL, arXiv:1901.02860; content-to-position of DeBERTa
  //   relative_queries  [1, 1 or num_heads, rows, head_dim]    position-to-content of DeBERTa, with
  //                     the distance i - j of its released code
  //   relative_values   [1, 1 or num_heads, rows, head_dim_v]  Shaw; finite
  //   content_bias, position_bias  [1, 1, num_heads, head_dim] u and v of Transformer-XL
  // Cost: as much again as q.k for keys, 1.6 times and a gather for queries (times the group size
  // when query heads share KV heads and have their own tables). Measured (AVX2, head_dim 64, 1024
  // keys): a call with 33 rows of keys 1.1 times as long as without, with 2049 rows 1.25, with both
  // terms of DeBERTa 2.6. Memory: O(rows * head_dim) and O(tile).
  TensorView<const float> relative_keys;
  TensorView<const float> relative_queries;
  TensorView<const float> relative_values;
  TensorView<const float> content_bias;
  TensorView<const float> position_bias;
  RelativeRows relative_rows = RelativeRows::kClip;
  // Read only by kLogSpan: distances from here on share the last buckets; above 3 / 4 of the rows.
  int64_t relative_max_distance = 512;

  // Factor on the score. Absent = the score's default, divided by sqrt(1 + terms) for kSpan and
  // kLogSpan, where `terms` counts relative_keys and relative_queries (DeBERTa). 0 and negative
  // values are legal; a value that overflows float32, or is not 0 but rounds to 0, is refused. So
  // is any scale with Normalize::kKernelSum (use width).
  std::optional<double> scale;

  // cap * tanh(s / cap), after scale, before bias and keep. > 0 and finite; absent = off.
  std::optional<double> softcap;

  // Added to the score. Extents broadcast (1) to [batch, num_heads, q_len, kv_len]. A value of
  // exactly -inf means "not kept".
  TensorView<const float> bias;

  // ALiBi: adds -slope[h] * |i + query_offset - j|. Empty = off, else num_heads finite values.
  std::span<const float> alibi_slopes;

  // A bias by distance: adds table[h][m + clamp(j - i - query_offset, -m, m)]. [1, 1, 1 or
  // num_heads, 2 m + 1]; -inf hides the key.
  TensorView<const float> distance_bias;

  // T5: adds bucket_bias[T5Bucket(j - i - query_offset)][h] (heed/position.h). [1, 1, num_buckets,
  // num_heads]; Raffel 2020, arXiv:1910.10683. T5 itself has scale 1.
  TensorView<const float> bucket_bias;
  T5Direction bucket_direction = T5Direction::kBidirectional;
  int64_t bucket_max_distance = 128;

  // Forget gates: adds the sum of log_gates[b][h][l] over j < l <= i + query_offset. Values are <=
  // 0; those below kClosedLogGate hide all earlier keys, as -inf does. Needs causal. [batch or 1,
  // num_heads or 1, 1, kv_len]; gates of keys that are not kept count, those beyond key_lengths are
  // never read. Sums are made in float64. O(batch * num_heads * kv_len) memory. Lin 2025,
  // arXiv:2503.02130.
  TensorView<const float> log_gates;

  // Query i sees keys j <= i + query_offset.
  bool causal = false;

  std::optional<Window> window;
  QueryOffset query_offset;

  // Keys at or beyond the length are never read. Empty = kv_len, else [batch] or [batch, q_len]
  // values in [0, kv_len].
  std::span<const int32_t> key_lengths;

  // Nonzero = may attend. Extents broadcast (1) to [batch, num_heads, q_len, kv_len].
  TensorView<const uint8_t> keep;

  // Prefix language model (Raffel et al. 2020, arXiv:1910.10683, section 3.2.1): a query sees the
  // first prefix_lengths[b] keys, and those up to its own position. Empty = off, else [batch]
  // values in [0, kv_len]. All rules hold together: with `causal`, which hides what is behind the
  // position, nothing is left of the prefix. A prefix language model leaves it off.
  //
  //   prefix 2, 4 x 4:   x x . .
  //                      x x . .
  //                      x x x .
  //                      x x x x
  std::span<const int32_t> prefix_lengths;

  // Documents: a query sees the keys with its own id; a negative id is padding, which sees nothing
  // and is not seen. Ids may be in any order. Empty = off, else [q_len] or [batch, q_len] values
  // and [kv_len] or [batch, kv_len]. DocumentsFromCuSeqlens() makes ids of lengths.
  //
  //   ids 7 7 3 7:   x x . x
  //                  x x . x
  //                  . . x .
  //                  x x . x
  std::span<const int32_t> query_documents;
  std::span<const int32_t> key_documents;

  // Rules that need no matrix: dilated and global windows, blocks, grids, graphs (heed/keep.h).
  // A key is visible when every pattern and every other keep rule says so.
  std::vector<KeepPattern> patterns;

  // User functions (heed/expression.h), absent = off. `score_mod` replaces scores after softcap,
  // ALiBi and bias; -inf hides the key. `keep_mod` is shown ones and writes 0 where the query may
  // not attend to the key; a tile that it empties costs nothing beyond the call. `prob_mod`
  // replaces the final weights of visible keys, before dropout; rows need not sum to 1 any more,
  // lse stays that of the normaliser. It keeps the scores of up to 24 rows at once, as those marked
  // (rows) do. None can bring back what another rule hides. `position` is i when query_offset is
  // not given.
  TileFunction score_mod;
  TileFunction keep_mod;
  TileFunction prob_mod;

  // One logit per query head inside the softmax denominator; 0 gives softmax-off-by-one.
  // Empty = off, else num_heads values, finite or -inf. Only where Normalize says (lse).
  std::span<const float> sinks;

  // Normalize::kTopK: how many keys a query keeps, >= 1; more than it sees = softmax.
  int64_t top_k = 8;

  // Normalize::kSigmoid: finite; absent = -log(kv_len).
  std::optional<double> sigmoid_bias;

  // Normalize::kRelu and kReluSquared: finite.
  double length_power = 1;

  // Normalize::kCope: one vector per position, [1, 1 or num_heads, num_positions >= 1, head_dim].
  TensorView<const float> cope_table;

  Dropout dropout;
};

// Where results go. `output` (or `stored_output`) is required, the others are computed when they
// have a value.
struct AttentionOutputs {
  // [batch, num_heads, q_len, head_dim_v], any strides with a contiguous last dimension.
  TensorView<float> output{};
  // [batch, num_heads, q_len, 1]: natural log of the softmax denominator, sinks included; -inf for
  // an empty row. Refused where Normalize does not say (lse), except for the gaussian kernel.
  TensorView<float> lse{};
  // [batch, num_heads, q_len, kv_len]: after prob_mod, before dropout; 0 for keys that a query does
  // not see.
  TensorView<float> weights{};
  // [batch, num_heads, q_len, kv_len]: scores of `score_stage`.
  TensorView<float> scores{};
  ScoreStage score_stage = ScoreStage::kBiased;
  // The output in another storage type; give this or `output`.
  StoredOutput stored_output{};

  // What the loop carries from tile to tile, for those who want to watch it: all three or none,
  // each [batch, num_heads, q_len, num_tiles], num_tiles = ceil(kv_len / kAttentionTileKeys), or
  // [batch, num_heads, 1, num_tiles] for `tiles_of_query` alone. After each tile: the largest score
  // so far (-inf before the first visible key), the sum of exp(s - running_max) so far, and the
  // factor that the row's sum and output were multiplied by when the tile raised the maximum (else
  // 1). Sinks join when the row is closed. Only for Normalize::kSoftmax and kSoftmax1, without
  // prob_mod.
  TensorView<float> running_max{};
  TensorView<float> running_sum{};
  TensorView<float> rescale{};
  std::optional<int64_t> tiles_of_query = std::nullopt;
};

// Keys of a tile of the loop.
inline constexpr int64_t kAttentionTileKeys = 256;

// Computes o[i] = sum_j p[i,j] v[j] with p = normalize(keep(modify(score(q, k)))).
//
// Shapes   q [batch, num_heads, q_len, head_dim], k [batch, num_kv_heads, kv_len, head_dim],
//          v [batch, num_kv_heads, kv_len, head_dim_v]. num_heads is a multiple of num_kv_heads;
//          query head h uses KV head h / (num_heads / num_kv_heads). Strides are free, the last
//          dimension is contiguous.
// Empty row  (no key kept) output 0, weights 0, lse -inf. What is not kept cannot matter: NaN or
//          Inf in masked keys, values, bias or padding never reaches a row that does not see it.
// Errors   Error(kShape | kRange | kOption | kUnsupported | kMemory), before anything is written.
// Accuracy kAttentionMaxError, against heed/reference.h. Sums overflow from |v| = FLT_MAX / kv_len.
// Cost     2 * num_heads * q_len * kv_len * (head_dim + head_dim_v) FLOPs per batch entry, less
//          what causal, window and lengths leave out, and whole panels of keys (8 to 32) that keep
//          and patterns hide from a few neighbouring rows. Allocates O((head_dim + head_dim_v) *
//          tile) per thread, packed K and V of the KV heads in flight (a MiB per thread where rows
//          see narrow bands), and up to 24 * kv_len floats per thread for normalisers marked
//          (rows); never O(q_len * kv_len) unless weights or scores are asked for. Lists of blocks
//          and edges are copied, with one bit for each 32 queries and 256 keys (and head, if they
//          differ).
// Threads  `pool` or the default pool. Same inputs give the same bits for any number of threads.
//          Safe to call from several threads at once.
// Source   Vaswani et al. 2017 (arXiv:1706.03762); online softmax: Milakov & Gimelshein 2018
//          (arXiv:1805.02867), Rabe & Staats 2021 (arXiv:2112.05682), Dao 2022 (arXiv:2205.14135).
void Attention(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
               const AttentionOptions& options, const AttentionOutputs& outputs,
               ThreadPool* pool = nullptr);

// The same for q, k and v of any storage type, each its own: float32, float16 or bfloat16. They are
// converted, exactly, as they are packed; everything is computed in float32, and a stored output is
// rounded once, to nearest. Against the reference on the same stored inputs the error is that of
// the float32 function plus kFloat16Rounding or kBFloat16Rounding times the output.
//
// Where q, k, v and the output are all bfloat16 and the processor multiplies bfloat16
// (AVX512-BF16, AMX), softmax of dot products does so for more than 16 rows: sums stay float32, and
// weights are rounded to bfloat16 before they meet the values, which adds kBFloat16Products. A
// float32 output keeps everything in float32. Both treat numbers below 2^-126 as 0. On Linux the
// first such call, or EstimateCost() of one, asks the system for AMX's registers, for the whole
// program (arch_prctl; signal stacks must hold them from then on), unless the environment variable
// HEED_AMX is "off". If they are refused, or a thread has a smaller signal stack, vectors multiply.
void Attention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
               const AttentionOptions& options, const AttentionOutputs& outputs,
               ThreadPool* pool = nullptr);

// The picture of all keep rules together: writes 1 where the query sees the key and 0 elsewhere, to
// [batch, num_heads, q_len, kv_len], whose extents are the sizes of the call that is explained.
// Reads causal, window, query_offset, key_lengths, prefix_lengths, documents, patterns, keep, and a
// bias of -inf; the same code answers the attention loop. (A score of -inf hides a key too, but
// that depends on q and k.)
//
// Errors   as Attention().
// Cost     O(batch * num_heads * q_len * kv_len); allocates what the patterns do.
void Explain(const AttentionOptions& options, TensorView<uint8_t> picture);

// Slopes of the ALiBi paper's code for any number of heads: 2^(-8 i / n) for a power of two, else
// those of the next lower power followed by every other one of the doubled set. num_heads >= 1.
// Some models have another exponent than 8; it is positive and finite.
// Source: Press et al. 2021, arXiv:2108.12409.
std::vector<float> AlibiSlopes(int64_t num_heads, double max_exponent = 8);

}  // namespace heed

#endif  // HEED_ATTENTION_H_
