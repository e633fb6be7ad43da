#include "native_bench/device_cases.h"

#include <algorithm>
#include <regex>

#include "native_bench/device_attention.h"

namespace heed::bench {
namespace {

// Batch and heads of prompts make so many tokens and columns, as in the papers of FlashAttention.
constexpr int64_t kTokens = 16384, kWidth = 2048;

Case OnDevice(Case c) {
  c.threads = 1;
  c.device = Device::kCuda;
  return c;
}

void AddPrompts(std::vector<Case>& cases) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat8E4M3}) {
    for (int64_t head_dim : {64, 128, 256}) {
      for (Mask mask : {Mask::kFull, Mask::kCausal}) {
        for (int64_t length = 512; length <= kTokens; length *= 2) {
          const int64_t heads = kWidth / head_dim;
          cases.push_back(OnDevice({.mechanism = "scaled_dot_product",
                                    .batch = kTokens / length,
                                    .heads = {heads, heads},
                                    .lengths = {length, length},
                                    .head_dim = head_dim,
                                    .mask = mask,
                                    .dtype = dtype}));
        }
      }
    }
  }
}

// Multi-head latent attention, not absorbed, has keys of 192 columns and values of 128.
void AddLatentPrompts(std::vector<Case>& cases, DType dtype) {
  for (Mask mask : {Mask::kFull, Mask::kCausal}) {
    for (int64_t length = 512; length <= kTokens; length *= 2) {
      cases.push_back(OnDevice({.mechanism = "scaled_dot_product",
                                .batch = kTokens / length,
                                .heads = {kWidth / 128, kWidth / 128},
                                .lengths = {length, length},
                                .head_dim = 192,
                                .head_dim_v = 128,
                                .mask = mask,
                                .dtype = dtype}));
    }
  }
}

// One socket each, beside the plain prompts of the same size.
void AddSockets(std::vector<Case>& cases) {
  constexpr int64_t kLength = 8192;
  for (int64_t head_dim : {64, 128}) {
    const int64_t heads = kWidth / head_dim;
    const auto add = [&](const auto& plug) {
      Case c = {.mechanism = "scaled_dot_product",
                .batch = kTokens / kLength,
                .heads = {heads, heads},
                .lengths = {kLength, kLength},
                .head_dim = head_dim,
                .dtype = DType::kBFloat16};
      plug(c);
      cases.push_back(OnDevice(c));
    };
    add([](Case& c) { c.softcap = 30; });
    add([](Case& c) { c.sinks = true; });
    add([](Case& c) { c.alibi = true; });
    add([](Case& c) { c.key_length = c.lengths.kv_len; });
    add([](Case& c) { c.key_length = c.lengths.kv_len, c.device_lengths = true; });
    add([](Case& c) { c.heads.num_kv_heads /= 8; });
    add([](Case& c) { c.mask = Mask::kCausal, c.window_left = 1023; });
  }
}

void AddDecoding(std::vector<Case>& cases) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (int64_t batch : {1, 32}) {
      for (int64_t length : {1024, 4096, 16384, 65536, 131072}) {
        cases.push_back(OnDevice({.mechanism = "scaled_dot_product",
                                  .batch = batch,
                                  .heads = {32, 8},
                                  .lengths = {1, length},
                                  .head_dim = 128,
                                  .dtype = dtype}));
      }
    }
  }
}

Case OfMechanism(const std::string& mechanism, DType dtype) {
  Case c;
  c.mechanism = mechanism;
  c.dtype = dtype;
  return c;
}

// `c` at every size.
void AddRecurrences(std::vector<Case>& cases, Case c) {
  c.mask = IsAlwaysCausal(c.mechanism) ? Mask::kFull : Mask::kCausal;
  for (int64_t head_dim : {64, 128}) {
    for (int64_t length : {1024, 4096, 16384}) {
      c.head_dim = head_dim;
      c.lengths = {length, length};
      cases.push_back(OnDevice(c));
    }
  }
}

void AddRecurrentPrompts(std::vector<Case>& cases, const std::string& mechanism, DType dtype) {
  std::vector<Case> prompts;
  AddRecurrences(prompts, OfMechanism(mechanism, dtype));
  for (Case& c : prompts) {
    const int64_t heads = kWidth / c.head_dim;
    c.heads = {heads, heads};
    c.batch = kTokens / c.lengths.q_len;
    cases.push_back(c);
  }
}

}  // namespace

std::vector<Case> OwnDeviceCases() {
  std::vector<Case> cases;
  AddPrompts(cases);
  AddLatentPrompts(cases, DType::kBFloat16);
  AddLatentPrompts(cases, DType::kFloat8E4M3);
  AddSockets(cases);
  AddDecoding(cases);
  for (const char* mechanism : {"linear", "gated_linear", "gated_delta_rule"}) {
    Case c = OfMechanism(mechanism, DType::kFloat32);
    c.heads = {8, 8};
    AddRecurrences(cases, c);
  }
  for (const char* mechanism : {"linear", "retention", "mamba2", "gated_linear", "gated_delta_rule",
                                "kimi_delta", "rwkv7"}) {
    AddRecurrentPrompts(cases, mechanism, DType::kBFloat16);
  }
  AddRecurrentPrompts(cases, "retention", DType::kFloat16);
  return cases;
}

std::vector<Case> DeviceCases(const Options& options) {
  std::vector<Case> cases;
  if (options.own_cases) {
    cases = OwnDeviceCases();
  } else {
    for (const Case& c : MakeCases(options.grid, "")) cases.push_back(OnDevice(c));
  }
  const std::regex expression = CompileFilter(options.filter);
  std::erase_if(cases, [&](const Case& c) { return !std::regex_search(c.Name(), expression); });
  return cases;
}

AttentionShapes ShapesOf(const Case& c) {
  const auto shape = [&](int64_t heads, int64_t length, int64_t dim) {
    return Extents{c.batch, heads, length, dim};
  };
  const auto [num_heads, num_kv_heads] = c.heads;
  return {.q = shape(num_heads, c.lengths.q_len, c.head_dim),
          .k = shape(num_kv_heads, c.lengths.kv_len, c.head_dim),
          .v = shape(num_kv_heads, c.lengths.kv_len, c.ValueDim()),
          .output = shape(num_heads, c.lengths.q_len, c.ValueDim())};
}

Cost CostOf(const Case& c) {
  static float nothing = 0;  // only shapes are looked at
  AttentionShapes shapes = ShapesOf(c);
  shapes.k[2] = shapes.v[2] = c.KeyCount();  // others are never read
  const DType dtype = c.OutputDType();       // the registry knows no float8
  Request request;
  request.id = c.mechanism;
  request.inputs = {{"q", ContiguousTensor(dtype, &nothing, shapes.q)},
                    {"k", ContiguousTensor(dtype, &nothing, shapes.k)},
                    {"v", ContiguousTensor(dtype, &nothing, shapes.v)}};
  request.params = AttentionParamsOf(c, 0);
  Cost cost = EstimateCost(request, 1);
  cost.bytes_read = cost.bytes_read / ElementSize(dtype) * ElementSize(c.dtype);
  cost.scratch_bytes.reset();
  return cost;
}

bool IsPlainAttention(const Case& c) {
  return IsDeviceAttention(c) && !c.window_left && !c.softcap && !c.sinks && !c.alibi &&
         !c.key_length;
}

bool HasDeviceGradients(const Case& c) {
  return IsPlainAttention(c) && c.lengths.q_len > 1 && c.dtype != DType::kFloat8E4M3;
}

std::string RefuseHopperCase(const Case& c) {
  if (!IsDeviceAttention(c)) return "computes only scaled_dot_product";
  if (c.dtype == DType::kFloat32) return "takes float16, bfloat16 and float8_e4m3";
  // Rows are multiples of 16 bytes. The rest of what docs/cuda_kernels.md says holds for every case
  // of the benchmark.
  const int64_t step = 16 / ElementSize(c.dtype);
  if (std::max(c.head_dim, c.ValueDim()) > 256 || c.head_dim % step != 0 ||
      c.ValueDim() % step != 0) {
    return "takes head_dim and head_dim_v of " + std::to_string(step) + ", " +
           std::to_string(2 * step) + ", ... 256";
  }
  return "";
}

std::string RefuseHopperGradients(const Case& c) {
  if (std::max(c.head_dim, c.ValueDim()) <= 128) return "";
  return "takes head_dim and head_dim_v of at most 128 for gradients";
}

}  // namespace heed::bench
