// heed-cuda-bench: times heed::cuda::Attention on the current GPU, after comparing it with the CPU.
// Caches are warm; the tensors are ~ N(0, 1).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>

#include "device_tensor.h"
#include "heed/attention.h"
#include "heed/cuda.h"

namespace heed::bench {
namespace {

struct Shape {
  const char* name;
  int64_t batch, num_heads, num_kv_heads, q_len, kv_len, head_dim;
  bool causal;
};

constexpr Shape kShapes[] = {
    {"prefill 2k", 4, 16, 16, 2048, 2048, 128, false},
    {"prefill 8k", 1, 16, 16, 8192, 8192, 128, false},
    {"prefill 8k causal", 1, 16, 16, 8192, 8192, 128, true},
    {"prefill 8k causal, 64", 1, 32, 32, 8192, 8192, 64, true},
    {"grouped 8k causal", 1, 32, 8, 8192, 8192, 128, true},
    {"decode 4k", 1, 32, 8, 1, 4096, 128, true},
    {"decode 64k", 1, 32, 8, 1, 65536, 128, true},
    {"decode 8k, batch 32", 32, 32, 8, 1, 8192, 128, true},
};

struct Tensors {
  std::mt19937 random{1};
  DeviceTensor q, k, v, output;

  Tensors(const Shape& s, DType dtype)
      : q(dtype, {s.batch, s.num_heads, s.q_len, s.head_dim}, random),
        k(dtype, {s.batch, s.num_kv_heads, s.kv_len, s.head_dim}, random),
        v(dtype, {s.batch, s.num_kv_heads, s.kv_len, s.head_dim}, random),
        output(dtype, {s.batch, s.num_heads, s.q_len, s.head_dim}, random) {}
};

AttentionOptions OptionsOf(const Shape& s) {
  AttentionOptions options;
  options.causal = s.causal;
  options.query_offset = QueryOffset::End();
  return options;
}

// The largest difference from the CPU over the last queries of the last batch entry.
double Difference(const Shape& s, Tensors& t) {
  const int64_t rows = std::min<int64_t>(4, s.q_len);
  StoredTensor q = t.q.host(), k = t.k.host(), v = t.v.host();
  q.data = q.Row(s.batch - 1, 0, s.q_len - rows);
  k.data = k.Row(s.batch - 1, 0, 0);
  v.data = v.Row(s.batch - 1, 0, 0);
  q.shape[0] = k.shape[0] = v.shape[0] = 1;
  q.shape[2] = rows;
  std::vector<float> expected(static_cast<size_t>(s.num_heads * rows * s.head_dim));
  Attention(q, k, v, OptionsOf(s),
            {.output = Contiguous(expected.data(), 1, s.num_heads, rows, s.head_dim)});
  t.output.Fetch();
  double worst = 0;
  for (int64_t h = 0; h < s.num_heads; ++h) {
    const int64_t last = ((s.batch - 1) * s.num_heads + h + 1) * s.q_len - rows;
    for (int64_t n = 0; n < rows * s.head_dim; ++n) {
      const double got = t.output[static_cast<size_t>(last * s.head_dim + n)];
      const double difference =
          std::abs(got - expected[static_cast<size_t>(h * rows * s.head_dim + n)]);
      if (!(difference <= worst)) worst = difference;  // NaN counts
    }
  }
  return worst;
}

// 4 FLOPs a visible pair and dimension; causal with equal lengths sees half of the pairs.
double Flops(const Shape& s) {
  const double pairs = static_cast<double>(s.batch * s.num_heads) * static_cast<double>(s.q_len) *
                       static_cast<double>(s.kv_len);
  return 4 * pairs * static_cast<double>(s.head_dim) * (s.causal && s.q_len > 1 ? 0.5 : 1);
}

// What heed/cuda.h and heed/attention.h allow, for values that are hardly ever above 6.
double Allowed(DType dtype) {
  double bound = kAttentionMaxError;
  if (dtype == DType::kFloat16) bound += cuda::kFloat16Products + kFloat16Rounding;
  if (dtype == DType::kBFloat16) bound += cuda::kBFloat16Products + kBFloat16Rounding;
  return 6 * bound;
}

// Returns whether the results were right.
bool RunShape(const Shape& s, DType dtype) {
  Tensors t(s, dtype);
  const AttentionOptions options = OptionsOf(s);
  AttentionOutputs outputs;
  outputs.stored_output = t.output.output();
  const auto call = [&] {
    cuda::Attention(t.q.device(), t.k.device(), t.v.device(), options, outputs, nullptr);
  };
  call();
  cuda::Check(nullptr);
  const double difference = Difference(s, t);
  const double allowed = Allowed(dtype);
  const bool right = difference <= allowed;
  std::printf("%-22s %-9s error %.1e", s.name, DTypeName(dtype), difference);
  if (!right) {
    std::printf("  WRONG: above %.0e, not timed\n", allowed);
    return false;
  }
  const std::vector<float> times = Time(5, 30, call);
  const double seconds = static_cast<double>(times[times.size() / 2]) * 1e-3;
  const double bytes =
      static_cast<double>(t.q.bytes() + t.k.bytes() + t.v.bytes() + t.output.bytes());
  std::printf("  median %9.1f us  best %9.1f us  %7.1f TFLOP/s  %7.1f GB/s\n", seconds * 1e6,
              static_cast<double>(times[0]) * 1e3, Flops(s) / seconds * 1e-12,
              bytes / seconds * 1e-9);
  return right;
}

int Run() {
  const cuda::Availability state = cuda::Available();
  if (!state.usable) {
    std::fprintf(stderr, "heed-cuda-bench found %s; it needs %s\n", state.found.c_str(),
                 state.needed.c_str());
    return 2;
  }
  std::printf("%s\ncopy within the device %.0f GB/s\n", state.found.c_str(),
              CopyBandwidth() * 1e-9);
  bool right = true;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const Shape& shape : kShapes) right = RunShape(shape, dtype) && right;
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace heed::bench

int main() {
  try {
    return heed::bench::Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heed-cuda-bench: %s\n", error.what());
    return 1;
  }
}
