// Calls whose outputs lie over something: every output of a function is laid over every other
// argument in turn, one element of both in the same place, and has to be refused by both names.
#ifndef HEED_TESTS_ALIASES_PLACES_H_
#define HEED_TESTS_ALIASES_PLACES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "heed/tensor.h"

namespace heed::testing {

// The memory of the arguments of a call, by their names in the public headers.
class Places {
 public:
  Places() = default;
  // The last element of `output` lies over the first one of `other`.
  Places(std::string output, std::string other)
      : output_(std::move(output)), other_(std::move(other)) {}

  // Inputs: small numbers that are not 0, times `factor`.
  template <typename T = float>
  TensorView<const T> In(const std::string& name, const Extents& shape, T factor = 1) {
    const auto [batch, heads, len, dim] = shape;
    T* const data = Input<T>(name, batch * heads * len * dim);
    for (int64_t n = 0; n < batch * heads * len * dim; ++n) {
      data[n] = static_cast<T>(factor * (std::is_integral_v<T> ? 1 : (1 + n % 5) / 8.0));
    }
    Remember(name);
    return Contiguous<const T>(data, batch, heads, len, dim);
  }
  std::span<const float> Values(const std::string& name, int64_t count) {
    return {In(name, {1, 1, 1, count}).data, static_cast<size_t>(count)};
  }
  template <typename T = int32_t>
  std::span<const T> Numbers(const std::string& name, std::initializer_list<T> numbers) {
    T* const data = Input<T>(name, static_cast<int64_t>(numbers.size()));
    std::copy(numbers.begin(), numbers.end(), data);
    Remember(name);
    return {data, numbers.size()};
  }

  template <typename T = float>
  TensorView<T> Out(const std::string& name, const Extents& shape) {
    const auto [batch, heads, len, dim] = shape;
    return Contiguous(Output<T>(name, batch * heads * len * dim), batch, heads, len, dim);
  }
  std::span<float> OutValues(const std::string& name, int64_t count) {
    return {Output<float>(name, count), static_cast<size_t>(count)};
  }

  const std::set<std::string>& inputs() const { return inputs_; }
  const std::set<std::string>& outputs() const { return outputs_; }

  // Whether all memory is as it was before the call.
  bool IsUntouched() const;

 private:
  struct Region {
    std::vector<std::byte> now, before;
  };
  static constexpr size_t kMiddle = 1 << 14;

  std::byte* MiddleOf(const std::string& name);
  void Remember(const std::string& name) { regions_[name].before = regions_[name].now; }

  template <typename T>
  T* Input(const std::string& name, int64_t) {
    inputs_.insert(name);
    return reinterpret_cast<T*>(MiddleOf(name));
  }
  template <typename T>
  T* Output(const std::string& name, int64_t count) {
    outputs_.insert(name);
    if (name != output_) return reinterpret_cast<T*>(MiddleOf(name));
    return reinterpret_cast<T*>(MiddleOf(other_)) - (count - 1);
  }

  std::string output_, other_;
  std::set<std::string> inputs_, outputs_;
  std::map<std::string, Region> regions_;
};

struct Function {
  const char* name;  // and what its call is about: "Attention, with patterns"
  void (*call)(Places& places);
  // What errors call an argument where it is not its name in the header.
  std::map<std::string, std::string> spoken{};
};
inline void PrintTo(const Function& function, std::ostream* os) { *os << function.name; }

// "Attention, with patterns" as "AttentionWithPatterns".
std::string NameOf(const ::testing::TestParamInfo<Function>& info);

void ExpectOverlapsAreRefused(const Function& function);

}  // namespace heed::testing

#endif  // HEED_TESTS_ALIASES_PLACES_H_
