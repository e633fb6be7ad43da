// Trains a language model on token ids. language_model/train.mjs makes those from a text, calls
// this and reads the lines that it prints, one JSON object each.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "heed/training.h"
#include "language_model/sharded_trainer.h"
#include "language_model/token_windows.h"

namespace heed::language_model {
namespace {

// Parts of a batch that are computed side by side. Another number gives other bits.
constexpr int kShards = 2;

struct Options {
  std::string train_file, held_out_file, weights_file;
  training::TransformerOptions model{};
  training::AdamWOptions optimizer{};
  int64_t context = 256;
  int64_t batch = 8;
  int64_t passage = 0;
  int64_t evaluate_every = 250;
  int threads = 2;
};

// Ids as 16-bit numbers, low byte first.
std::vector<int32_t> ReadTokens(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error(path + " cannot be read");
  std::vector<int32_t> tokens(bytes.size() / 2);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint8_t low = static_cast<uint8_t>(bytes[2 * i]);
    const uint8_t high = static_cast<uint8_t>(bytes[2 * i + 1]);
    tokens[i] = low | high << 8;
  }
  return tokens;
}

// Beside the old file and then over it, so that an interrupted run leaves a whole one.
void WriteFile(const std::string& path, const std::vector<uint8_t>& bytes) {
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<int64_t>(bytes.size()));
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    throw std::runtime_error(path + " cannot be written");
  }
}

// The loss of steps since the last line, and how fast they went.
class Progress {
 public:
  void Add(const training::StepResult& result, size_t tokens) {
    loss_ += result.loss;
    tokens_ += tokens;
    ++steps_;
  }

  void Print(const training::StepResult& last, double held_out_loss) {
    const std::chrono::duration<double> elapsed = Clock::now() - since_;
    std::printf(
        "{\"step\": %lld, \"loss\": %.4f, \"heldOutLoss\": %.4f, \"learningRate\": %.3g, "
        "\"tokensPerSecond\": %.0f}\n",
        static_cast<long long>(last.step), loss_ / steps_, held_out_loss, last.learning_rate,
        static_cast<double>(tokens_) / elapsed.count());
    std::fflush(stdout);
  }

  // Starts the clock: what is measured between two lines is training alone.
  void Restart() { *this = Progress(); }

 private:
  using Clock = std::chrono::steady_clock;

  double loss_ = 0;
  size_t tokens_ = 0;
  int64_t steps_ = 0;
  Clock::time_point since_ = Clock::now();
};

// What the file itself says of the texts, not the model that it was rounded from.
void PrintResult(const std::vector<uint8_t>& file, const Options& options,
                 std::span<const int32_t> train, std::span<const int32_t> held_out,
                 ThreadPool* pool) {
  const auto model = training::Transformer::Load(file);
  const auto loss = [&](std::span<const int32_t> tokens) {
    return MeanLoss(*model, tokens, options.context, options.batch, pool);
  };
  const double train_loss = loss(train.first(std::min(train.size(), held_out.size())));
  const double held_out_loss = loss(held_out);
  const double passage_loss = loss(held_out.first(static_cast<size_t>(options.passage)));
  std::printf(
      "{\"parameters\": %lld, \"trainLoss\": %.6f, \"heldOutLoss\": %.6f, "
      "\"passageLoss\": %.6f}\n",
      static_cast<long long>(model->parameters().NumElements()), train_loss, held_out_loss,
      passage_loss);
}

void CheckPassage(const Options& options, std::span<const int32_t> held_out) {
  const int64_t most = std::min(options.context, static_cast<int64_t>(held_out.size()));
  if (options.passage >= 2 && options.passage <= most) return;
  throw std::runtime_error("--passage " + std::to_string(options.passage) +
                           ": expected at least 2 and at most " + std::to_string(most) + " tokens");
}

void Train(const Options& options) {
  const std::vector<int32_t> train = ReadTokens(options.train_file);
  const std::vector<int32_t> held_out = ReadTokens(options.held_out_file);
  CheckPassage(options, held_out);
  const std::unique_ptr<ThreadPool> pool = MakeThreadPool(options.threads);
  const std::unique_ptr<ThreadPool> alone = MakeThreadPool(1);

  ShardedTrainer trainer(options.model, options.optimizer, kShards);
  ShuffledWindows windows(train, options.context, options.model.seed);
  WindowBatch batch;
  Progress progress;
  const auto evaluate = [&] {
    return MeanLoss(trainer.model(), held_out, options.context, options.batch, alone.get());
  };
  const int64_t steps = options.optimizer.schedule.total_steps;
  for (int64_t step = 1; step <= steps; ++step) {
    windows.Next(options.batch, batch);
    const training::StepResult result = trainer.Step(batch, *pool);
    if (result.diverged) throw std::runtime_error("the training diverged; see --learning-rate");
    progress.Add(result, batch.tokens.size());
    if (step % options.evaluate_every != 0 && step != steps) continue;
    WriteFile(options.weights_file, trainer.model().Save(DType::kBFloat16));
    progress.Print(result, evaluate());
    progress.Restart();
  }
  PrintResult(trainer.model().Save(DType::kBFloat16), options, train, held_out, alone.get());
}

void AddOptions(CLI::App& app, Options& options) {
  training::Schedule& schedule = options.optimizer.schedule;
  app.add_option("--train", options.train_file, "Token ids to learn from")->required();
  app.add_option("--held-out", options.held_out_file, "Token ids never learned from")->required();
  app.add_option("--weights", options.weights_file, "The safetensors file to write")->required();
  app.add_option("--vocabulary", options.model.vocabulary, "Number of tokens")->required();
  app.add_option("--embed-dim", options.model.embed_dim, "Numbers a token");
  app.add_option("--layers", options.model.num_layers, "Blocks");
  app.add_option("--heads", options.model.num_heads, "Heads a block");
  app.add_option("--ff-dim", options.model.ff_dim, "Hidden numbers of the feed-forward networks");
  app.add_option("--passage", options.passage, "Held-out tokens whose loss is told too")
      ->required();
  app.add_option("--context", options.context, "Tokens a window");
  app.add_option("--batch", options.batch, "Windows a step")->check(CLI::PositiveNumber);
  app.add_option("--steps", schedule.total_steps, "Steps")->required();
  app.add_option("--warmup", schedule.warmup_steps, "Steps until the rate is full");
  app.add_option("--learning-rate", schedule.learning_rate, "The full rate");
  app.add_option("--last-learning-rate", schedule.min_learning_rate,
                 "What a cosine takes it down to");
  app.add_option("--weight-decay", options.optimizer.weight_decay, "Of matrices");
  app.add_option("--beta2", options.optimizer.beta2, "Decay of the squared gradients' mean");
  app.add_option("--evaluate-every", options.evaluate_every, "Steps between lines and files")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.model.seed, "Of the first weights and of the order");
  app.add_option("--threads", options.threads, "They change no bit of the result");
}

}  // namespace
}  // namespace heed::language_model

int main(int argc, char** argv) {
  CLI::App app("Trains a small language model with heed::training.");
  heed::language_model::Options options;
  options.model.tied = true;
  heed::language_model::AddOptions(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    options.model.max_len = options.context;
    heed::language_model::Train(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heed-language-model: %s\n", error.what());
    return 1;
  }
}
