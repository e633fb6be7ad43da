#include "src/message.h"
#include "src/selective/selective_problem.h"

namespace heed {

void CheckCount(std::string_view name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return;
  Fail(ErrorCode::kRange, "{} = {}; it must lie in [1, {}]", {name, value, most});
}

void CheckLengthsOfBatch(std::span<const int32_t> key_lengths, int64_t batch) {
  if (key_lengths.size() <= static_cast<size_t>(batch)) return;
  Fail(
      ErrorCode::kUnsupported,
      "key_lengths has {} values; keys are chosen from what exists for the whole batch entry: give "
      "one length each ({})",
      {key_lengths.size(), batch});
}

void CheckChoosable(const AttentionOptions& o, int64_t batch) {
  CheckKeepRules(o);
  CheckLengthsOfBatch(o.key_lengths, batch);
}

void CheckKeepRules(const AttentionOptions& o) {
  const char* refused = nullptr;
  if (o.window) refused = "window";
  if (o.keep.has_value()) refused = "keep";
  if (o.keep_mod) refused = "keep_mod";
  if (!o.patterns.empty()) refused = "patterns";
  if (!o.prefix_lengths.empty()) refused = "prefix_lengths";
  if (!o.query_documents.empty() || !o.key_documents.empty()) refused = "documents";
  if (refused != nullptr) {
    Fail(ErrorCode::kUnsupported,
         "{}: choices look at causal and key_lengths alone, and would fall on keys that it hides",
         {refused});
  }
  if (o.score != Score::kDot) {
    Fail(ErrorCode::kUnsupported, "score: keys are chosen by dot products, and attended by them");
  }
}

}  // namespace heed
