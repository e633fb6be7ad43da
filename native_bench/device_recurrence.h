// Recurrent attention as heed::cuda::RecurrentAttention takes it: the options of a case.
#ifndef HEED_NATIVE_BENCH_DEVICE_RECURRENCE_H_
#define HEED_NATIVE_BENCH_DEVICE_RECURRENCE_H_

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "heed/recurrent.h"
#include "heed/tensor.h"
#include "native_bench/cases.h"

namespace heed::bench {

// Whether the benchmark calls the typed function for it: linear, retention, lightning, mamba2,
// gated_linear, delta_rule, gated_delta_rule, kimi_delta and rwkv7.
bool IsDeviceRecurrence(const Case& c);

// The logarithms of what heads keep of their state where these follow from the mechanism, one a KV
// head (retention, lightning); empty elsewhere.
std::vector<float> HeadLogDecays(const Case& c);

// What the options point to, which they do not own.
struct RecurrenceInputs {
  // The input of this name as rank 4, with leading extents of 1.
  std::function<TensorView<const float>(std::string_view)> tensor;
  const float* head_log_decays = nullptr;  // HeadLogDecays(), where tensors are
  std::span<const float> skip;             // of mamba2, in host memory
};

// The options with which heed::RecurrentAttention computes what heed::Run computes for the case.
RecurrentOptions RecurrentOptionsOf(const Case& c, const RecurrenceInputs& inputs);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_DEVICE_RECURRENCE_H_
