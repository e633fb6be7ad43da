// Host arrays of a call on their way to the device. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_SEND_H_
#define HEED_SRC_CUDA_SEND_H_

#include <vector>

#include "heed/cuda.h"

namespace heed::cuda {

// Copies bytes to device memory in the stream's order. They are read before the call returns, also
// when the stream is captured in a graph, which then has its own copy.
void SendArrays(const std::vector<char>& bytes, char* to, Stream stream);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_SEND_H_
