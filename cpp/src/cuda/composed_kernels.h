// The kernels between the attentions of a composed mechanism: products of matrices, means of
// tokens, and what Nystrom attention needs besides. Plain ones, in float32 but for long sums.
#ifndef HEED_SRC_CUDA_COMPOSED_KERNELS_H_
#define HEED_SRC_CUDA_COMPOSED_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/composed_params.h"
#include "src/cuda/head_place.h"
#include "src/cuda/row_block.h"

namespace heed::cuda {

// A thread has two rows of a tile and four neighbouring columns.
template <class Block>
class MultiplyKernel {
 public:
  HEED_DEVICE MultiplyKernel(Block& block, const MultiplyParams& params)
      : block_(block),
        p_(params),
        a_(block.template Allocate<float>(kTile * kStrideA)),
        b_(block.template Allocate<float>(kTile * kTile)) {}
  static constexpr int kSharedBytes =
      static_cast<int>(sizeof(float)) * kProductTile * (2 * kProductTile + 1);

  HEED_DEVICE void Run(int64_t index) {
    const int64_t col_tiles = ProductTiles(p_.cols);
    const HeadPlace place(index, ProductTiles(p_.rows) * col_tiles, p_.heads);
    batch_ = place.b;
    head_ = place.h;
    first_row_ = static_cast<int>(place.within / col_tiles) * kTile;
    first_col_ = static_cast<int>(place.within % col_tiles) * kTile;
    rows_ = p_.row_lengths == nullptr ? p_.rows : p_.row_lengths[batch_];
    inner_ = p_.inner_lengths == nullptr ? p_.inner : p_.inner_lengths[batch_];
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < 2 * kCols; ++n) {
        sums_(t, n) = 0;
        part_(t, n) = 0;
      }
    });
    HEED_NO_UNROLL for (int first = 0; first < inner_; first += kTile) {
      LoadTiles(first);
      block_.Sync();
      Accumulate();
      if ((first + kTile) % kProductPart == 0 || first + kTile >= inner_) AddPart();
      block_.Sync();
    }
    Store();
  }

 private:
  static constexpr int kTile = kProductTile;
  static constexpr int kStrideA = kTile + 1;  // rows of a tile begin in different banks
  static constexpr int kCols = 4;             // of a thread

  HEED_DEVICE static int Row(int t, int r) { return t / 8 + 16 * r; }
  HEED_DEVICE static int Col(int t) { return t % 8 * kCols; }

  HEED_DEVICE void LoadTiles(int first) {
    block_.Each([&](int t) {
      HEED_NO_UNROLL for (int n = t; n < kTile * kTile; n += kBlockThreads) {
        const int i = n / kTile, j = n % kTile;
        const int row = first_row_ + i, col = first_col_ + j;
        const bool in_a = row < rows_ && first + j < inner_;
        const bool in_b = first + i < inner_ && col < p_.cols;
        a_.Store(t, i * kStrideA + j, in_a ? p_.a.At(batch_, head_, row, first + j) : 0.0f);
        b_.Store(t, i * kTile + j, in_b ? p_.b.At(batch_, head_, first + i, col) : 0.0f);
      }
    });
  }
  HEED_DEVICE void Accumulate() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int k = 0; k < kTile; ++k) {
        float b[kCols];
        b_.LoadFour(t, k * kTile + Col(t), b);
        HEED_UNROLL for (int r = 0; r < 2; ++r) {
          const float a = a_.Load(t, Row(t, r) * kStrideA + k);
          HEED_UNROLL for (int c = 0; c < kCols; ++c) part_(t, kCols * r + c) += a * b[c];
        }
      }
    });
  }
  HEED_DEVICE void AddPart() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < 2 * kCols; ++n) {
        sums_(t, n) += static_cast<double>(part_(t, n));
        part_(t, n) = 0;
      }
    });
  }
  HEED_DEVICE void Store() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int r = 0; r < 2; ++r) {
        HEED_UNROLL for (int c = 0; c < kCols; ++c) {
          const int row = first_row_ + Row(t, r), col = first_col_ + Col(t) + c;
          if (row >= p_.rows || col >= p_.cols) continue;
          float x = row < rows_ ? p_.factor * static_cast<float>(sums_(t, kCols * r + c)) : 0.0f;
          if (p_.addend.data != nullptr) {
            x += p_.addend_factor * p_.addend.At(batch_, head_, row, col);
          }
          p_.out.Row(batch_, head_, row)[col] = x;
        }
      }
    });
  }

  Block& block_;
  const MultiplyParams& p_;
  typename Block::template Shared<float> a_, b_;
  int batch_, head_, first_row_, first_col_, rows_, inner_;
  typename Block::template Registers<double, 2 * kCols> sums_;
  typename Block::template Registers<float, 2 * kCols> part_;
};

template <class Block>
HEED_DEVICE void RunStep(Block& block, const MultiplyParams& p, int64_t index) {
  MultiplyKernel<Block>(block, p).Run(index);
}

// Row `index` of the means of all heads.
template <class Block>
HEED_DEVICE void RunStep(Block& block, const MeanParams& p, int64_t index) {
  const HeadPlace place(index, p.rows, p.heads);
  const int64_t len = p.lengths == nullptr ? p.len : p.lengths[place.b];
  const int64_t n = place.within;
  const int64_t begin = p.block > 0 ? n * p.block : n * len / p.rows;
  int64_t end = p.block > 0 ? begin + p.block : (n + 1) * len / p.rows;
  if (end > len) end = len;
  block.Each([&](int t) {
    for (int d = t; d < p.width; d += kBlockThreads) {
      double sum = 0;  // as the CPU has it: blocks are chosen by their means
      for (int64_t j = begin; j < end; ++j) {
        sum += static_cast<double>(p.tokens.Row(place.b, place.h / p.group, j)[d]);
      }
      const double count = static_cast<double>(end - begin);
      p.out.Row(place.b, place.h, n)[d] = end > begin ? static_cast<float>(sum / count) : 0.0f;
    }
  });
}

// The first guess of the pseudo-inverse of a: its transpose over the largest sum of a row times
// that of a column.
template <class Block>
HEED_DEVICE void RunStep(Block& block, const InverseParams& p, int64_t index) {
  const HeadPlace place(index, 1, p.heads);
  const auto a = [&](int i, int j) { return p.a.Row(place.b, place.h, i)[j]; };
  const auto largest = [&](RowBlock<Block>& all, bool of_rows) {
    return all.MaxKeys({0, p.size}, [&](int, int i) {
      float sum = 0;
      for (int j = 0; j < p.size; ++j) sum += fabsf(of_rows ? a(i, j) : a(j, i));
      return sum;
    });
  };
  RowBlock<Block> all(block);
  const float rows = largest(all, true);
  const float factor = 1 / (rows * largest(all, false));
  all.EachKey({0, p.size}, [&](int, int j) {
    for (int i = 0; i < p.size; ++i) p.out.Row(place.b, place.h, i)[j] = factor * a(j, i);
  });
}

// |other - a| / |a|.
template <class Block>
HEED_DEVICE void RunStep(Block& block, const ResidualParams& p, int64_t index) {
  const HeadPlace place(index, 1, p.heads);
  RowBlock<Block> all(block);
  const auto squares = [&](const auto& element) {
    return all.SumKeys({0, p.size}, [&](int, int j) {
      double sum = 0;
      for (int i = 0; i < p.size; ++i) sum += element(i, j) * element(i, j);
      return sum;
    });
  };
  const auto a = [&](int i, int j) { return double{p.a.Row(place.b, place.h, i)[j]}; };
  const double size = squares(a);
  const double far =
      squares([&](int i, int j) { return p.other.Row(place.b, place.h, i)[j] - a(i, j); });
  block.Each([&](int t) {
    if (t == 0) *p.out.Row(place.b, place.h, 0) = static_cast<float>(sqrt(far / size));
  });
}

// Row `index` of all heads.
template <class Block>
HEED_DEVICE void RunStep(Block& block, const ConvolveParams& p, int64_t index) {
  const HeadPlace place(index, p.rows, p.heads);
  const int first = place.within - p.num_taps / 2;
  const float* taps = p.taps.Row(0, place.h, 0);
  block.Each([&](int t) {
    for (int d = t; d < p.width; d += kBlockThreads) {
      float sum = 0;
      for (int n = 0; n < p.num_taps; ++n) {
        const int j = first + n;
        if (j < 0 || j >= p.len) continue;
        sum += taps[n] * p.v.Row(place.b, place.h / p.group, j)[d];
      }
      p.out.Row(place.b, place.h, place.within)[d] += sum;
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_COMPOSED_KERNELS_H_
