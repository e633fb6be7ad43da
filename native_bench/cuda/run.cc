#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "native_bench/cuda/device_memory.h"
#include "native_bench/cuda/device_problem.h"
#include "native_bench/cuda/peaks.h"
#include "native_bench/device_attention.h"
#include "native_bench/device_cases.h"
#include "native_bench/device_peer.h"
#include "native_bench/device_run.h"
#include "native_bench/row_oracle.h"

namespace heed::bench {
namespace {

// The tensors of a case and what they should give.
class Subject {
 public:
  // Attention is drawn on the device and checked row by row; all else comes from the host.
  Subject(const Case& c, uint64_t seed) {
    if (IsDeviceAttention(c)) {
      DrawOnDevice(c, seed, SampledRows(c));
    } else {
      DrawOnHost(c, seed);
    }
  }
  // Every row is checked. Drawn on the host, which has neither float8 nor all sockets.
  static Subject Small(const Case& c, uint64_t seed) {
    Subject subject;
    if (IsDeviceAttention(c) && (c.dtype == DType::kFloat8E4M3 || !IsPlainAttention(c))) {
      subject.DrawOnDevice(c, seed, AllRows(c));
    } else {
      subject.DrawOnHost(c, seed);
    }
    return subject;
  }

  DeviceProblem& problem() const { return *on_device_; }
  // Waits for the device.
  Verdict Compare() const {
    if (rows_.has_value()) {
      return rows_->Compare([&](const OutputRow& at) { return on_device_->FetchOutputRow(at); });
    }
    on_device_->FetchOutput(*on_host_);
    return oracle_->Compare(*on_host_);
  }

 private:
  Subject() = default;
  void DrawOnDevice(const Case& c, uint64_t seed, const std::vector<OutputRow>& rows) {
    on_device_ = std::make_unique<DeviceProblem>(c, seed);
    rows_.emplace(c, rows, [&](const OutputRow& at) { return on_device_->FetchRowInputs(at); });
  }
  void DrawOnHost(const Case& c, uint64_t seed) {
    if (c.dtype == DType::kFloat8E4M3) {
      throw Error(ErrorCode::kUnsupported, "float8_e4m3 is for scaled_dot_product on a GPU");
    }
    on_host_ = std::make_unique<Problem>(c, seed);
    on_device_ = std::make_unique<DeviceProblem>(*on_host_);
    oracle_.emplace(*on_host_);
  }

  std::unique_ptr<Problem> on_host_;
  std::unique_ptr<DeviceProblem> on_device_;
  std::optional<RowOracle> rows_;
  std::optional<Oracle> oracle_;
};

// The same heads, head_dim and options at a length of at most 95, for two batch entries at most,
// and how peers fared with it. Neighbouring cases differ in length only and share it: some peers
// take a second to make a plan.
class SmallSubject {
 public:
  SmallSubject(const Case& c, uint64_t seed) : subject_(Subject::Small(SmallOf(c), seed)) {}

  bool Stands(const Case& c) const { return subject_.problem().shape() == SmallOf(c); }
  // Throws what the peer throws.
  const Verdict& Check(const DevicePeer& peer) {
    const auto found = verdicts_.find(peer.id);
    if (found != verdicts_.end()) return found->second;
    subject_.problem().FillOutputWithNan();
    peer.prepare(subject_.problem())();
    return verdicts_.emplace(peer.id, subject_.Compare()).first->second;
  }

 private:
  static Case SmallOf(const Case& c) {
    Case small = SmallCaseOf(c);
    small.batch = std::min<int64_t>(c.batch, 2);
    return small;
  }

  Subject subject_;
  std::map<std::string_view, Verdict> verdicts_;
};

// The reason why a row has no result: a refusal when the peer, or the memory, cannot take the case.
void Refuse(Row& row, const std::string& reason) {
  row.status = Status::kRefused;
  row.reason = reason;
}

// Runs the peer on a small problem and on the case's own, once each.
void Verify(const DevicePeer& peer, SmallSubject& small, const Subject& subject,
            EventStopwatch& stopwatch, Candidate& candidate) {
  Row& row = candidate.row;
  row.status = Status::kVerified;
  try {
    Judge(row, small.Check(peer));
    if (row.status != Status::kVerified) return;
    subject.problem().FillOutputWithNan();
    candidate.call = peer.prepare(subject.problem());
    stopwatch.Warm(candidate.call, 1);  // loads kernels
    candidate.warm_seconds = stopwatch.Warm(candidate.call, 1);
    Judge(row, subject.Compare());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) return Refuse(row, error.what());
    Judge(row, {.failure = error.what()});
  } catch (const std::bad_alloc&) {
    Refuse(row, "does not fit into the memory of the device");
  } catch (const std::exception& error) {
    Judge(row, {.failure = error.what()});
  }
}

std::vector<Candidate> VerifyPeers(const std::vector<DevicePeer>& peers, SmallSubject& small,
                                   const Subject& subject, EventStopwatch& stopwatch) {
  std::vector<Candidate> candidates;
  for (const DevicePeer& peer : peers) {
    Candidate candidate;
    candidate.row.shape = subject.problem().shape();
    candidate.row.peer = peer.id;
    candidate.row.cost = subject.problem().cost();
    candidate.row.reason = peer.refuse(candidate.row.shape);
    if (candidate.row.reason.empty()) Verify(peer, small, subject, stopwatch, candidate);
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// What the sensors say while the call runs again and again, which it does for a while before.
GpuSensors SensorsUnderLoad(const std::function<void()>& call, const std::string& bus_id) {
  auto reading = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return ReadGpu(bus_id).sensors;
  });
  while (reading.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    for (int n = 0; n < 8; ++n) call();
    Require(cudaDeviceSynchronize());
  }
  return reading.get();
}

void TimeVerified(std::vector<Candidate>& candidates, const MeasurePlan& plan,
                  EventStopwatch& stopwatch) {
  const std::vector<Candidate*> verified = Verified(candidates);
  const std::vector<Summary> warm = MeasureCandidates(
      verified, plan,
      [&](const std::function<void()>& call, int calls) { return stopwatch.Warm(call, calls); });
  for (Candidate* candidate : verified) candidate->warm_seconds = 1;  // one call a sample
  const std::vector<Summary> cold = MeasureCandidates(
      verified, plan,
      [&](const std::function<void()>& call, int calls) { return stopwatch.Cold(call, calls); });
  for (size_t i = 0; i < verified.size(); ++i) {
    verified[i]->row.seconds = warm[i];
    verified[i]->row.cold_seconds = cold[i];
    verified[i]->row.sending_seconds = stopwatch.Sending(verified[i]->call);
    verified[i]->row.status = Status::kTimed;
  }
}

class DeviceRun {
 public:
  DeviceRun(const Options& options, const std::string& command)
      : options_(options),
        peers_(SelectPeers(DevicePeers(), options.peers)),
        report_(OpenReport(options, command)) {
    report_.gpu = DescribeGpu();
    report_.gpu->before = ReadGpu(report_.gpu->bus_id).sensors;
    report_.peers = DescribePeers(peers_);
  }

  void Probe() {
    report_.peaks = MeasureDevicePeaks(stopwatch_);
    report_.streams = {MeasureDeviceStream(stopwatch_)};
  }

  // After an error of CUDA itself nothing runs any more on the device: all that follows is wrong
  // for that reason, and what was measured before is kept.
  void RunCase(const Case& c) {
    if (!broken_.empty()) return AddRows(c, Status::kWrong, broken_);
    try {
      Subject subject(c, options_.seed);
      std::vector<Candidate> candidates = VerifyPeers(peers_, SmallFor(c), subject, stopwatch_);
      if (!options_.verify_only) Time(candidates);
      for (Candidate& candidate : candidates) report_.rows.push_back(std::move(candidate.row));
    } catch (const Error& error) {
      AddRows(c, Status::kRefused, error.what());
    } catch (const std::bad_alloc&) {
      AddRows(c, Status::kRefused, "the tensors do not fit into memory");
    } catch (const std::exception& error) {
      broken_ = error.what();
      AddRows(c, Status::kWrong, broken_);
    }
  }

  Report Finish() {
    report_.gpu->after = ReadGpu(report_.gpu->bus_id).sensors;
    if (!options_.verify_only && broken_.empty())
      report_.peaks_after = MeasureDevicePeaks(stopwatch_);
    return SoFar();
  }

  Report SoFar() const {
    Report report = report_;
    for (Row& row : report.rows) {
      row.peak_gflops = std::max(BestPeak(report.peaks, 1, row.shape.dtype),
                                 BestPeak(report.peaks_after, 1, row.shape.dtype));
    }
    return report;
  }

 private:
  SmallSubject& SmallFor(const Case& c) {
    if (!small_.has_value() || !small_->Stands(c)) small_.emplace(c, options_.seed);
    return *small_;
  }

  void Time(std::vector<Candidate>& candidates) {
    TimeVerified(candidates, options_.plan, stopwatch_);
    for (Candidate& candidate : candidates) {
      const bool first = &candidate == &candidates.front();
      if (!first || candidate.row.status != Status::kTimed) continue;
      candidate.row.load = SensorsUnderLoad(candidate.call, report_.gpu->bus_id);
    }
  }

  void AddRows(const Case& c, Status status, const std::string& reason) {
    for (const DevicePeer& peer : peers_) {
      Row& row = report_.rows.emplace_back();
      row.shape = c;
      row.peer = peer.id;
      row.status = status;
      row.reason = reason;
    }
  }

  const Options& options_;
  const std::vector<DevicePeer> peers_;
  EventStopwatch stopwatch_;
  std::optional<SmallSubject> small_;
  std::string broken_;  // the error after which the device is lost
  Report report_;
};

}  // namespace

Report RunDeviceBenchmark(const Options& options, const std::string& command,
                          const Progress& progress, const Checkpoint& checkpoint) {
  const cuda::Availability state = cuda::Available();
  if (!state.usable) RefuseDevice(state);
  const std::vector<Case> cases = DeviceCases(options);
  if (cases.empty()) throw Error(ErrorCode::kOption, "no case is left; --list prints them");
  DeviceRun run(options, command);
  progress("measuring matrix and memory rates", 0, cases.size());
  if (!options.verify_only) run.Probe();
  for (size_t i = 0; i < cases.size(); ++i) {
    progress(cases[i].Name(), i, cases.size());
    run.RunCase(cases[i]);
    if (checkpoint) checkpoint(run.SoFar());
  }
  return run.Finish();
}

}  // namespace heed::bench
