// Rows of q, k and v: where they lie, and how a block brings them into shared memory.
#ifndef HEED_SRC_CUDA_ROWS_IN_MEMORY_H_
#define HEED_SRC_CUDA_ROWS_IN_MEMORY_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"

namespace heed::cuda {

// The row of token j, or nullptr where the table names a page that does not exist.
template <class Block>
HEED_DEVICE const char* RowOf(Block& block, const DeviceRows& rows, int b, int h, int j,
                              Fault* fault) {
  if (rows.table == nullptr) {
    return rows.data + b * rows.strides[0] + h * rows.strides[1] + j * rows.strides[2];
  }
  const int64_t entry = static_cast<int64_t>(b) * rows.table_width + j / rows.page_size;
  const int32_t page = rows.table[entry];
  if (page < 0 || page >= rows.num_pages) {
    block.Report(fault, FaultKind::kPage, entry, page);
    return nullptr;
  }
  return rows.data + page * rows.strides[0] + h * rows.strides[1] +
         j % rows.page_size * rows.strides[2];
}

// What the numbers of row j of int8 or float8 pages, or of KV head h of float8 tensors, are
// multiplied by.
HEED_DEVICE float ScaleOf(const DeviceRows& rows, int b, int h, int j) {
  if (rows.scales == nullptr) return 1.0f;
  if (rows.table == nullptr) {
    return rows.scales[b * rows.scale_strides[0] + h * rows.scale_strides[1]];
  }
  const int32_t page = rows.table[static_cast<int64_t>(b) * rows.table_width + j / rows.page_size];
  if (page < 0 || page >= rows.num_pages) return 1.0f;  // its numbers are zeros
  return rows.scales[page * rows.scale_strides[0] + h * rows.scale_strides[1] +
                     j % rows.page_size * rows.scale_strides[2]];
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
template <class Products, int kRows, class Block, class Shared, class RowPointer, class Takes>
HEED_DEVICE void CopySomeRows(Block& block, Shared& to, const DeviceRows& rows,
                              const RowPointer& row, const Takes& takes) {
  using Element = typename Products::Element;
  constexpr int kChunk = 16 / sizeof(Element);
  constexpr int kChunks = Products::kDim / kChunk;
  constexpr int kStride = Products::kStride;
  block.Each([&](int t) {
    HEED_NO_UNROLL for (int c = t; c < kRows * kChunks; c += kBlockThreads) {
      const int r = c / kChunks;
      const int d = c % kChunks * kChunk;
      if (!takes(r)) continue;
      const char* from = row(r);
      if (from != nullptr && rows.vectors && d < rows.width) {
        to.CopyAsync(t, r * kStride + d, from + d * sizeof(Element));
        continue;
      }
      HEED_UNROLL for (int x = 0; x < kChunk; ++x) {
        const bool inside = from != nullptr && d + x < rows.width;
        Element element{};
        if (inside) LoadElement(rows, from, d + x, element);
        to.Store(t, r * kStride + d + x, element);
      }
    }
  });
}

template <class Products, int kRows, class Block, class Shared, class RowPointer>
HEED_DEVICE void CopyRows(Block& block, Shared& to, const DeviceRows& rows, const RowPointer& row) {
  CopySomeRows<Products, kRows>(block, to, rows, row, [](int) { return true; });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ROWS_IN_MEMORY_H_
