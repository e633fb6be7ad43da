#include "native_bench/run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>

#include "native_bench/memory.h"
#include "native_bench/peer.h"
#include "native_bench/simd_target.h"

namespace heed::bench {
namespace {

// Runs the peer on the case's own problem once: its verification and its warm-up.
void VerifyFull(const Peer& peer, Problem& problem, const Oracle& oracle, ThreadPool& pool,
                Candidate& candidate) {
  try {
    problem.FillOutputWithNan();
    const HighWater memory;
    candidate.call = peer.prepare(problem, pool);
    const auto start = std::chrono::steady_clock::now();
    candidate.call();
    candidate.warm_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    candidate.row.peak_bytes = memory.Bytes();
  } catch (const std::exception& error) {
    Judge(candidate.row, {.failure = error.what()});
    return;
  }
  Judge(candidate.row, oracle.Compare(problem));
}

std::vector<Candidate> VerifyPeers(const std::vector<Peer>& peers, Problem& problem, uint64_t seed,
                                   ThreadPool& pool) {
  const Case& c = problem.shape();
  const Oracle oracle(problem);
  const Cost cost = problem.EstimateCost();
  std::vector<Candidate> candidates;
  for (const Peer& peer : peers) {
    Candidate candidate;
    candidate.row.shape = c;
    candidate.row.peer = peer.id;
    candidate.row.cost = cost;
    candidate.row.reason = peer.refuse(c);
    if (candidate.row.reason.empty()) {
      candidate.row.status = Status::kVerified;
      Judge(candidate.row, VerifySmall(peer, c, seed, pool));
      if (candidate.row.status == Status::kVerified) {
        VerifyFull(peer, problem, oracle, pool, candidate);
      }
    }
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

void TimeVerified(std::vector<Candidate>& candidates, const MeasurePlan& plan) {
  const std::vector<Candidate*> verified = Verified(candidates);
  const std::vector<Summary> summaries = MeasureCandidates(verified, plan);
  for (size_t i = 0; i < verified.size(); ++i) {
    verified[i]->row.seconds = summaries[i];
    verified[i]->row.status = Status::kTimed;
  }
}

std::vector<int> ThreadCounts(const std::vector<Case>& cases) {
  std::vector<int> counts;
  for (const Case& c : cases) {
    if (std::find(counts.begin(), counts.end(), c.threads) == counts.end()) {
      counts.push_back(c.threads);
    }
  }
  return counts;
}

void Probe(const std::vector<int>& thread_counts, Report& report) {
  for (int threads : thread_counts) {
    for (const std::string& target : report.simd_supported) {
      report.peaks.push_back(MeasureFmaPeak(target, threads, report.plan.clock));
    }
    report.streams.push_back(MeasureStream(threads, report.plan.clock));
  }
}

// The best target once more, which shows how steady the machine was. Rows are measured against the
// higher of both, so that no fraction is flattered by a slow moment.
void ProbeAgain(const std::vector<int>& thread_counts, Report& report) {
  for (int threads : thread_counts) {
    FmaPeak best;
    for (const FmaPeak& peak : report.peaks) {
      if (peak.threads == threads && peak.gflops > best.gflops) best = peak;
    }
    report.peaks_after.push_back(MeasureFmaPeak(best.target, threads, report.plan.clock));
  }
  for (Row& row : report.rows) {
    row.peak_gflops = std::max(BestPeak(report.peaks, row.shape.threads),
                               BestPeak(report.peaks_after, row.shape.threads));
  }
}

// A case that cannot be made is a refusal by everyone, not the end of the run.
void RefuseAll(const Case& c, const std::vector<Peer>& peers, const std::string& reason,
               Report& report) {
  for (const Peer& peer : peers) {
    Row& row = report.rows.emplace_back();
    row.shape = c;
    row.peer = peer.id;
    row.reason = reason;
  }
}

void RunCase(const Case& c, const std::vector<Peer>& peers, const Options& options,
             Report& report) {
  const std::unique_ptr<ThreadPool> pool = MakeThreadPool(c.threads);
  std::unique_ptr<Problem> problem;
  try {
    problem = std::make_unique<Problem>(c, options.seed);
  } catch (const Error& error) {
    return RefuseAll(c, peers, error.what(), report);
  } catch (const std::bad_alloc&) {
    return RefuseAll(c, peers, "the tensors do not fit into memory", report);
  }
  std::vector<Candidate> candidates = VerifyPeers(peers, *problem, options.seed, *pool);
  if (!options.verify_only) TimeVerified(candidates, options.plan);
  for (Candidate& candidate : candidates) report.rows.push_back(std::move(candidate.row));
}

}  // namespace

std::vector<Candidate*> Verified(std::vector<Candidate>& candidates) {
  std::vector<Candidate*> verified;
  for (Candidate& candidate : candidates) {
    if (candidate.row.status == Status::kVerified) verified.push_back(&candidate);
  }
  return verified;
}

std::vector<Summary> MeasureCandidates(std::span<Candidate* const> candidates,
                                       const MeasurePlan& plan, const Stopwatch& stopwatch) {
  std::vector<std::function<void()>> calls;
  std::vector<double> warm_seconds;
  for (const Candidate* candidate : candidates) {
    calls.push_back(candidate->call);
    warm_seconds.push_back(candidate->warm_seconds);
  }
  return MeasureInterleaved(calls, warm_seconds, plan, stopwatch);
}

void Judge(Row& row, const Verdict& verdict) {
  const int64_t rows = row.verdict.rows + verdict.rows;
  const bool worse = !verdict.Passed() || verdict.max_error > row.verdict.max_error;
  if (worse || row.verdict.rows == 0) row.verdict = verdict;
  row.verdict.rows = rows;
  if (verdict.Passed()) return;
  row.status = Status::kWrong;
  char text[96];
  std::snprintf(text, sizeof(text), "max error %.3g exceeds the bound %.3g", verdict.max_error,
                verdict.bound);
  row.reason = verdict.failure.empty() ? text : verdict.failure;
}

bool AnyWrong(const Report& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const Row& row) { return row.status == Status::kWrong; });
}

Report OpenReport(const Options& options, const std::string& command) {
  Report report;
  report.simd_supported = SupportedTargetNames();
  if (!options.simd.empty()) ForceTarget(options.simd);
  report.machine = DescribeMachine();
  report.build = DescribeBuild();
  report.command = command;
  report.simd_chosen = ChosenTarget();
  report.seed = options.seed;
  report.plan = options.plan;
  return report;
}

Report RunBenchmark(const Options& options, const std::string& command, const Progress& progress,
                    const Checkpoint& checkpoint) {
  const std::vector<Peer> peers = SelectPeers(Peers(), options.peers);
  const std::vector<Case> cases = MakeCases(options.grid, options.filter);
  if (cases.empty()) throw Error(ErrorCode::kOption, "no case is left; --list prints them");
  const std::vector<int> thread_counts = ThreadCounts(cases);
  Report report = OpenReport(options, command);
  report.peers = DescribePeers(peers);
  if (!options.verify_only) {
    progress("measuring FMA and memory peaks", 0, cases.size());
    Probe(thread_counts, report);
  }
  if (!options.simd.empty()) ForceTarget(options.simd);
  for (size_t i = 0; i < cases.size(); ++i) {
    progress(cases[i].Name(), i, cases.size());
    RunCase(cases[i], peers, options, report);
    if (checkpoint) checkpoint(report);
  }
  if (!options.verify_only) ProbeAgain(thread_counts, report);
  return report;
}

}  // namespace heed::bench
