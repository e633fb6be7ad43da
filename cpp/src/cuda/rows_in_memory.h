// Rows of q, k and v: where they lie, and how a block brings them into shared memory.
#ifndef HEED_SRC_CUDA_ROWS_IN_MEMORY_H_
#define HEED_SRC_CUDA_ROWS_IN_MEMORY_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/row_rules.h"

namespace heed::cuda {

// The page of token j, as a place in the table of all entries, and the token's place in the page.
struct PagePlace {
  int64_t entry;
  int32_t within;
};
HEED_DEVICE PagePlace PageOf(const DeviceRows& rows, int b, int j) {
  const int page = rows.page_shift >= 0 ? j >> rows.page_shift : j / rows.page_size;
  return {static_cast<int64_t>(b) * rows.table_width + page, j - page * rows.page_size};
}

// The row of token j, or nullptr where the table names a page that does not exist.
template <class Block>
HEED_DEVICE const char* RowOf(Block& block, const DeviceRows& rows, int b, int h, int j,
                              Fault* fault) {
  if (rows.table == nullptr) {
    return rows.data + b * rows.strides[0] + h * rows.strides[1] + j * rows.strides[2];
  }
  const PagePlace place = PageOf(rows, b, j);
  const int32_t page = rows.table[place.entry];
  if (page < 0 || page >= rows.num_pages) {
    block.Report(fault, FaultKind::kPage, place.entry, page);
    return nullptr;
  }
  return rows.data + page * rows.strides[0] + h * rows.strides[1] + place.within * rows.strides[2];
}

// What the numbers of row j of int8 or float8 pages, or of KV head h of float8 tensors, are
// multiplied by.
HEED_DEVICE float ScaleOf(const DeviceRows& rows, int b, int h, int j) {
  if (rows.scales == nullptr) return 1.0f;
  if (rows.table == nullptr) {
    return rows.scales[b * rows.scale_strides[0] + h * rows.scale_strides[1]];
  }
  const PagePlace place = PageOf(rows, b, j);
  const int32_t page = rows.table[place.entry];
  if (page < 0 || page >= rows.num_pages) return 1.0f;  // its numbers are zeros
  return rows.scales[page * rows.scale_strides[0] + h * rows.scale_strides[1] +
                     place.within * rows.scale_strides[2]];
}

// A number of a row in any storage type, as a float.
HEED_DEVICE float LoadAs(DType dtype, const char* row, int d) {
  if (dtype == DType::kFloat16) return ToFloat(reinterpret_cast<const Float16*>(row)[d]);
  if (dtype == DType::kBFloat16) return ToFloat(reinterpret_cast<const BFloat16*>(row)[d]);
  if (dtype == DType::kInt8) return static_cast<float>(reinterpret_cast<const int8_t*>(row)[d]);
  if (dtype == DType::kFloat8E4M3) return ToFloat(reinterpret_cast<const Float8E4M3*>(row)[d]);
  return reinterpret_cast<const float*>(row)[d];
}

// A number of a row as an element of a tile; those of 8 bits are exact in every type.
HEED_DEVICE void LoadElement(const DeviceRows& rows, const char* row, int d, float& x) {
  x = LoadAs(rows.dtype, row, d);
}
HEED_DEVICE void LoadElement(const DeviceRows& rows, const char* row, int d, Float16& x) {
  x = rows.dtype == DType::kFloat16 ? reinterpret_cast<const Float16*>(row)[d]
                                    : ToFloat16(LoadAs(rows.dtype, row, d));
}
HEED_DEVICE void LoadElement(const DeviceRows& rows, const char* row, int d, BFloat16& x) {
  x = rows.dtype == DType::kBFloat16 ? reinterpret_cast<const BFloat16*>(row)[d]
                                     : ToBFloat16(LoadAs(rows.dtype, row, d));
}

// Starts to copy kRows rows into a tile of Products (products.h). row(r) is where row r begins;
// what has no row, and what lies behind `width`, becomes 0; rows but those of takes(r) stay as they
// are. All threads, no barrier: the rows are there after CommitCopies(), WaitCopies() and a
// barrier.
//
// Where row(r) is much code, kInOneLoop keeps it from standing there once for each row of a thread.
template <class Products, int kRows, bool kInOneLoop = false, class Block, class Shared,
          class RowPointer, class Takes>
HEED_DEVICE void CopySomeRows(Block& block, Shared& to, const DeviceRows& rows,
                              const RowPointer& row, const Takes& takes) {
  using Element = typename Products::Element;
  constexpr int kChunk = 16 / sizeof(Element);
  constexpr int kChunks = Products::kDim / kChunk;
  constexpr int kStride = Products::kStride;
  // A thread has the same columns of every row that it copies.
  static_assert(kBlockThreads % kChunks == 0);
  constexpr int kAtOnce = kBlockThreads / kChunks;
  constexpr int kTurns = (kRows + kAtOnce - 1) / kAtOnce;
  const auto copy = [&](int t, int r) {
    if ((kRows % kAtOnce != 0 && r >= kRows) || !takes(r)) return;
    const int d = t % kChunks * kChunk;
    const int at = r * kStride + d;
    if (const char* from = d < rows.width ? row(r) : nullptr; from != nullptr) {
      to.CopyAsync(t, at, from + d * sizeof(Element));
    } else {
      to.Clear(t, at);
    }
  };
  block.Each([&](int t) {
    if (!rows.vectors) {
      HEED_NO_UNROLL for (int i = t; i < kRows * Products::kDim; i += kBlockThreads) {
        const int r = i / Products::kDim;
        const int d = i % Products::kDim;
        if (!takes(r)) continue;
        Element element{};
        if (const char* from = d < rows.width ? row(r) : nullptr; from != nullptr) {
          LoadElement(rows, from, d, element);
        }
        to.Store(t, r * kStride + d, element);
      }
    } else if constexpr (kInOneLoop) {
      HEED_NO_UNROLL for (int n = 0; n < kTurns; ++n) copy(t, n * kAtOnce + t / kChunks);
    } else {
      HEED_UNROLL for (int n = 0; n < kTurns; ++n) copy(t, n * kAtOnce + t / kChunks);
    }
  });
}

template <class Products, int kRows, bool kInOneLoop = false, class Block, class Shared,
          class RowPointer>
HEED_DEVICE void CopyRows(Block& block, Shared& to, const DeviceRows& rows, const RowPointer& row) {
  CopySomeRows<Products, kRows, kInOneLoop>(block, to, rows, row, [](int) { return true; });
}

// The same of kRows rows that follow one another in memory, of which [exist.begin, exist.end) do
// exist. `first` is where row 0 begins, or would.
template <class Products, int kRows, class Block, class Shared>
HEED_DEVICE void CopyRowsInLine(Block& block, Shared& to, const DeviceRows& rows, const char* first,
                                const RowKeys& exist) {
  using Element = typename Products::Element;
  constexpr int kChunk = 16 / sizeof(Element);
  constexpr int kChunks = Products::kDim / kChunk;
  constexpr int kAtOnce = kBlockThreads / kChunks;
  const int64_t stride = rows.strides[2];
  if (!rows.vectors) {
    return CopyRows<Products, kRows, true>(block, to, rows, [&](int r) {
      return r >= exist.begin && r < exist.end ? first + r * stride : nullptr;
    });
  }
  static_assert(kRows % kAtOnce == 0);
  block.Each([&](int t) {
    const int own = t / kChunks;
    const int d = t % kChunks * kChunk;
    // Row r exists if r - begin, which wraps, is below their number.
    const uint32_t begin = static_cast<uint32_t>(exist.begin);
    const uint32_t count = d < rows.width ? static_cast<uint32_t>(exist.end) - begin : 0;
    const char* from = first + own * stride + d * sizeof(Element);
    const auto copy = [&](int n) {
      const int r = n * kAtOnce + own;
      const int at = r * Products::kStride + d;
      if (static_cast<uint32_t>(r) - begin >= count) {
        to.Clear(t, at);
      } else {
        to.CopyAsync(t, at, from);
      }
      from += kAtOnce * stride;
    };
    // Beside the registers of 64 columns, and of 256 floats, there are none for more than one at
    // once.
    if constexpr (kRows / kAtOnce <= 4 || kChunks == 64) {
      HEED_NO_UNROLL for (int n = 0; n < kRows / kAtOnce; ++n) copy(n);
    } else {
      HEED_UNROLL for (int n = 0; n < kRows / kAtOnce; ++n) copy(n);
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ROWS_IN_MEMORY_H_
