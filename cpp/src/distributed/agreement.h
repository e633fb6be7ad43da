// What ranks tell each other before they compute, so that none waits for one that has given up.
#ifndef HEED_SRC_DISTRIBUTED_AGREEMENT_H_
#define HEED_SRC_DISTRIBUTED_AGREEMENT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>

#include "heed/distributed.h"
#include "src/memory_errors.h"

namespace heed::distributed {

// What all ranks must have given alike: their number and order are those of the function that is
// called. Allocates nothing.
class Terms {
 public:
  static constexpr size_t kMost = 32;
  // Of a rank that cannot tell: agrees with every number.
  static constexpr int64_t kAny = std::numeric_limits<int64_t>::min();

  void Add(const char* name, int64_t value) {
    names_[count_] = name;
    values_[count_++] = value;
  }
  size_t count() const { return count_; }
  const char* name(size_t n) const { return names_[n]; }
  const std::array<int64_t, kMost>& values() const { return values_; }

 private:
  size_t count_ = 0;
  std::array<const char*, kMost> names_{};
  std::array<int64_t, kMost> values_{};
};

// Is the option given? An array without elements, of a rank without tokens, may lie nowhere.
template <typename T>
bool IsGiven(const TensorView<T>& view) {
  return view.has_value() || view.shape != Extents{};
}

// One number for many that ranks must have given alike (FNV-1a).
class Digest {
 public:
  template <typename T>
  void Add(const T& number) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    for (const std::byte byte : std::as_bytes(std::span(&number, 1))) {
      value_ = (value_ ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3u;
    }
  }
  template <typename T>
  void AddAll(std::span<const T> numbers) {
    Add(numbers.size());
    for (const T& number : numbers) Add(number);
  }
  void AddOptional(const std::optional<double>& number) {
    Add(number.has_value());
    Add(number.value_or(0));
  }
  int64_t value() const { return static_cast<int64_t>(value_); }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

// Throws on every rank if one failed, on that rank what it failed with; or else where ranks have
// different values for a term. Allocates nothing but errors: a rank without memory can still say
// so.
void Agree(Communicator& communicator, const std::exception_ptr& failure, const Terms& terms);

// The first error of a rank, which goes on taking part until all have been told.
class Failure {
 public:
  // Calls body(), unless something failed before.
  template <typename Body>
  void Catch(const char* what, const Body& body) {
    if (error_ != nullptr) return;
    try {
      WithMemoryErrors(what, body);
    } catch (...) {  // where even the text of an Error finds no memory, std::bad_alloc
      error_ = std::current_exception();
    }
  }

  bool IsSet() const { return error_ != nullptr; }
  const std::exception_ptr& error() const { return error_; }

 private:
  std::exception_ptr error_;
};

// Throws Error(kRange) unless the communicator's numbers make sense.
void CheckCommunicator(const Communicator& communicator);

// Fills `all` with every rank's values, in the order of ranks; as many from each.
template <typename T>
void AllGather(Communicator& communicator, std::span<const T> mine, std::span<T> all) {
  const int rank = communicator.Rank(), size = communicator.Size();
  const auto of = [&](int other) {
    return all.subspan(static_cast<size_t>(other) * mine.size(), mine.size());
  };
  std::copy(mine.begin(), mine.end(), of(rank).begin());
  if (size == 1 || mine.empty()) return;
  // Everyone begins with its neighbour, so that no rank is the first of all others.
  for (int step = 1; step < size; ++step) {
    const int from = (rank - step + size) % size;
    communicator.BeginReceive(from, std::as_writable_bytes(of(from)));
    communicator.BeginSend((rank + step) % size, std::as_bytes(mine));
  }
  communicator.Finish();
}

}  // namespace heed::distributed

#endif  // HEED_SRC_DISTRIBUTED_AGREEMENT_H_
