// Kernels that work on single numbers or rows between attentions. Plain ones: a block has a row, or
// some numbers.
#ifndef HEED_SRC_CUDA_ELEMENTWISE_KERNELS_H_
#define HEED_SRC_CUDA_ELEMENTWISE_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/elementwise_params.h"
#include "src/cuda/head_place.h"
#include "src/cuda/row_block.h"

namespace heed::cuda {

HEED_DEVICE float Activated(MapOp op, float x) {
  switch (op) {
    case MapOp::kGelu:
      return 0.5f * x * (1 + erff(x * 0.70710678f));
    case MapOp::kGeluTanh:
      return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case MapOp::kSilu:
      return x / (1 + expf(-x));
    default:
      return x < 0 ? 0.0f : x;
  }
}

HEED_DEVICE float Mapped(const MapParams& p, int b, int h, int i, int j) {
  const auto x = [&] { return p.x.At(b, h, i, j); };
  const auto y = [&] { return p.y.At(b, h, i, j); };
  const auto masked = [&](float factor) { return factor == 0 ? 0.0f : factor * x(); };
  switch (p.op) {
    case MapOp::kFill:
      return p.factor;
    case MapOp::kScale:
      return p.factor * x();
    case MapOp::kAdd:
      return x() + y();
    case MapOp::kSubtract:
      return x() - y() * p.z.At(b, h, i, j);
    case MapOp::kMask:
      return masked(y());
    case MapOp::kAddMasked:
      return masked(y()) + (p.z.data == nullptr ? 0.0f : p.z.At(b, h, i, j));
    case MapOp::kCap:
      return p.factor * tanhf(x() / p.factor);
    case MapOp::kPositive:
      return x() < 0 ? 0.0f : x();
    case MapOp::kNegative:
      return x() > 0 ? 0.0f : x();
    default:
      return p.y.data == nullptr ? Activated(p.op, x()) : Activated(p.op, x()) * y();
  }
}

// Numbers [index * kMapNumbers, (index + 1) * kMapNumbers).
template <class Block>
HEED_DEVICE void RunStep(Block& block, const MapParams& p, int64_t index) {
  const int64_t count = int64_t{p.batch} * p.heads * p.rows * p.cols;
  const int64_t first = index * kMapNumbers;
  const int64_t end = first + kMapNumbers < count ? first + kMapNumbers : count;
  block.Each([&](int t) {
    HEED_NO_UNROLL for (int64_t n = first + t; n < end; n += kBlockThreads) {
      const HeadPlace place(n / p.cols, p.rows, p.heads);
      const int j = static_cast<int>(n % p.cols), i = place.within;
      const bool exists = p.row_lengths == nullptr || i < p.row_lengths[place.b];
      p.out.Row(place.b, place.h, i)[j] = exists ? Mapped(p, place.b, place.h, i, j) : 0.0f;
    }
  });
}

// Row `index` of all heads.
template <class Block>
HEED_DEVICE void RunStep(Block& block, const NormParams& p, int64_t index) {
  const HeadPlace place(index, p.rows, p.heads);
  const float* x = p.x.Row(place.b, place.h, place.within);
  float* out = p.out.Row(place.b, place.h, place.within);
  RowBlock<Block> row(block);
  const RowKeys all = {0, p.width};
  const double count = static_cast<double>(p.width);
  const double mean =
      p.kind == NormKind::kLayer ? row.SumKeys(all, [&](int, int d) { return x[d]; }) / count : 0.0;
  const double squares = row.SumKeys(all, [&](int, int d) {
    const double far = static_cast<double>(x[d]) - mean;
    return far * far;
  });
  double factor = p.factor / sqrt(squares / count + p.epsilon);
  if (p.kind == NormKind::kUnit) factor = squares == 0 ? 0.0 : 1 / sqrt(squares);
  row.EachKey(all, [&](int, int d) {
    double y = (static_cast<double>(x[d]) - mean) * factor;
    if (p.weight != nullptr) y *= static_cast<double>(p.weight[d]);
    if (p.bias != nullptr) y += static_cast<double>(p.bias[d]);
    out[d] = static_cast<float>(y);
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const GateParams& p, int64_t index) {
  const HeadPlace place(index, p.len, p.heads);
  const int i = place.within;
  float* row = p.rows.Row(place.b, place.h, i);
  RowBlock<Block> all(block);
  const RowKeys columns = {0, p.width};
  const bool empty =
      p.lse.data != nullptr
          ? *p.lse.Row(place.b, place.h, i) == -HUGE_VALF
          : all.SumKeys(columns, [&](int, int d) { return row[d] == 0 ? 0.0 : 1.0; }) == 0;
  if (empty) return;
  all.EachKey(columns,
              [&](int, int d) { row[d] *= 1 / (1 + expf(-p.gate.At(place.b, place.h, i, d))); });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const RestParams& p, int64_t index) {
  RowBlock<Block> row(block);
  if (p.resting[index] != 0) return;
  const HeadPlace place(index, p.len, p.heads);
  const float* newest = p.newest.Row(place.b, place.h, place.within);
  float* state = p.states.Row(place.b, place.h, place.within);
  const RowKeys all = {0, p.width};
  const double moved = row.SumKeys(all, [&](int, int d) {
    const double step = static_cast<double>(newest[d]) - static_cast<double>(state[d]);
    return step * step;
  });
  row.EachKey(all, [&](int, int d) { state[d] = newest[d]; });
  block.Each([&](int t) {
    if (t == 0 && !(sqrt(moved) > p.tolerance)) p.resting[index] = 1;
  });
}

// Whether any head sees the key.
HEED_DEVICE bool SomeHeadSees(const SumValuesParams& p, int b, int i, int j) {
  for (int h = 0; h < p.heads; ++h) {
    if (p.scores.Row(b, h, i)[j] != -HUGE_VALF) return true;
  }
  return false;
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const SumValuesParams& p, int64_t index) {
  const HeadPlace place(index, p.len, p.heads);
  const int i = place.within;
  const float* weights = p.weights.Row(place.b, place.h, i);
  block.Each([&](int t) {
    for (int d = t; d < p.width; d += kBlockThreads) {
      double sum = 0;
      HEED_NO_UNROLL for (int j = 0; j < p.kv_len; ++j) {
        // Only values that are not finite can tell a weight of 0 from a key that is not seen.
        if (weights[j] == 0 && !SomeHeadSees(p, place.b, i, j)) continue;
        const float* value = p.v.Row(place.b, place.h / p.group, j);
        sum += static_cast<double>(weights[j]) * static_cast<double>(value[d]);
      }
      p.out.Row(place.b, place.h, i)[d] = static_cast<float>(sum);
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ELEMENTWISE_KERNELS_H_
