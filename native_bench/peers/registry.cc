// The list of peers. To add one: a file in this folder, its declaration in peer.h, a line here.
#include <array>

#include "native_bench/peer.h"

namespace heed::bench {

std::span<const Peer> Peers() {
  static const std::array peers = {
    HeedPeer(),
#if defined(HEED_BENCH_XSIMD)
    XsimdPeer(),
#endif
#if defined(HEED_BENCH_ONEDNN)
    OneDnnPeer(),
#endif
#if defined(HEED_BENCH_ONNXRUNTIME)
    OrtPeer(),
    OrtMultiHeadPeer(),
#endif
#if defined(HEED_BENCH_GGML)
    GgmlPeer(),
#endif
#if defined(HEED_BENCH_LIBTORCH)
    LibtorchPeer(),
#endif
#if defined(HEED_BENCH_BLAS)
    BlasPeer(),
#endif
    PlainLoopsPeer(),
  };
  return peers;
}

const Peer* FindPeer(std::string_view id) {
  for (const Peer& peer : Peers()) {
    if (peer.id == id) return &peer;
  }
  return nullptr;
}

}  // namespace heed::bench
