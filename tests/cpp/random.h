// Seeded random numbers, the same on every standard library.
#ifndef HEED_TESTS_RANDOM_H_
#define HEED_TESTS_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <numbers>

namespace heed::testing {

// SplitMix64 (Steele, Lea & Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // In [low, high], both included.
  int64_t Integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double probability) { return Uniform() < probability; }
  // Mean 0, variance 1 (Box & Muller).
  float Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return static_cast<float>(radius * std::cos(2 * std::numbers::pi * Uniform()));
  }

 private:
  uint64_t state_;
};

}  // namespace heed::testing

#endif  // HEED_TESTS_RANDOM_H_
