// Keep rules made of other people's arrays.
#include <string>

#include "heed/error.h"
#include "heed/keep.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

void CheckIndex(const char* name, int64_t index, int64_t count) {
  if (index >= 0 && index < count) return;
  Fail(ErrorCode::kRange, "{} holds {}; expected 0 to {}", {name, index, count - 1});
}

std::vector<uint8_t> NothingKept(int64_t q_len, int64_t kv_len) {
  CheckExtents("keep", {1, 1, q_len, kv_len}, {0, 0, kv_len, 1}, 1);
  return VectorOf("keep flags", q_len * kv_len, uint8_t{0});
}

}  // namespace

std::vector<int32_t> DocumentsFromCuSeqlens(std::span<const int32_t> cu_seqlens, int64_t len) {
  if (len < 0) Fail(ErrorCode::kRange, "len = {}; it must not be negative", {len});
  if (cu_seqlens.empty()) Fail(ErrorCode::kRange, "cu_seqlens is empty; it must begin with 0");
  std::vector<int32_t> ids = VectorOf("ids of documents", len, int32_t{-1});
  int32_t begin = 0;
  for (size_t n = 0; n < cu_seqlens.size(); ++n) {
    const int32_t end = cu_seqlens[n];
    if ((n == 0 && end != 0) || end < begin || end > len) {
      Fail(ErrorCode::kRange,
           "cu_seqlens[{}] = {}; it must begin with 0, not decrease, and stay within len = {}",
           {n, end, len});
    }
    for (int32_t i = begin; i < end; ++i) ids[static_cast<size_t>(i)] = static_cast<int32_t>(n) - 1;
    begin = end;
  }
  return ids;
}

std::vector<uint8_t> KeepFromCoo(std::span<const int32_t> rows, std::span<const int32_t> cols,
                                 int64_t q_len, int64_t kv_len) {
  if (rows.size() != cols.size()) {
    Fail(ErrorCode::kShape, "rows has {} values and cols {}; they are pairs",
         {rows.size(), cols.size()});
  }
  std::vector<uint8_t> keep = NothingKept(q_len, kv_len);
  for (size_t n = 0; n < rows.size(); ++n) {
    CheckIndex("rows", rows[n], q_len);
    CheckIndex("cols", cols[n], kv_len);
    keep[static_cast<size_t>(rows[n] * kv_len + cols[n])] = 1;
  }
  return keep;
}

std::vector<uint8_t> KeepFromCsr(std::span<const int32_t> indptr, std::span<const int32_t> indices,
                                 int64_t q_len, int64_t kv_len) {
  if (static_cast<int64_t>(indptr.size()) != q_len + 1) {
    Fail(ErrorCode::kShape, "indptr has {} values; expected q_len + 1 = {}",
         {indptr.size(), q_len + 1});
  }
  const int64_t last = indptr.back(), count = static_cast<int64_t>(indices.size());
  if (indptr.front() != 0 || last != count) {
    Fail(ErrorCode::kRange, "indptr goes from {} to {}; expected 0 to the number of indices, {}",
         {indptr.front(), last, count});
  }
  std::vector<uint8_t> keep = NothingKept(q_len, kv_len);
  for (int64_t i = 0; i < q_len; ++i) {
    const int64_t begin = indptr[static_cast<size_t>(i)];
    const int64_t end = indptr[static_cast<size_t>(i) + 1];
    if (begin < 0 || end < begin || end > static_cast<int64_t>(indices.size())) {
      Fail(ErrorCode::kRange,
           "indptr[{}] = {}; it must not decrease, and stay within the {} indices",
           {i + 1, end, indices.size()});
    }
    for (int64_t n = begin; n < end; ++n) {
      const int64_t key = indices[static_cast<size_t>(n)];
      CheckIndex("indices", key, kv_len);
      keep[static_cast<size_t>(i * kv_len + key)] = 1;
    }
  }
  return keep;
}

}  // namespace heed
