#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "src/cuda/runtime.h"
#include "src/cuda/send.h"

namespace heed::cuda {
namespace {

// Arrays travel as kernel parameters: a launch copies those at the call, even under stream capture,
// where a copy from pageable memory would read it at every replay.
struct Parcel {
  static constexpr int kBytes = 4000;
  char bytes[kBytes];
};
__global__ void Unpack(const __grid_constant__ Parcel parcel, char* to, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    to[i] = parcel.bytes[i];
  }
}

// Beyond so many launches a copy that waits for the stream is the lesser evil.
constexpr size_t kMostParcels = 256;

}  // namespace

void SendArrays(const std::vector<char>& bytes, char* to, Stream stream) {
  if (bytes.size() > kMostParcels * Parcel::kBytes && !IsCaptured(stream)) {
    // From pageable memory: it may be reused when the call returns.
    ThrowOnError(cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream),
                 "sending arrays");
    return;
  }
  for (size_t at = 0; at < bytes.size(); at += Parcel::kBytes) {
    const size_t count = std::min<size_t>(Parcel::kBytes, bytes.size() - at);
    Parcel parcel;
    std::memcpy(parcel.bytes, bytes.data() + at, count);
    Unpack<<<1, 256, 0, stream>>>(parcel, to + at, static_cast<int>(count));
  }
  ThrowOnError(cudaGetLastError(), "sending arrays");
}

}  // namespace heed::cuda
