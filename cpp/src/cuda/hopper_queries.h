// How the queries of a group that computes get to shared memory.
#ifndef HEED_SRC_CUDA_HOPPER_QUERIES_H_
#define HEED_SRC_CUDA_HOPPER_QUERIES_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/hopper_layout.h"
#include "src/cuda/hopper_params.h"
#include "src/cuda/hopper_rows.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

// Starts to copy those of consumer `own` of the item at `place`; what has no row, and what lies
// behind the width, becomes 0. By the threads: packed rows of a group of any size are no box of a
// tensor. There after a wait for copies and a barrier.
//
// A thread has the same 16 bytes of every panel and every kRowsAtOnce-th row, so that its places in
// shared memory are constants apart, and a row is looked for once for all panels.
template <class Shape, class Group>
HEED_DEVICE void CopyQueriesOf(Group& group, const HopperParams& p, const BlockPlace& place,
                               int own) {
  constexpr int kElementBytes = static_cast<int>(sizeof(typename Shape::Element));
  constexpr int kRowBytes = Shape::kDim * kElementBytes;
  constexpr int kChunks = (kRowBytes < kPanelBytes ? kRowBytes : kPanelBytes) / 16;
  constexpr int kRowsAtOnce = kGroupThreads / kChunks;
  static_assert(kRowsAtOnce % 8 == 0 && kGroupRows % kRowsAtOnce == 0);  // swizzled alike
  const int batch = p.by_kv_heads.Quotient(place.unit);
  const int kv_head = place.unit - batch * p.num_kv_heads;
  const char* const heads = p.q.data + batch * p.q.strides[0] + kv_head * p.group * p.q.strides[1];
  const int32_t rows = static_cast<int32_t>(p.rows);
  const int width = p.q.width * kElementBytes;
  group.Each([&](int t) {
    const int byte = t % kChunks * 16;
    int32_t row = FirstRowOf<Shape>(place) + own * kGroupRows + t / kChunks;
    int to = Shape::QueriesAt(own) + SwizzledByte(kGroupRows, t / kChunks, byte);
    HEED_UNROLL for (int n = 0; n < kGroupRows / kRowsAtOnce; ++n) {
      const int query = p.by_group.Quotient(row);
      const char* const from =
          heads + query * p.q.strides[2] + (row - query * p.group) * p.q.strides[1] + byte;
      HEED_UNROLL for (int ahead = 0; ahead < kRowBytes; ahead += kPanelBytes) {
        if (ahead + byte >= kRowBytes) continue;
        const int at = to + ahead * kGroupRows;
        if (row < rows && ahead + byte < width) {
          group.CopyAsync(t, at, from + ahead);
        } else {
          group.StoreChunk(t, at, {0, 0, 0, 0});
        }
      }
      row += kRowsAtOnce;
      to += kRowsAtOnce * kPanelBytes;
    }
  });
  group.CommitCopies();
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_QUERIES_H_
