// The part of the boundary that belongs to the normalisers and to dropout.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "heed/error.h"
#include "src/exact/normalize/sigmoid_bias.h"
#include "src/exact/problem.h"
#include "src/exact/tile.h"
#include "src/from_javascript.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

static_assert(kAttentionTileKeys == static_cast<int64_t>(kTileKeys));

void CheckKernelSum(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  if (o.score != Score::kSquaredDistance) {
    Fail(ErrorCode::kUnsupported,
         "kernel sums need Score::kSquaredDistance: a kernel is a function of the distance");
  }
  if (o.score_mod || o.softcap || o.bias.has_value() || !o.alibi_slopes.empty() ||
      !o.sinks.empty() || o.distance_bias.has_value() || o.bucket_bias.has_value() ||
      o.log_gates.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "softcap, biases of all kinds, log_gates, alibi_slopes, sinks and score_mod act on "
         "logits; a kernel sum has none");
  }
}

// Denominators: who has one, and who may add to it.
void CheckDenominator(const AttentionOptions& o, bool wants_lse) {
  if (wants_lse && !HasLse(o)) {
    Fail(ErrorCode::kUnsupported,
         o.normalize == Normalize::kKernelSum
             ? "lse is the log of a softmax denominator; of the kernels only gaussian has one"
             : "lse is the log of a softmax denominator; this normaliser has none");
  }
  if (o.sinks.empty()) return;
  if (o.normalize == Normalize::kSoftmax1) {
    Fail(ErrorCode::kUnsupported,
         "sinks with Normalize::kSoftmax1, which is a sink of 0 itself; use kSoftmax");
  }
  if (!HasLse(o)) {
    Fail(ErrorCode::kUnsupported,
         "sinks are logits in a softmax denominator; this normaliser has none");
  }
}

void CheckCopeTable(const AttentionProblem& p) {
  const TensorView<const float>& table = p.options.cope_table;
  if (p.options.normalize != Normalize::kCope) {
    if (!table.has_value()) return;
    Fail(ErrorCode::kOption, "cope_table is read only by contextual positions (cope)");
  }
  if (!table.has_value()) {
    Fail(ErrorCode::kOption, "cope_table is missing: contextual positions (cope) need it");
  }
  CheckInput("cope_table", table);
  const Extents& shape = table.shape;
  if (shape[0] != 1 || (shape[1] != 1 && shape[1] != p.num_heads) || shape[2] < 1 ||
      shape[3] != p.head_dim) {
    Fail(ErrorCode::kShape,
         "cope_table has shape {}; expected [1, 1 or num_heads = {}, num_positions >= 1, head_dim "
         "= {}]",
         {shape, p.num_heads, p.head_dim});
  }
}

}  // namespace

bool HasLse(const AttentionOptions& o) {
  switch (o.normalize) {
    case Normalize::kSoftmax:
    case Normalize::kSoftmax1:
    case Normalize::kTopK:
    case Normalize::kCope:
      return true;
    case Normalize::kKernelSum:
      return o.kernel == Kernel::kGaussian;
    default:
      return false;
  }
}

void CheckDropout(const Dropout& dropout, const Extents& pairs) {
  if (!(dropout.p >= 0) || !(dropout.p < 1)) {
    Fail(ErrorCode::kRange, "dropout p = {}; it must lie in [0, 1)", {dropout.p});
  }
  constexpr int64_t kWords = int64_t{1} << 32;
  for (size_t n = 0; n < 4; ++n) {
    const int64_t most = n == 3 ? 4 * kWords : kWords;
    const int64_t first = kFromJavaScript ? 0 : dropout.origin[n];
    if (first < 0 || first > most || (n == 3 && first % 4 != 0)) {
      Fail(ErrorCode::kRange,
           "dropout origin = {}; places are not negative, and that of the key is a multiple of 4",
           {dropout.origin});
    }
    if (dropout.p > 0 && pairs[n] > most - first) {
      Fail(ErrorCode::kUnsupported,
           "dropout counts batch entries, heads and queries with 32 bits each");
    }
  }
}

void CheckNormalize(AttentionProblem& p, bool wants_lse) {
  const AttentionOptions& o = p.options;
  CheckEnum("normalize", o.normalize, Normalize::kCope);
  CheckEnum("kernel", o.kernel, Kernel::kConstant);
  if (o.normalize == Normalize::kKernelSum) CheckKernelSum(p);
  CheckDenominator(o, wants_lse);
  CheckCopeTable(p);
  if (o.top_k < 1) {
    Fail(ErrorCode::kRange, "top_k = {}; it must be at least 1", {o.top_k});
  }
  p.sigmoid_bias =
      o.sigmoid_bias ? static_cast<float>(*o.sigmoid_bias) : DefaultSigmoidBias(p.kv_len);
  CheckFinite("sigmoid_bias", p.sigmoid_bias);
  CheckFinite("length_power", o.length_power);
  CheckDropout(o.dropout, {p.batch, p.num_heads, p.q_len, p.kv_len});
}

}  // namespace heed
