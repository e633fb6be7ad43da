// What a reader of the docs has at hand: tensors of numbers, and tensors that results go into.
#ifndef HEED_TESTS_DOCS_AT_HAND_H_
#define HEED_TESTS_DOCS_AT_HAND_H_

#include <heed/heed.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

inline std::list<std::vector<float>>& Inputs() {
  static std::list<std::vector<float>> memory;
  return memory;
}

inline std::list<std::vector<float>>& Results() {
  static std::list<std::vector<float>> memory;
  return memory;
}

// Random numbers, [batch, heads, len, dim].
inline heed::TensorView<const float> Numbers(int64_t batch, int64_t heads, int64_t len,
                                             int64_t dim) {
  static std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float>& values =
      Inputs().emplace_back(static_cast<size_t>(batch * heads * len * dim));
  for (float& value : values) value = normal(generator);
  return heed::Contiguous<const float>(values.data(), batch, heads, len, dim);
}

// A tensor of a checkpoint.
inline heed::NamedTensor Named(std::string name, std::vector<int64_t> shape) {
  const int64_t size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  std::vector<float>& values = Inputs().emplace_back(static_cast<size_t>(size), 0.01f);
  return {std::move(name), heed::ContiguousTensor(heed::DType::kFloat32, values.data(), shape)};
}

// NaN that an example is to write over.
inline heed::TensorView<float> Result(int64_t batch, int64_t heads, int64_t len, int64_t dim) {
  std::vector<float>& values =
      Results().emplace_back(static_cast<size_t>(batch * heads * len * dim), NAN);
  return heed::Contiguous(values.data(), batch, heads, len, dim);
}

inline bool AllWritten() {
  for (const std::vector<float>& values : Results()) {
    for (float value : values) {
      if (!std::isfinite(value)) return false;
    }
  }
  return !Results().empty();
}

#endif  // HEED_TESTS_DOCS_AT_HAND_H_
