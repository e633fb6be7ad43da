// A small seeded generator: the same numbers on every machine.
#ifndef HEED_SRC_SPLIT_MIX_H_
#define HEED_SRC_SPLIT_MIX_H_

#include <cmath>
#include <cstdint>
#include <numbers>

namespace heed {

// SplitMix64 (Steele, Lea & Flood 2014).
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // A standard normal number of two numbers u and w, by Box and Muller (1958):
  // sqrt(-2 log(((u >> 11) + 1) 2^-53)) cos(2 pi (w >> 11) 2^-53), rounded to float32.
  float Normal() {
    const double u = (static_cast<double>(Next() >> 11) + 1) * 0x1p-53;
    const double w = static_cast<double>(Next() >> 11) * 0x1p-53;
    return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * w));
  }

 private:
  uint64_t state_;
};

}  // namespace heed

#endif  // HEED_SRC_SPLIT_MIX_H_
