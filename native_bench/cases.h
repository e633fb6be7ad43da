// The grid: which problems are timed, and how much arithmetic each one is.
#ifndef HEED_NATIVE_BENCH_CASES_H_
#define HEED_NATIVE_BENCH_CASES_H_

#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "heed/dtype.h"
#include "heed/registry.h"

namespace heed::bench {

struct Lengths {
  int64_t q_len = 0;
  int64_t kv_len = 0;
  bool operator==(const Lengths&) const = default;
};

struct Heads {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  bool operator==(const Heads&) const = default;
};

enum class Mask { kFull, kCausal };

// "full" or "causal".
const char* MaskName(Mask mask);

// Whether a row is causal without being asked: recurrences, and policies of a cache.
bool IsAlwaysCausal(const std::string& mechanism);

// Where a problem is computed.
enum class Device { kCpu, kCuda };

// "cpu" or "cuda".
const char* DeviceName(Device device);

// One problem. When q_len != kv_len the queries are the last tokens (QueryOffset::End()).
struct Case {
  std::string mechanism;  // an id of heed::Mechanisms()
  int64_t batch = 1;
  Heads heads;
  Lengths lengths;
  int64_t head_dim = 0;
  int64_t head_dim_v = 0;  // of the values; 0 = head_dim
  Mask mask = Mask::kFull;
  std::optional<int64_t> window_left = {};  // keys seen before the query's own position
  std::optional<double> softcap = {};
  bool sinks = false;  // one more logit a head
  // Of --device cuda alone:
  bool alibi = false;                      // AttentionOptions::alibi_slopes
  std::optional<int64_t> key_length = {};  // of every batch entry, AttentionOptions::key_lengths
  bool device_lengths = false;             // DeviceArrays::key_lengths in their place
  DType dtype = DType::kFloat32;  // storage of q, k, v and, but for OutputDType(), the output
  std::string model = {};         // "gpt2:prefill" when it is a named shape
  int threads = 1;                // of the CPU
  Device device = Device::kCpu;

  int64_t ValueDim() const { return head_dim_v > 0 ? head_dim_v : head_dim; }
  int64_t KeyCount() const { return key_length.value_or(lengths.kv_len); }
  // Position of a query among the keys.
  int64_t PositionOf(int64_t query) const { return query + KeyCount() - lengths.q_len; }
  // Storage of the output: bfloat16 of float8, as is the custom, since nobody knows its scale yet.
  DType OutputDType() const { return dtype == DType::kFloat8E4M3 ? DType::kBFloat16 : dtype; }

  // What --filter matches: "scaled_dot_product/h8/d64/l1024/causal/t1", "h32:8" for grouped heads,
  // "d192:128" for values of their own size, "l1x4096" for q_len x kv_len; then "w127", "cap50",
  // "sinks", "alibi", "keys4096" or "device_keys4096" and "bfloat16" where the case has them. The
  // model of a named shape comes first. On a GPU "cuda" stands in place of the threads.
  std::string Name() const;
  bool operator==(const Case&) const = default;
};

// Printed with every report, so that no number stands without its convention.
inline constexpr char kFlopFormula[] =
    "heed::EstimateCost: 2 per multiply-add of the matrix products over the pairs of query and key "
    "that are seen, for peers as for heed; exponentials, masks and normalisation are free";

// 2 * batch * num_heads * pairs * (head_dim + head_dim_v) with pairs = q_len * kv_len, under a
// causal mask half of a square: the size of a problem, which decides how much of it the oracle
// computes.
double FlopCount(const Case& c);

// The axes of the grid; `MakeCases` is their product.
struct Grid {
  std::vector<std::string> mechanisms;
  std::vector<Case> shapes;  // named ones, in place of heads, head_dims, lengths and masks
  int64_t batch = 1;
  std::vector<Heads> heads;
  std::vector<int64_t> head_dims;
  std::vector<Lengths> lengths;
  std::vector<Mask> masks;
  std::vector<DType> dtypes = {DType::kFloat32};
  std::vector<int> threads;
};

// An ECMAScript regular expression of --filter. Throws heed::Error(kOption) for a malformed one.
std::regex CompileFilter(const std::string& filter);

// The cells whose name contains a match of the ECMAScript regular expression `filter` (empty: all),
// mechanisms outermost, then types, threads innermost. Cells that want a parameter or an input
// which the mechanism lacks (`causal`, `softcap`, `sinks`, ...) are left out. Throws
// heed::Error(kOption) for an unknown id or a malformed expression.
std::vector<Case> MakeCases(const Grid& grid, const std::string& filter);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_CASES_H_
