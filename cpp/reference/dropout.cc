#include "dropout.h"

#include <charconv>
#include <cmath>
#include <string>
#include <variant>

#include "softmax.h"

namespace heed::reference {
uint64_t ReadSeed(const Request& request, std::string_view name) {
  const ParamValue* value = FindParam(request, name);
  if (value == nullptr) return 0;
  if (const auto* digits = std::get_if<std::string>(value)) {
    uint64_t seed = 0;
    const char* end = digits->data() + digits->size();
    const auto [stop, error] = std::from_chars(digits->data(), end, seed);
    if (error != std::errc() || stop != end) {
      throw Error(ErrorCode::kRange, std::string(name) + " is \"" + *digits +
                                         "\": expected a whole number below 2^64");
    }
    return seed;
  }
  return static_cast<uint64_t>(*ReadCount(request, name));
}

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

void Dropout::Apply(int64_t b, int64_t h, int64_t i, std::span<double> weights) const {
  const auto threshold = static_cast<uint32_t>(std::floor(p * 4294967296.0));
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  for (size_t j = 0; j < weights.size(); ++j) {
    if (weights[j] == kMinusInfinity) continue;  // left out already
    const auto words = Philox({static_cast<uint32_t>(b), static_cast<uint32_t>(h),
                               static_cast<uint32_t>(i), static_cast<uint32_t>(j / 4)},
                              key);
    weights[j] = words[j % 4] >= threshold ? weights[j] / (1.0 - p) : 0.0 * weights[j];
  }
}

std::optional<Dropout> ReadDropout(const Request& request) {
  const double p = ReadNumber(request, "dropout_p").value_or(0.0);
  if (p < 0.0 || p >= 1.0) {
    throw Error(ErrorCode::kRange, "dropout_p is " + std::to_string(p) + ": expected 0 <= p < 1");
  }
  const uint64_t seed = ReadSeed(request, "dropout_seed");
  if (p == 0.0) return std::nullopt;
  return Dropout{p, seed};
}

}  // namespace heed::reference
