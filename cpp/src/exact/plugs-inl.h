// The sockets of one problem and what fills them. The plugs themselves are compiled apart, in
// plugs.cc, plugs_score.cc, plugs_normalize.cc and plugs_rows.cc: loops know only the sockets.
#if defined(HEED_EXACT_PLUGS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_PLUGS_INL_H_
#undef HEED_EXACT_PLUGS_INL_H_
#else
#define HEED_EXACT_PLUGS_INL_H_
#endif

#include <memory>
#include <vector>

#include "src/exact/keep/keep.h"
#include "src/exact/modify/modify-inl.h"
#include "src/exact/normalize/normalize-inl.h"
#include "src/exact/normalize/rows-inl.h"
#include "src/exact/problem.h"
#include "src/exact/relative_values-inl.h"
#include "src/exact/score/score-inl.h"
#include "src/exact/weights/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// The four sockets, filled. Shared by all threads, never written after construction.
struct Plugs {
  std::unique_ptr<ScorePlug> score;
  std::unique_ptr<Modify> softcap;                // apart, because scores can be asked for after it
  std::vector<std::unique_ptr<Modify>> additive;  // ALiBi, bias, user function
  KeepPlugs keep;                                 // range plugs live in the rows
  // One of the two: a normaliser that streams, or one that needs whole rows.
  std::unique_ptr<NormalizePlug> normalize;
  std::unique_ptr<RowNormalize> rows;
  std::vector<std::unique_ptr<WeightPlug>> weights;  // between normalize and the values, in order
  std::unique_ptr<RelativeValues> relative_values;
};

// Reads the options. May throw std::bad_alloc.
Plugs MakePlugs(const AttentionProblem& p);

// The parts of it.
std::unique_ptr<ScorePlug> MakeScore(const AttentionProblem& p);
// nullptr for a normaliser that needs whole rows.
std::unique_ptr<NormalizePlug> MakeNormalize(const AttentionProblem& p);
// nullptr for a normaliser that streams.
std::unique_ptr<RowNormalize> MakeRowNormalize(const AttentionProblem& p);

// Are the products of the call those of bfloat16 pairs? Where everything is stored so, output too,
// and the processor has an instruction for it. Only for weights that sum to 1 at most: their
// rounding is then as small as that of the output. Few rows use their tiles too little to pack
// them.
inline bool MultipliesPairs([[maybe_unused]] const AttentionProblem& p) {
#if HWY_NATIVE_DOT_BF16
  const AttentionOptions& o = p.options;
  const bool stored = p.q.dtype == DType::kBFloat16 && p.k.dtype == DType::kBFloat16 &&
                      p.v.dtype == DType::kBFloat16 && p.output.dtype == DType::kBFloat16;
  const bool sums_to_one =
      (o.normalize == Normalize::kSoftmax || o.normalize == Normalize::kSoftmax1) && !o.prob_mod &&
      o.dropout.p == 0;
  return stored && sums_to_one && p.cached_k == nullptr && o.score == Score::kDot &&
         !HasRelativeScore(o) && p.q_len * p.group > static_cast<int64_t>(kScoreRows);
#else
  return false;
#endif
}

// Can the scores be kept in units of log2(e)? Only if no plug and no output reads them.
inline bool FoldsLog2E(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  const bool exponential = o.normalize == Normalize::kSoftmax ||
                           o.normalize == Normalize::kSoftmax1 ||
                           (o.normalize == Normalize::kKernelSum && o.kernel == Kernel::kGaussian);
  return exponential && !o.softcap && !o.bias.has_value() && o.alibi_slopes.empty() &&
         !o.distance_bias.has_value() && !o.bucket_bias.has_value() && !o.log_gates.has_value() &&
         !o.score_mod && !p.outputs.scores.has_value() && !p.outputs.running_max.has_value();
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_PLUGS_INL_H_
