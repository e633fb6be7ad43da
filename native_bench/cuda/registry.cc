// The list of peers on the GPU. To add one: a file in this folder, its declaration in
// device_peer.h, a line here.
#include <array>

#include "native_bench/device_peer.h"

namespace heed::bench {

std::span<const DevicePeer> DevicePeers() {
  static const std::array peers = {
    HeedDevicePeer(),
    HeedHopperPeer(),
#if defined(HEED_BENCH_CUDNN)
    CudnnPeer(),
#endif
#if defined(HEED_BENCH_CUBLAS)
    CublasPeer(),
#endif
  };
  return peers;
}

}  // namespace heed::bench
