// --device cuda in a build without CUDA, which leaves out the rest of this folder.
#include "native_bench/backward.h"
#include "native_bench/device_peer.h"
#include "native_bench/device_run.h"

namespace heed::bench {

std::span<const DevicePeer> DevicePeers() { return {}; }

Report RunDeviceBenchmark(const Options&, const std::string&, const Progress&, const Checkpoint&) {
  RefuseDevice(cuda::Available());
}

BackwardReport MeasureDeviceBackward(const Options&, Report, const Progress&,
                                     const CheckpointOf<BackwardReport>&) {
  RefuseDevice(cuda::Available());
}

}  // namespace heed::bench
