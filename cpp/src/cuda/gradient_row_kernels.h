// The small kernels of attention backwards: what every row needs before pairs are looked at, and
// gradients of what a head has one of.
#ifndef HEED_SRC_CUDA_GRADIENT_ROW_KERNELS_H_
#define HEED_SRC_CUDA_GRADIENT_ROW_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/fragments.h"
#include "src/cuda/gradient_params.h"
#include "src/cuda/plugs.h"
#include "src/cuda/rows_in_memory.h"

namespace heed::cuda {

inline constexpr int kDeltaRows = kBlockThreads / kWarp;  // of a block, each a warp's

// delta_i = d_out_i . out_i - d_lse_i, of rows [index * kDeltaRows, ...) of batch * heads * q_len.
template <class Block>
HEED_DEVICE void FindDeltas(Block& block, const GradientParams& params, int64_t index) {
  const AttentionParams& p = params.attention;
  typename Block::template Registers<float, 1> sum;
  const int64_t count = static_cast<int64_t>(p.batch) * p.num_heads * p.q_len;
  const auto row_of = [&](int t) { return index * kDeltaRows + t / kWarp; };
  block.Each([&](int t) {
    sum(t, 0) = 0;
    const int64_t row = row_of(t);
    if (row >= count) return;
    const int i = static_cast<int>(row % p.q_len);
    const int h = static_cast<int>(row / p.q_len % p.num_heads);
    const int b = static_cast<int>(row / p.q_len / p.num_heads);
    const char* out = RowOf(block, params.out, b, h, i, p.fault);
    const char* d_out = RowOf(block, params.d_out, b, h, i, p.fault);
    HEED_NO_UNROLL for (int d = t % kWarp; d < params.out.width; d += kWarp) {
      sum(t, 0) += LoadAs(params.d_out.dtype, d_out, d) * LoadAs(params.out.dtype, out, d);
    }
    if (t % kWarp == 0 && params.d_lse.data != nullptr) sum(t, 0) -= params.d_lse.At(b, h, i, 0);
  });
  block.template GroupSum<kWarp>(sum);
  block.Each([&](int t) {
    if (t % kWarp == 0 && row_of(t) < count) params.delta[row_of(t)] = sum(t, 0);
  });
}

inline constexpr int kHeadSumBytes = 2 * kBlockThreads * static_cast<int>(sizeof(double));

// The gradients of the sink and of the slope of a head: sums of float64 over the rows of all batch
// entries, each thread its own, then in ascending order.
template <class Block>
HEED_DEVICE void SumHead(Block& block, const GradientParams& params, int64_t head) {
  const AttentionParams& p = params.attention;
  auto sinks = block.template Allocate<double>(kBlockThreads);
  auto slopes = block.template Allocate<double>(kBlockThreads);
  block.Each([&](int t) {
    double sink = 0, slope = 0;
    const int64_t rows = static_cast<int64_t>(p.batch) * p.q_len;
    HEED_NO_UNROLL for (int64_t n = t; n < rows; n += kBlockThreads) {
      const int b = static_cast<int>(n / p.q_len), i = static_cast<int>(n % p.q_len);
      const int64_t at = ScratchRow(p, b, head, i);
      const float lse = params.lse.At(b, static_cast<int>(head), i, 0);
      if (params.d_sinks != nullptr && lse != kMinusInfinity) {
        sink -= static_cast<double>(Exp(p.sinks[head] - lse) * params.delta[at]);
      }
      if (params.slope_terms != nullptr) slope += static_cast<double>(params.slope_terms[at]);
    }
    sinks.Store(t, t, sink);
    slopes.Store(t, t, slope);
  });
  block.Sync();
  block.Each([&](int t) {
    if (t != 0) return;
    double sink = 0, slope = 0;
    HEED_NO_UNROLL for (int n = 0; n < kBlockThreads; ++n) {
      sink += sinks.Load(t, n);
      slope += slopes.Load(t, n);
    }
    if (params.d_sinks != nullptr) params.d_sinks[head] = static_cast<float>(sink);
    if (params.d_alibi_slopes != nullptr) params.d_alibi_slopes[head] = static_cast<float>(slope);
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_ROW_KERNELS_H_
