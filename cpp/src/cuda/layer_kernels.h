// Kernels of layers, positions and the short convolution. Plain ones: a block has a row, a batch
// entry or a head.
#ifndef HEED_SRC_CUDA_LAYER_KERNELS_H_
#define HEED_SRC_CUDA_LAYER_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/choice_kernels.h"
#include "src/cuda/head_place.h"
#include "src/cuda/layer_params.h"
#include "src/cuda/row_block.h"

namespace heed::cuda {

template <class Block>
HEED_DEVICE void RunStep(Block& block, const EmbedParams& p, int64_t index) {
  const int b = static_cast<int>(index / p.rows), i = static_cast<int>(index % p.rows);
  const bool exists = i < (p.lengths == nullptr ? p.rows : p.lengths[b]);
  block.Each([&](int t) {
    for (int d = t; d < p.width; d += kBlockThreads) {
      float x = exists ? p.embedding.Row(0, 0, p.tokens[index])[d] : 0.0f;
      if (exists && p.positions.data != nullptr) x += p.positions.Row(0, 0, i)[d];
      p.out.Row(b, 0, i)[d] = x;
    }
  });
}

// Weights of the rows, which sum to 1.
template <class Block>
HEED_DEVICE void WeighRows(RowBlock<Block>& row, const PoolParams& p, int b, const RowKeys& rows,
                           double* weights) {
  if (p.pooling == Pooling::kMean) {
    row.EachKey(rows, [&](int, int i) { weights[i] = 1.0 / rows.end; });
    return;
  }
  row.EachKey(rows,
              [&](int, int i) { weights[i] = ExactDot(p.rows.Row(b, 0, i), p.query, p.width); });
  const double top = row.MaxOf(rows, [&](int, int i) { return weights[i]; });
  row.EachKey(rows, [&](int, int i) { weights[i] = exp(weights[i] - top); });
  const double sum = row.SumKeys(rows, [&](int, int i) { return weights[i]; });
  row.EachKey(rows, [&](int, int i) { weights[i] /= sum; });
}

// The largest number of a column; NaN where one of them is.
HEED_DEVICE float LargestOf(const PoolParams& p, int b, int length, int d) {
  float largest = p.rows.Row(b, 0, 0)[d];
  HEED_NO_UNROLL for (int i = 1; i < length; ++i) {
    const float x = p.rows.Row(b, 0, i)[d];
    if (largest == largest && (x > largest || x != x)) largest = x;
  }
  return largest;
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const PoolParams& p, int64_t index) {
  const int b = static_cast<int>(index);
  const int length = p.lengths == nullptr ? p.len : p.lengths[b];
  double* weights = p.weights + index * p.len;
  RowBlock<Block> row(block);
  const bool weighs = p.pooling == Pooling::kMean || p.pooling == Pooling::kAttention;
  if (weighs && length > 0) WeighRows(row, p, b, {0, length}, weights);
  row.EachKey({0, p.width}, [&](int, int d) {
    float* to = p.out.Row(0, 0, b) + d;
    if (length == 0 || !weighs) {
      const bool first = p.pooling == Pooling::kFirst;
      *to = length == 0 ? 0.0f : first ? p.rows.Row(b, 0, 0)[d] : LargestOf(p, b, length, d);
      return;
    }
    double sum = 0;
    HEED_NO_UNROLL for (int i = 0; i < length; ++i) {
      sum += weights[i] * static_cast<double>(p.rows.Row(b, 0, i)[d]);
    }
    *to = static_cast<float>(sum);
  });
}

// Cosine and sine of a pair at a position.
struct Phase {
  float cos, sin;
};

HEED_DEVICE Phase PhaseAt(const PhaseRule& rule, int pair, int64_t position) {
  const double p = static_cast<double>(position), angle = p * rule.frequency[pair];
  double size = rule.magnitude;
  if (rule.growth != nullptr) size *= exp((p - rule.center) * rule.growth[pair]);
  return {static_cast<float>(size * cos(angle)), static_cast<float>(size * sin(angle))};
}

HEED_DEVICE Phase PhaseOf(const RotateParams& p, int b, int i, int pair) {
  if (p.grid_width > 0) {
    const int64_t place = pair < p.pairs / 2 ? i / p.grid_width : i % p.grid_width;
    return PhaseAt(p.phases, pair, place);
  }
  const int64_t position = p.places.At(b, i, p.len);
  if (p.cos.data == nullptr) return PhaseAt(p.phases, pair, position);
  const int row = static_cast<int>(position);
  return {p.cos.At(b, 0, row, pair), p.sign * p.sin.At(b, 0, row, pair)};
}

// A row that a block makes of another.
struct RowInOut {
  HeadPlace place;
  const float* x;
  float* out;

  template <class Params>
  HEED_DEVICE RowInOut(const Params& p, int64_t index)
      : place(index, p.len, p.heads),
        x(p.x.Row(place.b, place.h, place.within)),
        out(p.out.Row(place.b, place.h, place.within)) {}
};

template <class Block>
HEED_DEVICE void RunStep(Block& block, const RotateParams& p, int64_t index) {
  const RowInOut row(p, index);
  block.Each([&](int t) {
    HEED_NO_UNROLL for (int n = t; n < p.pairs; n += kBlockThreads) {
      const int first = p.interleaved ? 2 * n : n, second = p.interleaved ? 2 * n + 1 : p.pairs + n;
      const Phase phase = PhaseOf(p, row.place.b, row.place.within, n);
      const float x1 = row.x[first], x2 = row.x[second];
      row.out[first] = x1 * phase.cos - x2 * phase.sin;
      row.out[second] = x2 * phase.cos + x1 * phase.sin;
    }
    for (int d = 2 * p.pairs + t; d < p.width; d += kBlockThreads) row.out[d] = row.x[d];
  });
}

HEED_DEVICE float SinusoidAt(const PositionCodeParams& p, int64_t position, int d) {
  const int pair = p.interleaved ? d / 2 : d % p.pairs;
  if (!p.interleaved && d >= 2 * p.pairs) return 0;  // an odd last column
  const Phase phase = PhaseAt(p.phases, pair, position);
  return (p.interleaved ? d % 2 == 0 : d < p.pairs) ? phase.sin : phase.cos;
}

HEED_DEVICE float CodeAt(const PositionCodeParams& p, int b, int i, int d) {
  if (p.low != nullptr) {
    const float low = p.table.Row(0, 0, p.low[i])[d], share = p.share[i];
    // A row of weight 0 is not read.
    return share == 0 ? low : (1 - share) * low + share * p.table.Row(0, 0, p.high[i])[d];
  }
  const int64_t position = p.places.At(b, i, p.len);
  if (p.table.data != nullptr) return p.table.Row(0, 0, position)[d];
  return SinusoidAt(p, position, d);
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const PositionCodeParams& p, int64_t index) {
  const RowInOut row(p, index);
  block.Each([&](int t) {
    HEED_NO_UNROLL for (int d = t; d < p.width; d += kBlockThreads) {
      row.out[d] = row.x[d] + CodeAt(p, row.place.b, row.place.within, d);
    }
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const ShortConvParams& p, int64_t index) {
  const HeadPlace place(index, p.len, p.heads);
  const int b = place.b, h = place.h, i = place.within;
  const bool exists = i < p.Length(b);
  block.Each([&](int t) {
    for (int c = t; c < p.width; c += kBlockThreads) {
      float sum = p.bias.data == nullptr ? 0.0f : p.bias.At(0, h, 0, c);
      HEED_NO_UNROLL for (int n = 0; exists && n < p.taps; ++n) {
        const float* token = p.Token(b, h, int64_t{i} + n + 1 - p.taps);
        if (token != nullptr) sum += p.weight.At(0, h, c, n) * token[c];
      }
      if (p.silu) sum = sum / (1 + expf(-sum));
      p.out.Row(b, h, i)[c] = exists ? sum : 0.0f;
    }
  });
}

// Where the state is replaced in place, what is read lies behind what is written.
template <class Block>
HEED_DEVICE void RunStep(Block& block, const ConvStateParams& p, int64_t index) {
  const ShortConvParams& conv = p.conv;
  const int b = static_cast<int>(index / conv.heads), h = static_cast<int>(index % conv.heads);
  block.Each([&](int t) {
    for (int c = t; c < conv.width; c += kBlockThreads) {
      HEED_NO_UNROLL for (int r = 0; r + 1 < conv.taps; ++r) {
        const float* token = conv.Token(b, h, int64_t{conv.Length(b)} + r + 1 - conv.taps);
        conv.out.Row(b, h, r)[c] = token == nullptr ? 0.0f : token[c];
      }
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_LAYER_KERNELS_H_
