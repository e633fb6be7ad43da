// Text as a model meets it: windows of token ids, each to be continued by one.
#ifndef HEED_LANGUAGE_MODEL_TOKEN_WINDOWS_H_
#define HEED_LANGUAGE_MODEL_TOKEN_WINDOWS_H_

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "heed/thread_pool.h"
#include "heed/training.h"

namespace heed::language_model {

// `batch` windows of equal length, one after the other; targets[i] is what follows tokens[i], or
// -1 where nothing does.
struct WindowBatch {
  int64_t batch = 0;
  std::vector<int32_t> tokens{}, targets{};

  training::TokenBatch view() const { return {.batch = batch, .tokens = tokens}; }
};

// Windows of a text in random order. In an epoch each is met once; every epoch cuts the text at
// other places, so that no token is always the first of its window.
class ShuffledWindows {
 public:
  // `tokens` must outlive it. Throws Error(kRange) unless 1 <= context < number of tokens.
  ShuffledWindows(std::span<const int32_t> tokens, int64_t context, uint64_t seed);

  // Fills `windows` with the next `batch` windows. Same seed, same windows.
  void Next(int64_t batch, WindowBatch& windows);

 private:
  void StartEpoch();

  std::span<const int32_t> tokens_;
  int64_t context_;
  std::mt19937_64 random_;
  std::vector<int64_t> starts_;  // of the windows that this epoch has yet to show, last one next
};

// The mean loss in nats a token over all of `tokens` but the first, which nothing precedes: windows
// of `context` tokens side by side, `batch` at a time, each read without what stands before it.
// Throws Error(kRange) for fewer than two tokens, and what Transformer::Forward() throws.
double MeanLoss(training::Transformer& model, std::span<const int32_t> tokens, int64_t context,
                int64_t batch, ThreadPool* pool = nullptr);

}  // namespace heed::language_model

#endif  // HEED_LANGUAGE_MODEL_TOKEN_WINDOWS_H_
