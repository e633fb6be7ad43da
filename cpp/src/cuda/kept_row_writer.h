// Writes which keys a row keeps (kept_rows.h): all threads of a block together, a word each.
#ifndef HEED_SRC_CUDA_KEPT_ROW_WRITER_H_
#define HEED_SRC_CUDA_KEPT_ROW_WRITER_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/kept_rows.h"

namespace heed::cuda {

template <class Block>
class KeptRowWriter {
 public:
  HEED_DEVICE KeptRowWriter(Block& block, const KeptRows& rows)
      : block_(block), rows_(rows), counts_(block.template Allocate<int32_t>(kBlockThreads)) {}
  static constexpr int kSharedBytes = kBlockThreads * static_cast<int>(sizeof(int32_t));

  // Row `row` of [batch, lists, len] keeps the keys j < end of which keeps(j) is true. Returns how
  // many words hold them. Barriers, and one at the end.
  template <class Keeps>
  HEED_DEVICE int64_t Write(int64_t row, int64_t end, const Keeps& keeps) {
    const int64_t start = row * rows_.room;
    const int64_t num_words = (end + 63) / 64;
    int64_t next = start;
    HEED_NO_UNROLL for (int64_t first = 0; first < num_words; first += kBlockThreads) {
      Registers word;
      block_.Each([&](int t) {
        word(t, 0) = WordOf(first + t, end, keeps);
        counts_.Store(t, t, word(t, 0) != 0 ? 1 : 0);
      });
      block_.Sync();
      block_.Each([&](int t) {
        if (word(t, 0) == 0) return;
        int64_t at = next;
        HEED_NO_UNROLL for (int n = 0; n < t; ++n) at += counts_.Load(t, n);
        rows_.tiles[at] = static_cast<int32_t>(first + t);
        rows_.words[at] = word(t, 0);
      });
      HEED_NO_UNROLL for (int n = 0; n < kBlockThreads; ++n) next += counts_.LoadUniform(n);
      block_.Sync();
    }
    StorePlace(row, start, next);
    block_.Sync();
    return next - start;
  }

 private:
  using Registers = typename Block::template Registers<uint64_t, 1>;

  template <class Keeps>
  HEED_DEVICE uint64_t WordOf(int64_t n, int64_t end, const Keeps& keeps) const {
    uint64_t word = 0;
    HEED_NO_UNROLL for (int bit = 0; bit < 64 && 64 * n + bit < end; ++bit) {
      if (keeps(64 * n + bit)) word |= uint64_t{1} << bit;
    }
    return word;
  }

  HEED_DEVICE void StorePlace(int64_t row, int64_t start, int64_t end) {
    const int64_t list = row / rows_.len, i = row % rows_.len;
    block_.Each([&](int t) {
      if (t == 0) {
        rows_.starts[row] = start;
        rows_.ends[row] = end;
      }
      for (int copy = t; copy < rows_.copies; copy += kBlockThreads) {
        rows_.ids[(list * rows_.copies + copy) * rows_.len + i] = static_cast<int32_t>(row);
      }
    });
  }

  Block& block_;
  const KeptRows& rows_;
  typename Block::template Shared<int32_t> counts_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_KEPT_ROW_WRITER_H_
