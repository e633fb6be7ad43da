// Peers: implementations of the same mathematics that are timed side by side.
#ifndef HEED_NATIVE_BENCH_PEER_H_
#define HEED_NATIVE_BENCH_PEER_H_

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "heed/thread_pool.h"
#include "native_bench/cases.h"
#include "native_bench/problem.h"

namespace heed::bench {

// A peer is one file of peers/ and one line of peers/registry.cc.
struct Peer {
  std::string_view id;
  std::string_view summary;  // one sentence: what it is, and what it is compiled with
  std::string (*details)();  // what it chose at run time (instruction set, version); may be empty

  // Why the peer cannot run the case; empty when it can.
  std::string (*refuse)(const Case& c);

  // Binds the peer to a problem. What is allocated here is not timed, because an application would
  // keep it between calls; every pass over q, k and v belongs into the returned call. The call
  // reads problem.q(), k(), v() and writes problem.output(); it may use the workers of `pool` or
  // as many threads of its own. `problem` and `pool` outlive the call.
  std::function<void()> (*prepare)(Problem& problem, ThreadPool& pool);
};

// Every peer of this build, heed first.
std::span<const Peer> Peers();

// The peer with this id, or nullptr.
const Peer* FindPeer(std::string_view id);

// One per file of peers/.
Peer HeedPeer();
Peer BlasPeer();
Peer GgmlPeer();
Peer LibtorchPeer();
Peer OneDnnPeer();
Peer OrtMultiHeadPeer();
Peer OrtPeer();
Peer PlainLoopsPeer();
Peer XsimdPeer();

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_PEER_H_
