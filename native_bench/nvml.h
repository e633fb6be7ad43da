// NVIDIA's management library (NVML), which comes with the driver. It is looked for while the
// program runs, as containers have it in other places than machines, or not at all.
#ifndef HEED_NATIVE_BENCH_NVML_H_
#define HEED_NATIVE_BENCH_NVML_H_

#include <string>
#include <string_view>
#include <vector>

#include "native_bench/gpu.h"

namespace heed::bench {

// Where the library may be: where the system looks, beside the driver's libcuda.so in the text of
// /proc/self/maps, and in the folders of containers.
std::vector<std::string> NvmlPaths(std::string_view maps);

// What the first library that loads says of a device. `missing` names what failed.
GpuReading ReadNvml(const std::vector<std::string>& paths, const std::string& bus_id);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_NVML_H_
