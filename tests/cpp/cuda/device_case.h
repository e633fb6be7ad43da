// Attention cases (attention_case.h) on the device path, in every storage type.
#ifndef HEED_TESTS_CUDA_DEVICE_CASE_H_
#define HEED_TESTS_CUDA_DEVICE_CASE_H_

#include <cstdint>

#include "attention_case.h"
#include "device_backend.h"
#include "gtest/gtest.h"

namespace heed::testing {

// Base of suites that need a backend; skips, with the reason, where it has no device.
class OnDevice : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

// One suite for each storage type of q, k, v and the output.
#define HEED_IN_EVERY_TYPE(Suite)                                                                 \
  INSTANTIATE_TEST_SUITE_P(EveryType, Suite,                                                      \
                           ::testing::Values(DType::kFloat32, DType::kFloat16, DType::kBFloat16), \
                           [](const auto& info) { return DTypeName(info.param); })

struct DeviceChoices {
  Layout layout = Layout::kDense;  // of q, k and v where they have 16 or 8 bits
  int64_t processors = 1;
  uint64_t block_order = 0;
  bool merges_apart = false;
  bool must_merge = false;
  bool pairs = false;  // asks for weights and scores too
  bool on_hopper = false;
  // Of float8_e4m3, whose output has a type of its own.
  DType output = DType::kFloat32;
  bool exact_weights = false;  // all weights are float8 numbers, but those below kFloat8Lost
};

// Rounds q, k and v of the case to the type, runs it, and compares output and lse with the oracle
// on the rounded numbers. Those of float8_e4m3 have a scale for each KV head.
void ExpectDeviceMatches(AttentionCase c, DType dtype, const DeviceChoices& choices = {});

// The output and lse of the device, as floats.
Results RunDevice(AttentionCase& c, DType dtype, const DeviceChoices& choices = {});

// Compares results in a storage type with the oracle.
void ExpectWithinDeviceBounds(const AttentionCase& c, DType dtype, const Results& results,
                              const DeviceChoices& choices = {});

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_DEVICE_CASE_H_
