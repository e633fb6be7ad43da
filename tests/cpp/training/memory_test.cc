// Too little memory is heed's error, wherever a training step runs into it.
#include <cstdint>
#include <string>
#include <vector>

#include "allocations.h"
#include "gtest/gtest.h"
#include "heed/error.h"
#include "heed/training.h"
#include "training/plain.h"

namespace heed::testing {
namespace {

using training::Matrix;

// Calls body() with less and less memory until none fails; every failure must be heed's.
template <class Body>
void ExpectMemoryErrors(const Body& body) {
  int failures = 0;
  for (size_t bytes = 256; bytes < (size_t{1} << 30); bytes *= 2) {
    try {
      const LargestAllocation limit(bytes);
      body();
      break;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMemory) << error.what();
      ++failures;
    }
  }
  EXPECT_GT(failures, 0);
}

TEST(TrainingMemory, LossesThatDoNotFitAreAnError) {
  const Matrix logits = RandomMatrix(30000, 3, 1);
  const std::vector<int32_t> targets(30000, 1);
  ExpectMemoryErrors([&] {
    Matrix d;
    training::CrossEntropy(logits, targets, d);
  });
  const Matrix wide = RandomMatrix(700, 16384, 2);
  Matrix d(700, 16384);
  ExpectMemoryErrors([&] { training::MeanSquaredError(wide, wide, d); });
}

TEST(TrainingMemory, LayersThatDoNotFitAreAnError) {
  training::ParameterSet parameters(1);
  training::EmbeddingLayer embedding(parameters, "table", 5, 1, 1);
  training::NormLayer norm(parameters, "norm", {.dim = 1});
  const std::vector<int32_t> ids(30000, 2);
  ExpectMemoryErrors([&] { norm.Backward(norm.Forward(embedding.Forward(ids))); });
}

}  // namespace
}  // namespace heed::testing
