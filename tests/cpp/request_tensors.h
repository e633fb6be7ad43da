// Memory for what a request gives: one tensor for each spec.
#ifndef HEED_TESTS_REQUEST_TENSORS_H_
#define HEED_TESTS_REQUEST_TENSORS_H_

#include <deque>
#include <limits>
#include <span>
#include <vector>

#include "heed/request.h"
#include "random.h"
#include "request_builder.h"

namespace heed::testing {

// Contiguous float32 tensors, full of NaN.
class Tensors {
 public:
  explicit Tensors(const std::vector<OutputSpec>& specs) {
    for (const OutputSpec& spec : specs) {
      const std::vector<int64_t> shape(spec.shape.begin(), spec.shape.begin() + spec.rank);
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      std::vector<float>& values =
          values_.emplace_back(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
      named_.push_back({spec.name, ContiguousTensor(DType::kFloat32, values.data(), shape)});
    }
  }
  Tensors(Tensors&&) = default;

  std::span<const NamedTensor> named() const { return named_; }
  std::vector<float>& values(size_t n) { return values_[n]; }
  size_t size() const { return values_.size(); }
  void Draw(Random& random) {
    for (std::vector<float>& values : values_) {
      for (float& x : values) x = random.Normal();
    }
  }
  Values ByName() const {
    Values by_name;
    for (size_t n = 0; n < named_.size(); ++n) {
      by_name[named_[n].name] = {values_[n].begin(), values_[n].end()};
    }
    return by_name;
  }

 private:
  std::deque<std::vector<float>> values_;
  std::vector<NamedTensor> named_;
};

}  // namespace heed::testing

#endif  // HEED_TESTS_REQUEST_TENSORS_H_
