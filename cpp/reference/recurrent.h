// The recurrence that the recurrent family shares, token by token, in float64.
#ifndef HEED_REFERENCE_RECURRENT_H_
#define HEED_REFERENCE_RECURRENT_H_

#include <functional>
#include <optional>
#include <vector>

#include "inputs.h"

namespace heed::reference {

enum class Side { kQuery, kKey };

// Whose row it is: token t of batch entry b, of query head h or KV head h.
struct Place {
  Side side;
  int64_t b, h, t;
};

// The features of a row.
using RowFeatures = std::function<std::vector<double>(std::vector<double> row, const Place& place)>;

// What a row of the family fixes.
struct Recurrence {
  RowFeatures features;       // empty = identity
  int64_t feature_dim = 0;    // 0 = head_dim
  bool log_features = false;  // they are logarithms: the state is kept relative to the largest
  bool normalize = false;
  bool delta = false;
  bool causal = true;
  double scale = 1;
  std::optional<Array> log_decay;  // [batch, num_kv_heads, len, 1 or head_dim]
  std::optional<Array> beta;       // [batch, num_kv_heads, len, 1]
  std::vector<double> skip;        // per query head
  // [batch, num_kv_heads, len, head_dim]: the direction that is erased, and its rates by channel.
  std::optional<Array> erase_key, erase_rate;
  bool reads_first = false;   // tokens read before they decay and write
  std::vector<double> bonus;  // [num_heads, head_dim]: and what they get of their own value then
};

// Feature maps by name: "identity", "elu_plus_one", "relu", "softmax", "unit".
RowFeatures FeaturesByName(const std::string& name);

// key_lengths, `len` for every batch entry when absent.
std::vector<int64_t> ReadKeyLengths(const Request& request, int64_t batch, int64_t len);

// An input of shape [batch, num_kv_heads, len] as [batch, num_kv_heads, len, 1].
std::optional<Array> ReadPerToken(const Request& request, std::string_view name, const Qkv& qkv);
// An input of shape [batch, num_kv_heads, len, head_dim].
Array ReadPerChannel(const Request& request, std::string_view name, const Qkv& qkv);

// 1 / sqrt(head_dim), or what the request says.
double ReadScale(const Request& request, const Qkv& qkv, std::optional<double> fallback = {});

// head_log_decay, or rate(head), as [1, num_kv_heads, 1, 1].
Array ReadRates(const Request& request, const Qkv& qkv, const std::function<double(int64_t)>& rate);

// What estimates of softmax attention have in common: weights that sum to 1, causal or not.
Recurrence Estimate(const Request& request);

// position_offset, one value a batch entry (at least one).
std::vector<int64_t> ReadOffsets(const Request& request, int64_t batch);

// What delta rules have in common: qk_norm, beta and scale.
Recurrence DeltaRule(const Request& request, const Qkv& qkv);

// Reads key_lengths, initial_state, chunk_len and return_state, and runs all tokens.
std::vector<Result> RunRecurrence(const Request& request, const Qkv& qkv, const Recurrence& r);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_RECURRENT_H_
