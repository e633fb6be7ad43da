// The recurrence that the recurrent family shares, token by token, in float64.
#ifndef HEED_REFERENCE_RECURRENT_H_
#define HEED_REFERENCE_RECURRENT_H_

#include <functional>
#include <optional>
#include <vector>

#include "inputs.h"

namespace heed::reference {

// What a row of the family fixes.
struct Recurrence {
  std::function<void(std::vector<double>&)> features;  // of q and k; empty = identity
  bool normalize = false;
  bool delta = false;
  bool causal = true;
  double scale = 1;
  std::optional<Array> log_decay;  // [batch, num_kv_heads, len, 1 or head_dim]
  std::optional<Array> beta;       // [batch, num_kv_heads, len, 1]
  std::vector<double> skip;        // per query head
};

// Feature maps by name: "identity", "elu_plus_one", "relu", "softmax", "unit".
std::function<void(std::vector<double>&)> FeaturesByName(const std::string& name);

// key_lengths, `len` for every batch entry when absent.
std::vector<int64_t> ReadKeyLengths(const Request& request, int64_t batch, int64_t len);

// An input of shape [batch, num_kv_heads, len] as [batch, num_kv_heads, len, 1].
std::optional<Array> ReadPerToken(const Request& request, std::string_view name, const Qkv& qkv);
// An input of shape [batch, num_kv_heads, len, head_dim].
Array ReadPerChannel(const Request& request, std::string_view name, const Qkv& qkv);

// 1 / sqrt(head_dim), or what the request says.
double ReadScale(const Request& request, const Qkv& qkv, std::optional<double> fallback = {});

// What delta rules have in common: key_norm, beta and scale.
Recurrence DeltaRule(const Request& request, const Qkv& qkv);

// Reads key_lengths, initial_state, chunk_len and return_state, and runs all tokens.
std::vector<Result> RunRecurrence(const Request& request, const Qkv& qkv, const Recurrence& r);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_RECURRENT_H_
