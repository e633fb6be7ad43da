#include "heed/training/parameter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <numbers>
#include <stdexcept>
#include <utility>

#include "hwy/highway.h"
#include "src/simd/philox-inl.h"
#include "src/training/checks.h"

namespace heed::training {
namespace {

// Fowler, Noll and Vo: every byte of the name matters.
uint64_t HashOf(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Two normal numbers of two words.
struct Pair {
  double first, second;
};

Pair Normals(uint32_t a, uint32_t b) {
  const double radius = std::sqrt(-2 * std::log((a + 0.5) * 0x1p-32));
  const double angle = 2 * std::numbers::pi * (b + 0.5) * 0x1p-32;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

void Draw(uint64_t seed, std::string_view name, const Initial& initial, std::vector<float>& to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<uint32_t, 1> d;
  const uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const uint64_t hash = HashOf(name);
  for (size_t at = 0; at < to.size(); at += 4) {
    hn::Vec<decltype(d)> words[4] = {hn::Set(d, static_cast<uint32_t>(at / 4)), hn::Zero(d),
                                     hn::Set(d, static_cast<uint32_t>(hash)),
                                     hn::Set(d, static_cast<uint32_t>(hash >> 32))};
    HWY_NAMESPACE::Philox(d, words, key);
    const Pair low = Normals(hn::GetLane(words[0]), hn::GetLane(words[1]));
    const Pair high = Normals(hn::GetLane(words[2]), hn::GetLane(words[3]));
    const double normals[4] = {low.first, low.second, high.first, high.second};
    for (size_t n = 0; n < std::min<size_t>(4, to.size() - at); ++n) {
      to[at + n] = initial.mean + static_cast<float>(initial.deviation * normals[n]);
    }
  }
}

// On a machine of 32 bits a count may not even fit std::size_t.
bool CanHold(int64_t count) {
  return static_cast<uint64_t>(count) <= std::vector<float>().max_size();
}

int64_t CountOf(const std::string& name, const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 1) {
      Fail(ErrorCode::kShape, "{} has an extent of {}; it must be at least 1", {name, extent});
    }
    if (__builtin_mul_overflow(count, extent, &count)) {
      Fail(ErrorCode::kMemory, "{} has more elements than can be addressed", {name});
    }
  }
  if (!CanHold(count)) {
    Fail(ErrorCode::kMemory, "{} has more elements than can be addressed", {name});
  }
  return count;
}

}  // namespace

Matrix& Matrix::operator=(const Matrix& from) {
  Resize(from.rows_, from.dim_);
  std::copy_n(from.data(), from.size(), data());
  return *this;
}

void Matrix::Resize(int64_t rows, int64_t dim) {
  WithMemoryErrors("a matrix", [&] {
    int64_t count = 0;
    if (rows < 0 || dim < 0) {
      Fail(ErrorCode::kRange, "a matrix of {} rows of {} values; neither may be negative",
           {rows, dim});
    }
    if (__builtin_mul_overflow(rows, dim, &count) || !CanHold(count)) {
      Fail(ErrorCode::kMemory, "{} rows of {} values cannot be addressed", {rows, dim});
    }
    try {
      values_.resize(std::max(values_.size(), static_cast<size_t>(count)));
    } catch (const std::bad_alloc&) {
      Fail(ErrorCode::kMemory, "could not allocate {} rows of {} values", {rows, dim});
    } catch (const std::length_error&) {
      Fail(ErrorCode::kMemory, "{} rows of {} values cannot be addressed", {rows, dim});
    }
    rows_ = rows;
    dim_ = dim;
  });
}

void Matrix::Fill(float value) { std::fill_n(values_.begin(), size(), value); }

ParameterSet::ParameterSet(uint64_t seed) try : seed_(seed) {
} catch (...) {
  RethrowMemoryError("a set of parameters");
}

Parameter& ParameterSet::Add(const std::string& name, const std::vector<int64_t>& shape,
                             const Initial& initial) {
  return *WithMemoryErrors("a parameter", [&] {
    if (Find(name) != nullptr) Fail(ErrorCode::kOption, "there is a parameter \"{}\"", {name});
    const int64_t count = CountOf(name, shape);
    if (!std::isfinite(initial.mean) || !std::isfinite(initial.deviation) ||
        initial.deviation < 0) {
      Fail(ErrorCode::kRange,
           "{} begins with mean {} and deviation {}; both must be finite, and the second not "
           "negative",
           {name, double{initial.mean}, double{initial.deviation}});
    }
    try {
      const size_t size = static_cast<size_t>(count);
      Parameter parameter = {name, shape, std::vector<float>(size, initial.mean),
                             std::vector<float>(size)};
      if (initial.deviation != 0) Draw(seed_, name, initial, parameter.value);
      return &parameters_.emplace_back(std::move(parameter));
    } catch (const std::bad_alloc&) {
      Fail(ErrorCode::kMemory, "could not allocate {} elements of {}", {count, name});
    } catch (const std::length_error&) {
      Fail(ErrorCode::kMemory, "{} elements of {} cannot be addressed", {count, name});
    }
  });
}

const Parameter* ParameterSet::Find(std::string_view name) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

Parameter* ParameterSet::Find(std::string_view name) {
  return const_cast<Parameter*>(std::as_const(*this).Find(name));
}

void ParameterSet::ZeroGradients() {
  for (Parameter& parameter : parameters_) {
    std::fill(parameter.gradient.begin(), parameter.gradient.end(), 0.0f);
  }
}

int64_t ParameterSet::NumElements() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters_) {
    count += static_cast<int64_t>(parameter.value.size());
  }
  return count;
}

}  // namespace heed::training
