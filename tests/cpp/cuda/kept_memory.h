// Memory of kept rows (src/cuda/kept_rows.h) on the host.
#ifndef HEED_TESTS_CUDA_KEPT_MEMORY_H_
#define HEED_TESTS_CUDA_KEPT_MEMORY_H_

#include <cstdint>
#include <vector>

#include "src/cuda/kept_rows.h"

namespace heed::testing {

// `spare` words behind the last row are no row's.
struct KeptMemory {
  std::vector<int32_t> ids, tiles;
  std::vector<int64_t> starts, ends;
  std::vector<uint64_t> words;
  cuda::KeptRows rows{};

  KeptMemory(int32_t batch, int32_t lists, int32_t copies, int32_t len, int64_t room,
             int64_t spare = 0) {
    const size_t count = static_cast<size_t>(batch) * static_cast<size_t>(lists * len);
    ids.resize(count * static_cast<size_t>(copies), -1);
    starts.resize(count, -1);
    ends.resize(count, -1);
    tiles.resize(count * static_cast<size_t>(room) + static_cast<size_t>(spare), -1);
    words.resize(tiles.size(), 0);
    rows = {ids.data(), starts.data(), ends.data(), tiles.data(), words.data(),
            room,       lists,         copies,      len};
  }
};

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_KEPT_MEMORY_H_
