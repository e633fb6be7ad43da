#include "src/training/mechanism_row.h"

#include <algorithm>

#include "heed/training/attention_layer.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/word_lists.h"

namespace heed::training {
namespace {

constexpr std::string_view kGates[] = {"beta", "log_decay", "channel_log_decay", "log_gates"};
constexpr std::string_view kLearned[] = {"sinks", "skip", "bonus", "score_matrix"};
constexpr std::string_view kProjected[] = {"q", "k", "v"};

template <class Names>
bool Contains(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Those of `names` that the row needs, or in the recurrent family may have.
template <class Names>
std::vector<std::string_view> Made(const Mechanism& row, const Names& names) {
  std::vector<std::string_view> made;
  for (std::string_view words = row.inputs; !words.empty();) {
    std::string_view word = NextWord(words);
    const bool optional = word.ends_with('?');
    if (optional) word.remove_suffix(1);
    if (Contains(names, word) && (!optional || row.family == "recurrent")) made.push_back(word);
  }
  return made;
}

// The first input that a row needs and no layer makes, or nothing.
std::string_view FirstLacking(const Mechanism& row) {
  // Optional, as synthetic_scores are: but one of the two has to be given.
  if (HasWord(row.inputs, "synthetic_keys")) return "synthetic_keys";
  for (std::string_view words = row.inputs; !words.empty();) {
    const std::string_view word = NextWord(words);
    if (word.ends_with('?') || Contains(kProjected, word) || Contains(kGates, word) ||
        Contains(kLearned, word)) {
      continue;
    }
    return word;
  }
  return {};
}

// Outputs are sums of values: what a layer shows of its weights rests on it. A model that learns
// gives none.
bool SumsValues(const Mechanism& row) { return !HasWord(row.params, "mini_batch"); }

}  // namespace

const Mechanism& TrainableMechanism(const std::string& id) {
  const Mechanism* row = FindMechanism(id);
  if (row == nullptr) Fail(ErrorCode::kOption, "mechanism: there is no mechanism \"{}\"", {id});
  const std::string_view lacks = FirstLacking(*row);
  if (!lacks.empty()) {
    Fail(ErrorCode::kUnsupported, "mechanism: \"{}\" needs {}, which an attention layer has not",
         {id, lacks});
  }
  if (!SumsValues(*row)) {
    Fail(ErrorCode::kUnsupported, "mechanism: outputs of \"{}\" are no sums of values", {id});
  }
  // Smaller builds leave gradients out that others have.
  if (HasWord(row->capabilities, "gradient")) return *row;
  Fail(ErrorCode::kUnsupported, "mechanism: \"{}\" has no gradient in this build of heed", {id});
}

std::vector<std::string_view> TrainableMechanisms() {
  return WithMemoryErrors("a list of mechanisms", [&] {
    std::vector<std::string_view> ids;
    for (const Mechanism& row : Mechanisms()) {
      const bool has_gradient = HasWord(row.capabilities, "gradient");
      if (has_gradient && SumsValues(row) && FirstLacking(row).empty()) ids.push_back(row.id);
    }
    return ids;
  });
}

std::vector<std::string_view> GateInputs(const Mechanism& row) { return Made(row, kGates); }

std::vector<std::string_view> LearnedInputs(const Mechanism& row) { return Made(row, kLearned); }

bool HasUnboundedOutputs(const Mechanism& row) {
  return row.family == "recurrent" && !HasWord(row.capabilities, "approximates");
}

}  // namespace heed::training
