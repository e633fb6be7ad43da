#include "language_model/token_windows.h"

#include <algorithm>
#include <string>

#include "heed/error.h"

namespace heed::language_model {
namespace {

void CheckLength(std::span<const int32_t> tokens, int64_t context) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (context >= 1 && context < count) return;
  throw Error(ErrorCode::kRange, "context = " + std::to_string(context) +
                                     "; it must be at least 1 and less than the " +
                                     std::to_string(count) + " tokens of the text");
}

void CheckPositive(const char* name, int64_t value) {
  if (value >= 1) return;
  throw Error(ErrorCode::kRange,
              std::string(name) + " = " + std::to_string(value) + "; it must be at least 1");
}

}  // namespace

ShuffledWindows::ShuffledWindows(std::span<const int32_t> tokens, int64_t context, uint64_t seed)
    : tokens_(tokens), context_(context), random_(seed) {
  CheckLength(tokens, context);
}

void ShuffledWindows::StartEpoch() {
  // The last window still needs one token behind it.
  const int64_t slack = static_cast<int64_t>(tokens_.size()) - 1 - context_;
  const uint64_t offsets = static_cast<uint64_t>(std::min(slack + 1, context_));
  int64_t start = static_cast<int64_t>(random_() % offsets);
  for (; start <= slack; start += context_) starts_.push_back(start);
  // Not std::shuffle, whose order is the library's own.
  for (size_t i = starts_.size(); i > 1; --i) {
    std::swap(starts_[i - 1], starts_[static_cast<size_t>(random_() % i)]);
  }
}

void ShuffledWindows::Next(int64_t batch, WindowBatch& windows) {
  windows.batch = batch;
  windows.tokens.clear();
  windows.targets.clear();
  const size_t length = static_cast<size_t>(context_);
  for (int64_t i = 0; i < batch; ++i) {
    if (starts_.empty()) StartEpoch();
    const size_t start = static_cast<size_t>(starts_.back());
    starts_.pop_back();
    const auto tokens = tokens_.subspan(start, length);
    const auto targets = tokens_.subspan(start + 1, length);
    windows.tokens.insert(windows.tokens.end(), tokens.begin(), tokens.end());
    windows.targets.insert(windows.targets.end(), targets.begin(), targets.end());
  }
}

double MeanLoss(training::Transformer& model, std::span<const int32_t> tokens, int64_t context,
                int64_t batch, ThreadPool* pool) {
  CheckLength(tokens, 1);
  CheckPositive("context", context);
  CheckPositive("batch", batch);
  const size_t last = tokens.size() - 1;
  const size_t step = static_cast<size_t>(context * batch);
  training::Matrix d_logits;
  double sum = 0;
  for (size_t begin = 0; begin < last; begin += step) {
    const size_t left = last - begin;
    const size_t length = std::min(left, static_cast<size_t>(context));
    const size_t count = std::min(static_cast<size_t>(batch), (left + length - 1) / length);
    WindowBatch windows = {.batch = static_cast<int64_t>(count)};
    for (size_t i = begin; i < begin + count * length; ++i) {
      windows.tokens.push_back(i < last ? tokens[i] : 0);
      windows.targets.push_back(i < last ? tokens[i + 1] : -1);
    }
    const training::Matrix& logits = model.Forward(windows.view(), pool);
    const training::Loss loss = training::CrossEntropy(logits, windows.targets, d_logits, pool);
    sum += loss.value * static_cast<double>(loss.counted);
  }
  return sum / static_cast<double>(last);
}

}  // namespace heed::language_model
