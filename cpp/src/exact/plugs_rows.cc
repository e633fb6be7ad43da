// Which normaliser of whole rows sits in its socket for one problem.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/exact/plugs_rows.cc"
#include <memory>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/exact/normalize/cope-inl.h"
#include "src/exact/normalize/entmax15-inl.h"
#include "src/exact/normalize/hard-inl.h"
#include "src/exact/normalize/sparsemax-inl.h"
#include "src/exact/normalize/stick_breaking-inl.h"
#include "src/exact/normalize/top_k-inl.h"
#include "src/exact/plugs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

std::unique_ptr<RowNormalize> MakeRowNormalize(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  switch (o.normalize) {
    case Normalize::kHard:
      return std::make_unique<Hard>();
    case Normalize::kTopK:
      return std::make_unique<TopK>(o.top_k, o.sinks);
    case Normalize::kSparsemax:
      return std::make_unique<Sparsemax>();
    case Normalize::kEntmax15:
      return std::make_unique<Entmax15>();
    case Normalize::kStickBreaking:
      return std::make_unique<StickBreaking>();
    case Normalize::kCope:
      return std::make_unique<Cope>(o.cope_table, o.sinks);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
