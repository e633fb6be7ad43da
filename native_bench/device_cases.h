// The problems of --device cuda.
#ifndef HEED_NATIVE_BENCH_DEVICE_CASES_H_
#define HEED_NATIVE_BENCH_DEVICE_CASES_H_

#include <string>
#include <vector>

#include "heed/cost.h"
#include "heed/tensor.h"
#include "native_bench/cases.h"
#include "native_bench/options.h"

namespace heed::bench {

// What a GPU is measured on when the line names no axis, in this order:
//   prompts     512 to 16384 tokens, full and causal, heads of 64, 128 and 256, bfloat16, float16,
//               float32 and float8_e4m3; batch and heads make 16384 tokens and a width of 2048, as
//               in the papers of FlashAttention; bfloat16 and float8_e4m3 also keys of 192 with
//               values of 128
//   sockets     prompts of 8192 tokens, full, heads of 64 and 128, bfloat16, with one of softcap,
//               sinks, ALiBi, lengths of keys (of all keys; on the host, on the device), or eight
//               query heads a KV head; and causal with a window of 1024 keys
//   decoding    one query for each of 1 and 32 sequences of 1024 to 131072 keys, 32:8 heads of 128,
//               bfloat16 and float16
//   recurrences 1024, 4096 and 16384 tokens, heads of 64 and 128: of 8 heads in float32 linear,
//               gated_linear and gated_delta_rule; with batch and heads as of prompts in bfloat16
//               those, retention, mamba2, kimi_delta and rwkv7, and retention in float16
std::vector<Case> OwnDeviceCases();

// Those, or what the line names, as far as --filter keeps them. Throws heed::Error(kOption) like
// MakeCases().
std::vector<Case> DeviceCases(const Options& options);

// The tensors of plain attention: [batch, heads, len, dim].
struct AttentionShapes {
  Extents q, k, v, output;
};
AttentionShapes ShapesOf(const Case& c);

// What heed::EstimateCost says of plain attention, without any tensor in memory. Scratch memory is
// the CPU's and left out, and so are the scales of float8.
Cost CostOf(const Case& c);

// Whether a case is softmax attention without sockets but causal, which peers of a GPU compute.
bool IsPlainAttention(const Case& c);

// Whether heed::cuda computes gradients of a case: a prompt of plain attention, not of float8.
bool HasDeviceGradients(const Case& c);

// Why the kernel for Hopper cannot compute a case on a GPU that has it; empty when it can
// (docs/cuda_kernels.md).
std::string RefuseHopperCase(const Case& c);

// Why the kernels of gradients for Hopper cannot compute a case that those of forward can; empty
// when they can (docs/cuda_kernels.md).
std::string RefuseHopperGradients(const Case& c);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_DEVICE_CASES_H_
