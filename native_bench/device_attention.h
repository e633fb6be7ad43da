// Softmax attention as heed::cuda::Attention takes it: the options of a case.
#ifndef HEED_NATIVE_BENCH_DEVICE_ATTENTION_H_
#define HEED_NATIVE_BENCH_DEVICE_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "heed/attention.h"
#include "heed/request.h"
#include "native_bench/cases.h"

namespace heed::bench {

// Whether the benchmark calls the typed function for it: scaled_dot_product.
bool IsDeviceAttention(const Case& c);

// What the sockets of a case read, in host memory; empty where it lacks them.
struct SocketArrays {
  std::vector<float> alibi_slopes;   // [num_heads], those of the paper
  std::vector<float> sinks;          // [num_heads], each as heavy as all keys together or more
  std::vector<int32_t> key_lengths;  // [batch]
};
SocketArrays SocketArraysOf(const Case& c);

// The options of a call. They point to the arrays.
AttentionOptions AttentionOptionsOf(const Case& c, const SocketArrays& arrays);

// What they are by name, for a request of the queries from `query` on and of the first KeyCount()
// keys.
std::vector<NamedParam> AttentionParamsOf(const Case& c, int64_t query);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_DEVICE_ATTENTION_H_
