// Peers on a GPU: implementations of the same mathematics, on the same tensors in device memory.
#ifndef HEED_NATIVE_BENCH_DEVICE_PEER_H_
#define HEED_NATIVE_BENCH_DEVICE_PEER_H_

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "native_bench/cases.h"

namespace heed::bench {

class DeviceProblem;

// A peer is one file of cuda/ and one line of cuda/registry.cc.
struct DevicePeer {
  std::string_view id;
  std::string_view summary;  // one sentence
  std::string (*details)();  // versions; may be empty

  // Why the peer cannot run the case; empty when it can.
  std::string (*refuse)(const Case& c);

  // Binds the peer to a problem: plans, workspaces, whatever an application would keep. The
  // returned call puts all passes over q, k and v into the default stream and does not wait for
  // them. The problem outlives it. May throw.
  std::function<void()> (*prepare)(DeviceProblem& problem);
};

// Every peer of this build, heed first; none in a build without CUDA.
std::span<const DevicePeer> DevicePeers();

// One per file of cuda/.
DevicePeer HeedDevicePeer();
DevicePeer HeedHopperPeer();
DevicePeer CublasPeer();
DevicePeer CudnnPeer();

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_DEVICE_PEER_H_
