// A model that learns to say what comes next, with the training kit as a stranger links it.
#include <heed/training.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  heed::training::TransformerOptions config;
  config.vocabulary = 4;
  config.embed_dim = 16;
  config.num_layers = 1;
  config.num_heads = 2;
  config.max_len = 4;
  heed::training::Transformer model(config);
  heed::training::Trainer trainer(model, {});

  const std::vector<int32_t> tokens = {0, 1, 2, 3}, targets = {1, 2, 3, 0};
  double first = 0, last = 0;
  for (int step = 0; step < 50; ++step) {
    last = trainer.Step({1, tokens}, targets).loss;
    if (step == 0) first = last;
  }
  std::printf("loss %.3f, then %.3f\n", first, last);
  return last < first / 2 ? 0 : 1;
}
