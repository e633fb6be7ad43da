// A request on the device path, as tests of other files run it.
#ifndef HEED_TESTS_CUDA_DEVICE_REQUEST_H_
#define HEED_TESTS_CUDA_DEVICE_REQUEST_H_

#include <algorithm>
#include <limits>
#include <vector>

#include "device_backend.h"
#include "heed/cuda.h"
#include "request_builder.h"

namespace heed::testing {

// What the device makes of a request of float32 results; they are filled with NaN first.
inline Values RunOnDevice(const Request& request) {
  std::vector<std::vector<float>> floats;
  std::vector<NamedTensor> results;
  for (const OutputSpec& spec : cuda::PlanOutputs(request)) {
    const std::span<const int64_t> shape(spec.shape.data(), static_cast<size_t>(spec.rank));
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    floats.emplace_back(std::max<size_t>(count, 1), std::numeric_limits<float>::quiet_NaN());
    floats.back().resize(count);
    results.push_back({spec.name, ContiguousTensor(DType::kFloat32, floats.back().data(), shape)});
  }
  RunRequestOnDevice(request, results);
  Values values;
  for (size_t n = 0; n < results.size(); ++n) {
    values[results[n].name].assign(floats[n].begin(), floats[n].end());
  }
  return values;
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_DEVICE_REQUEST_H_
