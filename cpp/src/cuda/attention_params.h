// What an attention kernel is given: plain numbers and device pointers, passed by value.
#ifndef HEED_SRC_CUDA_ATTENTION_PARAMS_H_
#define HEED_SRC_CUDA_ATTENTION_PARAMS_H_

#include <cstdint>

#include "heed/attention.h"
#include "heed/dtype.h"
#include "src/cuda/device.h"
#include "src/cuda/fault.h"
#include "src/cuda/row_rules.h"

namespace heed::cuda {

// Query heads of a group are packed: row r of KV head h is query r / group of head
// h * group + r % group. A block takes so many rows, 16 for each of its warps.
inline constexpr int kBlockRows = 64;
inline constexpr int kBlockThreads = 128;
inline constexpr int kBlockWarps = kBlockThreads / 32;

// Rows [batch, heads, len, width] of q, k or v, or the pages of a cache: then the first dimension
// counts pages, and token j of entry b lies in page table[b * table_width + j / page_size].
struct DeviceRows {
  const char* data;
  DType dtype;
  int64_t strides[3];  // bytes
  int32_t width;
  bool vectors;  // every row begins at 16 bytes and is a multiple of them
  const int32_t* table;
  int32_t table_width, page_size, num_pages;
  int32_t page_shift;  // page_size is 2^page_shift; -1: it is no power of two
  // Of the rows of int8 and float8 pages, and of the KV heads of float8 tensors; else nullptr.
  const float* scales;
  int64_t scale_strides[3];
};

// A broadcast view of [batch, num_heads, q_len, kv_len]; data == nullptr: absent.
template <class T>
struct DevicePairs {
  const T* data;
  int64_t strides[4];

  HEED_DEVICE T At(int b, int h, int i, int j) const {
    return data[b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3]];
  }
};

// Results [batch, num_heads, q_len, width].
struct DeviceOutput {
  char* data;
  int64_t strides[3];  // bytes
  DType dtype;
};

struct DropoutRule {
  uint32_t key[2];
  uint32_t threshold;
  float keep_factor;  // 0: no dropout
};

// Documents of queries and keys; nullptr: absent. A stride of 0 shares them between batch entries.
struct DocumentRule {
  const int32_t* queries;
  const int32_t* keys;
  int64_t query_stride, key_stride;
};

// Keep patterns, as words of 64 keys: row ids[b, h, i] sees of keys [64 tiles[n], 64 tiles[n] + 64)
// those whose bit of words[n] is set, n in [starts[id], ends[id]); tiles ascend, and no word is 0.
// Rows that see the same keys share an id. ids == nullptr: there are no patterns.
struct PatternRule {
  const int32_t* ids;
  int64_t batch_stride, head_stride;
  const int64_t *starts, *ends;
  const int32_t* tiles;
  const uint64_t* words;
};

// What only the device knows of the keys that rows see, as an earlier kernel of the stream left it.
struct SeenRules {
  PatternRule patterns{};                // take the place of those of the host
  const int32_t* row_lengths = nullptr;  // [batch, q_len]: how many keys a row sees
};

// What a row carries: the largest score and the sum of exp(score - it); for pointwise normalisers
// `max` stays 0 and `sum` counts the visible keys.
struct alignas(8) RowState {
  float max;
  float sum;
};

// What all calls read stands together, in front: parameters arrive 64 bytes at a time, and short
// calls wait for each.
struct AttentionParams {
  // The schedule (plan.h).
  int64_t rows;  // group * q_len
  int64_t row_blocks;
  int64_t units;  // batch * num_kv_heads
  // [batch + 1]: the KV heads of entry b have split_starts[b + 1] - split_starts[b] splits each,
  // and those of all entries before it split_starts[b]. nullptr: absent.
  const int32_t* split_starts;
  int32_t splits;  // of every unit, where split_starts are absent

  int32_t batch, num_heads, num_kv_heads, group, q_len, kv_len;
  float scale;
  RowRules rules;
  DeviceRows q, k, v;
  // Results of splits (SplitsOf): [parts, rows, head_dim_v] sums of weighted values, aligned to 16
  // bytes, and [parts, rows].
  float* split_values;
  RowState* split_states;
  // [row_blocks, units]: how many splits are done. The last one merges. 0 before and after the
  // kernel. nullptr: a second kernel merges.
  uint32_t* counters;
  const float* sinks;  // [num_heads] or nullptr
  Normalize normalize;
  DeviceOutput output;  // data == nullptr: there are no values
  DeviceOutput lse;     // floats; data == nullptr: not asked for
  Fault* fault;

  float softcap;                     // 0: off
  float sigmoid_bias, length_power;  // of Normalize::kSigmoid, of the relus
  DevicePairs<float> bias;
  DevicePairs<uint8_t> keep;
  const float* alibi_slopes;  // [num_heads] or nullptr
  DocumentRule documents;
  PatternRule patterns;
  DropoutRule dropout;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ATTENTION_PARAMS_H_
