// Which keys a row may see as one interval: causal, window, lengths and prefix on the device. The
// same rules as cpp/src/exact/keep/range.h, whose arrays are in host memory.
#ifndef HEED_SRC_CUDA_ROW_RULES_H_
#define HEED_SRC_CUDA_ROW_RULES_H_

#include <cstdint>

#include "src/cuda/device.h"

namespace heed::cuda {

// Keys [begin, end); 0, 0 when there is none.
struct RowKeys {
  int32_t begin;
  int32_t end;
};

struct RowRules {
  bool causal;
  int64_t window_left, window_right;  // keys beside the position; negative: no limit
  int64_t offset;                     // the position of query 0, where it is the same for all
  const int64_t* offsets;             // [batch] or nullptr
  bool offset_is_end;                 // key_lengths[b] - q_len, for lengths the host cannot read
  const int32_t* key_lengths;         // [batch] or [batch, q_len], or nullptr
  bool lengths_per_query;
  const int32_t* prefix_lengths;  // [batch] or nullptr
};

// The length of a row as it stands in memory, which may be anything when it came from the device.
HEED_DEVICE int32_t StoredLength(const RowRules& rules, int b, int i, int32_t q_len,
                                 int32_t kv_len) {
  if (rules.key_lengths == nullptr) return kv_len;
  const int64_t at = rules.lengths_per_query ? static_cast<int64_t>(b) * q_len + i : b;
  return rules.key_lengths[at];
}

HEED_DEVICE int32_t ClampToKeys(int64_t key, int32_t kv_len) {
  return static_cast<int32_t>(key < 0 ? 0 : key > kv_len ? kv_len : key);
}

// The place of query i among the keys; `length` is that of its row, within [0, kv_len].
HEED_DEVICE int64_t PositionOf(const RowRules& rules, int b, int i, int32_t q_len, int32_t length) {
  if (rules.offset_is_end) return static_cast<int64_t>(length) - q_len + i;
  return (rules.offsets != nullptr ? rules.offsets[b] : rules.offset) + i;
}

// Keys [begin, end) of a row; there are none where end <= begin. Of rows of one batch entry and
// length, both grow with the position.
HEED_DEVICE RowKeys BoundsOfRow(const RowRules& rules, int b, int64_t position, int32_t length,
                                int32_t kv_len) {
  int64_t begin = 0;
  int64_t end = length;
  const auto limit = [&end](int64_t other) { end = other < end ? other : end; };
  if (rules.causal) limit(position + 1);
  if (rules.window_left >= 0) begin = position - rules.window_left;
  if (rules.window_right >= 0) limit(position + rules.window_right + 1);
  if (rules.prefix_lengths != nullptr) {
    const int64_t prefix = rules.prefix_lengths[b];
    limit(prefix > position + 1 ? prefix : position + 1);
  }
  return {ClampToKeys(begin, kv_len), ClampToKeys(end, kv_len)};
}

HEED_DEVICE RowKeys KeysOfRow(const RowRules& rules, int b, int64_t position, int32_t length,
                              int32_t kv_len) {
  const RowKeys keys = BoundsOfRow(rules, b, position, length, kv_len);
  return keys.begin < keys.end ? keys : RowKeys{0, 0};
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ROW_RULES_H_
