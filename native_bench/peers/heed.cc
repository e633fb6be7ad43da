// heed itself, through the registry: whatever mechanisms.inc lists runs without a line here.
#include "heed/registry.h"
#include "native_bench/peer.h"
#include "native_bench/simd_target.h"

namespace heed::bench {
namespace {

std::string Details() { return "Highway target " + ChosenTarget(); }

std::string Refuse(const Case&) { return ""; }

std::function<void()> Prepare(Problem& problem, ThreadPool& pool) {
  return [&problem, &pool] { heed::Run(problem.request(), problem.results(), &pool); };
}

}  // namespace

Peer HeedPeer() {
  return {.id = "heed",
          .summary = "heed::Run: tiled online softmax in Highway, dispatched at run time",
          .details = Details,
          .refuse = Refuse,
          .prepare = Prepare};
}

}  // namespace heed::bench
