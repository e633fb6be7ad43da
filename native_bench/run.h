// The run: verify every peer on every case, time those that are right.
#ifndef HEED_NATIVE_BENCH_RUN_H_
#define HEED_NATIVE_BENCH_RUN_H_

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "native_bench/options.h"
#include "native_bench/peer.h"
#include "native_bench/report.h"

namespace heed::bench {

// Told what is being done next: "probing", a case's name, ..., with `done` of `total` cases behind.
using Progress = std::function<void(const std::string& what, size_t done, size_t total)>;

// Told what a report says so far, after each case: whatever ends a run early, a kernel that hangs
// or a machine that is taken back, leaves what was measured. May be empty.
template <class AnyReport>
using CheckpointOf = std::function<void(const AnyReport&)>;
using Checkpoint = CheckpointOf<Report>;

// All that is known before anything runs, but for the peers. The SIMD target is the one that the
// options force.
Report OpenReport(const Options& options, const std::string& command);

// What a report says of its peers.
template <class AnyPeer>
std::vector<PeerInfo> DescribePeers(const std::vector<AnyPeer>& peers) {
  std::vector<PeerInfo> descriptions;
  for (const AnyPeer& peer : peers) {
    descriptions.push_back({std::string(peer.id), std::string(peer.summary), peer.details()});
  }
  return descriptions;
}

// Throws heed::Error(kOption) for unknown peers, mechanisms or targets, before anything is
// measured.
Report RunBenchmark(const Options& options, const std::string& command, const Progress& progress,
                    const Checkpoint& checkpoint = {});

// Whether any row is kWrong.
bool AnyWrong(const Report& report);

// A peer that is right so far, ready to be timed.
struct Candidate {
  Row row;
  std::function<void()> call;
  double warm_seconds = 0;  // of an earlier call
};
std::vector<Candidate*> Verified(std::vector<Candidate>& candidates);
// Their times in turn, by MeasureInterleaved().
std::vector<Summary> MeasureCandidates(std::span<Candidate* const> candidates,
                                       const MeasurePlan& plan, const Stopwatch& stopwatch = {});

// Takes down what a comparison found: the worst of a row's verdicts, kWrong for one that failed.
void Judge(Row& row, const Verdict& verdict);

// The peers with these ids, all of them for none. Throws heed::Error(kOption) for an unknown one.
template <class AnyPeer>
std::vector<AnyPeer> SelectPeers(std::span<const AnyPeer> all,
                                 const std::vector<std::string>& ids) {
  if (ids.empty()) return {all.begin(), all.end()};
  std::vector<AnyPeer> peers;
  for (const std::string& id : ids) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const AnyPeer& peer) { return peer.id == id; });
    if (found == all.end()) {
      throw Error(ErrorCode::kOption, "--peers: '" + id + "' is not a peer; --list prints them");
    }
    peers.push_back(*found);
  }
  return peers;
}

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_RUN_H_
