// Rows of q, k and v as floats, wherever and in whatever type they are stored; and where the stored
// ones lie.
#if defined(HEED_EXACT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_ROWS_INL_H_
#undef HEED_EXACT_ROWS_INL_H_
#else
#define HEED_EXACT_ROWS_INL_H_
#endif

#include <algorithm>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/exact/problem.h"
#include "src/exact/stored_rows-inl.h"
#include "src/exact/tile.h"
#include "src/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Where the rows of k or v of one KV head are.
struct HeadRows {
  const StoredTensor* tensor;
  const CachedRows* cached;  // instead of the tensor's data, or nullptr
  int64_t batch;
  int64_t head;

  DType dtype() const { return cached == nullptr ? tensor->dtype : cached->dtype; }
  size_t width() const { return static_cast<size_t>(tensor->shape[3]); }
  size_t RowBytes() const { return width() * static_cast<size_t>(ElementSize(dtype())); }
  // nullptr for a token that was evicted: no row sees it.
  const void* Row(int64_t j) const {
    return cached == nullptr ? tensor->Row(batch, head, j) : cached->Row(batch, head, j);
  }
  // What row j and those after it in its run are multiplied by; nullptr where nothing is.
  const float* Scales(int64_t j) const {
    return cached == nullptr ? nullptr : cached->Scales(batch, head, j);
  }
  // Rows from j on that lie RunStride() bytes apart, at most `most`.
  int64_t RunLength(int64_t j, int64_t most) const {
    return cached == nullptr ? most : std::min(most, cached->RunLength(j));
  }
  int64_t RunStride() const {
    return cached == nullptr ? tensor->strides[2] * ElementSize(tensor->dtype) : cached->row_bytes;
  }
};

// Memory for rows that are not floats where they lie.
struct RowBuffers {
  float* converted;    // PanelCols() rows
  const float* zeros;  // one row
};

// Points rows[r] to row first + r as floats, for up to PanelCols() rows.
inline void GatherRows(const HeadRows& from, int64_t first, size_t count, RowBuffers buffers,
                       const float** rows) {
  const size_t width = from.width();
  for (size_t r = 0; r < count; ++r) {
    const int64_t j = first + static_cast<int64_t>(r);
    const void* stored = from.Row(j);
    if (stored == nullptr) {
      rows[r] = buffers.zeros;
    } else if (from.dtype() == DType::kFloat32) {
      rows[r] = static_cast<const float*>(stored);
    } else {
      float* HWY_RESTRICT to = buffers.converted + r * width;
      const float* scale = from.Scales(j);
      StoredRowToFloats(from.dtype(), stored, scale == nullptr ? 1.0f : *scale, width, to);
      rows[r] = to;
    }
  }
}

// Reads a byte of every cache line.
HWY_INLINE void Touch(const void* row, size_t bytes) {
  constexpr size_t kLine = 64;
  const auto* lines = static_cast<const volatile char*>(row);
  for (size_t byte = 0; byte < bytes; byte += kLine) (void)lines[byte];
}

// Reads the rows of columns [first, last) of the tile once, in the order of memory, so that what
// follows finds them in the cache. Squares of them are transposed one by one, which the prefetchers
// of the processor take for many slow streams: half the speed (Zen 4).
inline void TouchRows(const HeadRows& from, const ScoreTile& tile) {
  const size_t bytes = from.RowBytes();
  for (size_t c = tile.first; c < std::min(tile.last, tile.num_keys); ++c) {
    const void* row = from.Row(tile.key_begin + static_cast<int64_t>(c));
    if (row != nullptr) Touch(row, bytes);
  }
}

// Finds those of columns [first, last) of the tile.
inline void FindRows(const HeadRows& from, const ScoreTile& tile, const float* zeros,
                     StoredRows& stored) {
  const size_t end = std::min(tile.last, tile.num_keys);
  for (size_t c = tile.first; c < end;) {
    const int64_t j = tile.key_begin + static_cast<int64_t>(c);
    const auto* const run = static_cast<const char*>(from.Row(j));
    const int64_t length = from.RunLength(j, static_cast<int64_t>(end - c));
    const size_t run_end = c + static_cast<size_t>(length);
    if (run == nullptr) {
      std::fill_n(stored.rows + c, length, zeros);
      std::fill_n(stored.scales + c, length, 0.0f);
    } else {
      const char* row = run;
      const int64_t stride = from.RunStride();
      for (size_t n = c; n < run_end; ++n, row += stride) stored.rows[n] = row;
      if (const float* const scales = from.Scales(j); scales != nullptr) {
        // Those of the next tile are asked for: they are few, and no stream of their own.
        for (int64_t n = 0; n < length; n += 16) hwy::Prefetch(scales + length + n);
        std::copy_n(scales, length, stored.scales + c);
      }
    }
    c = run_end;
  }
  for (size_t c = end; c < tile.last; ++c) {
    stored.rows[c] = stored.rows[end - 1];
    stored.scales[c] = 0.0f;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_ROWS_INL_H_
