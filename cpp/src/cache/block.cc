// Blocks of a cache: their layout, their memory, and numbers going in and out.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "src/cache/state.h"
#include "src/message.h"
#include "src/view_checks.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace heed {
namespace {

constexpr size_t kLine = 64;
[[maybe_unused]] constexpr size_t kHugePage = size_t{2} << 20;

// A token reads all pages of a cache, and with small ones finding them takes a tenth of its time
// (Zen 4): blocks that fill a huge page begin at one.
std::align_val_t AlignmentOf([[maybe_unused]] int64_t bytes) {
#ifdef __linux__
  if (static_cast<size_t>(bytes) >= kHugePage) return std::align_val_t{kHugePage};
#endif
  return std::align_val_t{kLine};
}

// Asks for huge pages where a process has to ask, as most Linux systems are set. Where it is
// refused nothing is lost.
void AskForHugePages([[maybe_unused]] char* data, [[maybe_unused]] int64_t bytes) {
#ifdef __linux__
  const size_t whole = static_cast<size_t>(bytes) / kHugePage * kHugePage;
  if (whole > 0) madvise(data, whole, MADV_HUGEPAGE);
#endif
}

// Without a size of blocks there is one for the whole capacity, in whole pages.
[[noreturn]] void FailTooLarge(const KvCacheOptions& o) {
  const int64_t more = o.block_size - o.capacity;
  const bool is_whole = o.capacity > 0 && more >= 0 && more < std::max<int64_t>(1, o.page_size);
  Fail(ErrorCode::kShape, "{} = {}: a block of so many tokens has more bytes than can be addressed",
       {is_whole ? "capacity" : "block_size", is_whole ? o.capacity : o.block_size});
}

// Products of sizes that say so when they do not fit.
int64_t Times(const KvCacheOptions& o, int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) FailTooLarge(o);
  return product;
}

int64_t RoundUpToLine(int64_t bytes) {
  constexpr auto kBytes = static_cast<int64_t>(kLine);
  return (bytes + kBytes - 1) / kBytes * kBytes;
}

float LargestSize(const float* row, int64_t width) {
  float largest = 0.0f;
  for (int64_t c = 0; c < width; ++c) {
    const float size = std::abs(row[c]);
    if (!(size <= std::numeric_limits<float>::max())) return size;  // infinite or NaN
    largest = std::max(largest, size);
  }
  return largest;
}

// The scale of a row, and its reciprocal as what numbers are multiplied by before they are rounded.
// A row with a number that is not finite gets NaN.
struct RowScale {
  float scale;
  float inverse;
};

RowScale ScaleOf(const float* row, int64_t width, float top) {
  const float largest = LargestSize(row, width);
  if (!std::isfinite(largest)) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
  // Below, the reciprocal is no finite number: such a row counts as zeros.
  if (largest < 0x1p-100f) return {0.0f, 0.0f};
  return {largest / top, top / largest};
}

}  // namespace

BlockLayout MakeLayout(const KvCacheOptions& o) {
  BlockLayout layout;
  layout.dtype = o.dtype;
  layout.block_size = o.block_size;
  layout.num_kv_heads = o.num_kv_heads;
  layout.k_row_bytes = Times(o, o.head_dim, ElementSize(o.dtype));
  layout.v_row_bytes = Times(o, o.head_dim_v, ElementSize(o.dtype));
  const int64_t rows = Times(o, o.num_kv_heads, o.block_size);
  // Bounds everything below, with room for alignment.
  const int64_t widest = std::max(layout.k_row_bytes, layout.v_row_bytes);
  Times(o, Times(o, rows, std::max<int64_t>(8, Times(o, 2, widest))), 4);
  layout.v_offset = RoundUpToLine(rows * layout.k_row_bytes);
  layout.bytes = layout.v_offset + RoundUpToLine(rows * layout.v_row_bytes);
  if (o.dtype == DType::kInt8 || o.dtype == DType::kFloat8E4M3) {
    const int64_t scale_bytes = RoundUpToLine(rows * static_cast<int64_t>(sizeof(float)));
    layout.k_scale_offset = layout.bytes;
    layout.v_scale_offset = layout.bytes + scale_bytes;
    layout.bytes += 2 * scale_bytes;
  }
  layout.head_dim = o.head_dim;
  layout.page_size = o.page_size;
  if (o.page_size > 0) {
    layout.bounds_offset = layout.bytes;
    // At most as many pages as tokens: bounded above.
    layout.bytes += RoundUpToLine(layout.bounds_bytes());
  }
  if (static_cast<uint64_t>(layout.bytes) > std::numeric_limits<size_t>::max() / 2) {
    FailTooLarge(o);
  }
  return layout;
}

Block::Block(const BlockLayout& layout) : bytes_(layout.bytes) {
  data_ = static_cast<char*>(
      ::operator new(static_cast<size_t>(bytes_), AlignmentOf(bytes_), std::nothrow));
  if (data_ == nullptr) {
    Fail(ErrorCode::kMemory, "could not allocate a cache block of {} bytes", {bytes_});
  }
  AskForHugePages(data_, bytes_);
}

Block::~Block() { ::operator delete(data_, AlignmentOf(bytes_)); }

void StoreRow(const BlockLayout& layout, const float* from, int64_t width, void* to, float* scale) {
  switch (layout.dtype) {
    case DType::kFloat16:
      for (int64_t c = 0; c < width; ++c) static_cast<Float16*>(to)[c] = ToFloat16(from[c]);
      return;
    case DType::kBFloat16:
      for (int64_t c = 0; c < width; ++c) static_cast<BFloat16*>(to)[c] = ToBFloat16(from[c]);
      return;
    case DType::kInt8: {
      const RowScale row = ScaleOf(from, width, 127.0f);
      *scale = row.scale;
      for (int64_t c = 0; c < width; ++c) {
        const float x = std::isfinite(from[c]) ? from[c] * row.inverse : 0.0f;
        static_cast<int8_t*>(to)[c] =
            static_cast<int8_t>(std::clamp(std::nearbyint(x), -127.0f, 127.0f));
      }
      return;
    }
    case DType::kFloat8E4M3: {
      const RowScale row = ScaleOf(from, width, 448.0f);
      *scale = row.scale;
      for (int64_t c = 0; c < width; ++c) {
        const float x = std::isfinite(from[c]) ? from[c] * row.inverse : 0.0f;
        static_cast<Float8E4M3*>(to)[c] = ToFloat8E4M3(x);
      }
      return;
    }
    default:
      std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
  }
}

void LoadRow(const BlockLayout& layout, const void* from, float scale, int64_t width, float* to) {
  for (int64_t c = 0; c < width; ++c) {
    switch (layout.dtype) {
      case DType::kFloat16:
        to[c] = ToFloat(static_cast<const Float16*>(from)[c]);
        break;
      case DType::kBFloat16:
        to[c] = ToFloat(static_cast<const BFloat16*>(from)[c]);
        break;
      case DType::kInt8:
        to[c] = static_cast<float>(static_cast<const int8_t*>(from)[c]) * scale;
        break;
      case DType::kFloat8E4M3:
        to[c] = ToFloat(static_cast<const Float8E4M3*>(from)[c]) * scale;
        break;
      default:
        to[c] = static_cast<const float*>(from)[c];
    }
  }
}

// The row as floats; `converted` is used when it is stored otherwise.
const float* FloatRow(const StoredTensor& from, int64_t b, int64_t h, int64_t i, float* converted) {
  const void* row = from.Row(b, h, i);
  if (from.dtype == DType::kFloat32) return static_cast<const float*>(row);
  const BlockLayout type = {.dtype = from.dtype};
  LoadRow(type, row, 1.0f, from.shape[3], converted);
  return converted;
}

}  // namespace heed
