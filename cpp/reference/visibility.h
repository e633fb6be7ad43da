// Which keys a query of the oracle may see, decided one pair at a time.
#ifndef HEED_REFERENCE_VISIBILITY_H_
#define HEED_REFERENCE_VISIBILITY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "formula.h"
#include "inputs.h"
#include "patterns.h"

namespace heed::reference {

// The keep rules of a request: keep, key_lengths, causal, window_left, window_right, patterns, and
// the query_offset that gives causal, window, patterns and ALiBi a position. All rules hold
// together.
class Visibility {
 public:
  // Reads and checks the rules. Throws Error(kOption), naming both choices, when a rule needs
  // positions, q_len != kv_len, and the request has no query_offset.
  Visibility(const Request& request, const Qkv& qkv);

  // Whether query i of head h may see key j.
  bool operator()(int64_t b, int64_t h, int64_t i, int64_t j) const;

  // How many keys the length rules leave query i.
  int64_t Length(int64_t b, int64_t i) const { return lengths_[b * q_len_ + i]; }

  // The position of query i among the keys.
  int64_t Position(int64_t b, int64_t i) const { return i + offsets_[b]; }

 private:
  void ReadLengths(const Request& request, const Qkv& qkv);
  void ReadOffsets(const Request& request, const Qkv& qkv);

  bool causal_;
  std::optional<int64_t> window_left_;
  std::optional<int64_t> window_right_;
  std::optional<Array> keep_;
  std::optional<Formula> keep_mod_;
  int64_t q_len_;
  std::vector<int64_t> lengths_;  // [batch, q_len]
  std::vector<int64_t> offsets_;  // [batch]
  std::vector<PairRule> patterns_;
};

}  // namespace heed::reference

#endif  // HEED_REFERENCE_VISIBILITY_H_
