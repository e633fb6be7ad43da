#include "src/linear/backward_linear.h"

#include <algorithm>
#include <cmath>

#include "heed/linear.h"
#include "src/message.h"
#include "src/parallel/owned_heads.h"
#include "src/parallel/pieces.h"

namespace heed {
namespace {

// Rows and columns of a block that is turned at once: both sides stay in L1.
constexpr int64_t kBlock = 32;

bool IsFinite(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float x) { return std::isfinite(x); });
}

// The sum over rows of d_y^T x. Rows with a number that is not finite are left out of the matrix
// product and added one by one, where factors of 0 can be passed over.
class WeightGradient {
 public:
  WeightGradient(const TensorView<const float>& x, const TensorView<const float>& d_y,
                 ThreadPool& pool)
      : x_(x),
        d_y_(d_y),
        pool_(pool),
        rows_(RowCount(x.shape)),
        columns_(1, 1, d_y.shape[3], rows_),
        kept_(1, 1, rows_, x.shape[3]) {
    apart_.resize(static_cast<size_t>(rows_));
  }

  void Write(const TensorView<float>& to) {
    TransposeRows(d_y_, columns_.data(), &pool_);
    KeepFiniteRows();
    Bmm(columns_.view, kept_.view, to, &pool_);
    for (int64_t row = 0; row < rows_; ++row) {
      if (apart_[static_cast<size_t>(row)] != 0) AddRow(row, to);
    }
  }

 private:
  void KeepFiniteRows() {
    const int64_t in_dim = x_.shape[3], out_dim = d_y_.shape[3];
    ForEachRows(rows_, in_dim + out_dim, &pool_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* from = RowOf(x_, row);
        float* kept = kept_.data() + row * in_dim;
        if (IsFinite(from, in_dim) && IsFinite(RowOf(d_y_, row), out_dim)) {
          std::copy_n(from, in_dim, kept);
          continue;
        }
        apart_[static_cast<size_t>(row)] = 1;
        std::fill_n(kept, in_dim, 0.0f);
        for (int64_t o = 0; o < out_dim; ++o) columns_.data()[o * rows_ + row] = 0;
      }
    });
  }

  void AddRow(int64_t row, const TensorView<float>& to) {
    const float* x = RowOf(x_, row);
    const float* d_y = RowOf(d_y_, row);
    ForEachRows(to.shape[2], to.shape[3], &pool_, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        for (int64_t c = 0; c < to.shape[3] && d_y[o] != 0; ++c) {
          if (x[c] != 0) to(0, 0, o, c) += d_y[o] * x[c];
        }
      }
    });
  }

  const TensorView<const float>& x_;
  const TensorView<const float>& d_y_;
  ThreadPool& pool_;
  const int64_t rows_;
  const OwnedHeads columns_, kept_;
  ScratchVector<char> apart_;
};

}  // namespace

void TransposeRows(const TensorView<const float>& rows, float* to, ThreadPool* pool) {
  const int64_t count = RowCount(rows.shape);
  ForEachPiece(rows.shape[3], kBlock, pool, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t first = 0; first < count; first += kBlock) {
      const float* block[kBlock];
      const int64_t len = std::min(kBlock, count - first);
      for (int64_t i = 0; i < len; ++i) block[i] = RowOf(rows, first + i);
      for (int64_t c = begin; c < end; ++c) {
        for (int64_t i = 0; i < len; ++i) to[c * count + first + i] = block[i][c];
      }
    }
  });
}

void CopyInto(const TensorView<const float>& from, const TensorView<float>& to, ThreadPool& pool) {
  ForEachRows(RowCount(to.shape), to.shape[3], &pool, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      std::copy_n(RowOf(from, n), to.shape[3], RowOf(to, n));
    }
  });
}

void LinearBackward(const TensorView<const float>& x, const TensorView<const float>& weight,
                    const TensorView<const float>& d_y, const LinearGradients& to,
                    ThreadPool& pool) {
  if (to.d_weight.has_value()) WeightGradient(x, d_y, pool).Write(to.d_weight);
  if (!to.d_bias.empty()) {
    Clear(to.d_bias, &pool);
    AddColumnSums(RowCount(d_y.shape), d_y.shape[3], &pool, to.d_bias.data(),
                  [&](int64_t i, int64_t c) { return RowOf(d_y, i)[c]; });
  }
  if (to.d_x.has_value()) Linear(d_y, TransposedView(weight), {}, to.d_x, &pool);
}

}  // namespace heed
