// heed-bench --device cuda --backward: gradients of plain attention by heed::cuda, checked on a
// short problem against differences of the oracle, then timed.
#include "native_bench/backward.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "heed/cuda.h"
#include "native_bench/cuda/device_memory.h"
#include "native_bench/cuda/device_problem.h"
#include "native_bench/cuda/hopper_path.h"
#include "native_bench/cuda/kernels.h"
#include "native_bench/cuda/peaks.h"
#include "native_bench/device_cases.h"
#include "native_bench/device_peer.h"
#include "native_bench/device_run.h"

namespace heed::bench {
namespace {

// A tensor of the device beside those of a DeviceProblem.
class DeviceTensor {
 public:
  DeviceTensor(DType dtype, const Extents& shape)
      : view_(nullptr, dtype, shape,
              {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}),
        bytes_(static_cast<size_t>(view_.size() * ElementSize(dtype))) {
    view_.data = bytes_.get();
  }
  const StoredTensor& view() const { return view_; }
  StoredOutput output() const { return {bytes_.get(), view_.dtype, view_.shape, view_.strides}; }
  TensorView<float> floats() const {
    return {static_cast<float*>(bytes_.get()), view_.shape, view_.strides};
  }
  void CopyFrom(const AnyTensor& host) {
    Require(cudaMemcpy(bytes_.get(), host.data, bytes_.size(), cudaMemcpyHostToDevice));
  }

 private:
  StoredTensor view_;
  DeviceBytes bytes_;
};

// A case forward and backward on the device.
class DeviceGradients {
 public:
  // Everything is drawn on the device.
  DeviceGradients(const Case& c, uint64_t seed)
      : DeviceGradients(std::make_unique<DeviceProblem>(c, seed)) {
    FillNormal(d_output_.output().data, c.dtype, d_output_.view().size(), seed + 3);
    FillNormal(d_lse_.floats().data, DType::kFloat32, d_lse_.view().size(), seed + 4);
  }
  // Copies of a problem on the host.
  explicit DeviceGradients(const BackwardProblem& host)
      : DeviceGradients(std::make_unique<DeviceProblem>(host.problem())) {
    const DType dtype = host.problem().shape().dtype;
    for (const OwnedTensor& d_result : host.d_results()) {
      const bool is_lse = d_result.name() == "lse";
      const bool rounded = !is_lse && dtype != DType::kFloat32;
      (is_lse ? d_lse_ : d_output_)
          .CopyFrom(rounded ? StoredAs(d_result, dtype).any() : d_result.any());
    }
  }

  double forward_flops() const { return problem_->cost().flops.value_or(0); }

  void Forward() const {
    AttentionOutputs outputs;
    outputs.stored_output = problem_->output();
    outputs.lse = lse_.floats();
    cuda::Attention(problem_->input("q"), problem_->input("k"), problem_->input("v"), options_,
                    outputs, nullptr);
  }
  void Backward() const {
    AttentionGradients gradients;
    gradients.d_lse = d_lse_.floats();
    gradients.d_q = d_q_.output();
    gradients.d_k = d_k_.output();
    gradients.d_v = d_v_.output();
    cuda::AttentionBackward(problem_->input("q"), problem_->input("k"), problem_->input("v"),
                            problem_->input("output"), lse_.floats(), d_output_.view(), options_,
                            gradients, nullptr);
  }

  // The gradient of an input, by its name, as floats. Waits for the device.
  std::vector<float> Fetch(std::string_view input) const {
    const StoredTensor& from = (input == "q" ? d_q_ : input == "k" ? d_k_ : d_v_).view();
    const auto [batch, heads, rows, dim] = from.shape;
    return problem_->FetchRows(from, 0, 0, 0, batch * heads * rows);
  }

 private:
  explicit DeviceGradients(std::unique_ptr<DeviceProblem> problem)
      : problem_(std::move(problem)),
        lse_(DType::kFloat32, RowsOf(problem_->shape())),
        d_lse_(DType::kFloat32, RowsOf(problem_->shape())),
        d_output_(problem_->shape().dtype, ShapesOf(problem_->shape()).output),
        d_q_(problem_->shape().dtype, ShapesOf(problem_->shape()).q),
        d_k_(problem_->shape().dtype, ShapesOf(problem_->shape()).k),
        d_v_(problem_->shape().dtype, ShapesOf(problem_->shape()).v) {
    options_.causal = problem_->shape().mask == Mask::kCausal;
    options_.query_offset = QueryOffset::End();
  }
  static Extents RowsOf(const Case& c) { return {c.batch, c.heads.num_heads, c.lengths.q_len, 1}; }

  std::unique_ptr<DeviceProblem> problem_;
  DeviceTensor lse_, d_lse_, d_output_, d_q_, d_k_, d_v_;
  AttentionOptions options_;
};

// What rounding weights, gradients of scores and the output adds, relative to the terms.
double RoundingOf(DType dtype) {
  if (dtype == DType::kFloat16) return 2 * cuda::kFloat16Products;
  return dtype == DType::kBFloat16 ? 2 * cuda::kBFloat16Products : 0;
}

Verdict VerifyShort(const Case& c, uint64_t seed) {
  try {
    Case small = ShortOf(c);
    small.batch = std::min<int64_t>(c.batch, 2);
    const BackwardProblem host(small, seed);
    const DeviceGradients device(host);
    device.Forward();
    device.Backward();
    for (const OwnedTensor& gradient : host.gradients()) {
      const std::vector<float> numbers = device.Fetch(gradient.name());
      std::copy(numbers.begin(), numbers.end(), gradient.floats());
    }
    cuda::Check(nullptr);
    return host.Verify(seed, RoundingOf(c.dtype));
  } catch (const std::exception& error) {
    return {.failure = error.what()};
  }
}

bool IsFinite(const DeviceGradients& device) {
  for (const char* input : {"q", "k", "v"}) {
    const std::vector<float> numbers = device.Fetch(input);
    const auto finite = [](float x) { return std::isfinite(x); };
    if (!std::all_of(numbers.begin(), numbers.end(), finite)) return false;
  }
  return true;
}

void TimeVerified(const DeviceGradients& device, const MeasurePlan& plan, EventStopwatch& stopwatch,
                  BackwardRow& row) {
  const std::vector<std::function<void()>> calls = {[&] { device.Forward(); },
                                                    [&] { device.Backward(); }};
  std::vector<double> warm;
  for (const auto& call : calls) {
    stopwatch.Warm(call, 1);  // loads kernels
    warm.push_back(stopwatch.Warm(call, 1));
  }
  if (!IsFinite(device)) return Judge({.failure = "a gradient is not a number"}, row);
  const std::vector<Summary> summaries = MeasureInterleaved(
      calls, warm, plan,
      [&](const std::function<void()>& call, int count) { return stopwatch.Warm(call, count); });
  row.forward = summaries[0];
  row.seconds = summaries[1];
  row.status = Status::kTimed;
}

bool IsHopper(const DevicePeer& peer) { return peer.id == HeedHopperPeer().id; }

std::string Refuse(const DevicePeer& peer, const Case& c) {
  const std::string reason = peer.refuse(c);
  return reason.empty() && IsHopper(peer) ? RefuseHopperGradients(c) : reason;
}

BackwardRow RunCase(const Case& c, const DevicePeer& peer, const Options& options,
                    EventStopwatch& stopwatch) {
  BackwardRow row = {.shape = c, .peer = std::string(peer.id)};
  row.reason = Refuse(peer, c);
  if (!row.reason.empty()) return row;
  std::optional<HopperPath> path;
  if (IsHopper(peer)) path.emplace();
  Judge(VerifyShort(c, options.seed), row);
  if (row.status != Status::kVerified || options.verify_only) return row;
  try {
    const DeviceGradients device(c, options.seed);
    row.flop = kBackwardOverForward * device.forward_flops();
    TimeVerified(device, options.plan, stopwatch, row);
  } catch (const std::bad_alloc&) {
    row.status = Status::kRefused;
    row.reason = "does not fit into the memory of the device";
  } catch (const std::exception& error) {
    Judge({.failure = error.what()}, row);
  }
  return row;
}

// Prompts of plain attention, of the types that have gradients.
std::vector<Case> PromptsOf(const Options& options) {
  std::vector<Case> cases = DeviceCases(options);
  std::erase_if(cases, [](const Case& c) { return !HasDeviceGradients(c); });
  if (cases.empty()) {
    throw Error(ErrorCode::kOption,
                "--device cuda --backward: no prompt of plain attention is left, which is of "
                "float32, float16 or bfloat16");
  }
  return cases;
}

// Those that are asked for and compute gradients.
std::vector<DevicePeer> BackwardPeers(const Options& options) {
  std::vector<DevicePeer> peers = SelectPeers(DevicePeers(), options.peers);
  std::erase_if(peers, [](const DevicePeer& peer) {
    return peer.id != HeedDevicePeer().id && !IsHopper(peer);
  });
  if (peers.empty()) {
    throw Error(ErrorCode::kOption,
                "--peers: heed and heed_hopper compute gradients on a GPU, and neither is named");
  }
  return peers;
}

}  // namespace

BackwardReport MeasureDeviceBackward(const Options& options, Report context,
                                     const Progress& progress,
                                     const CheckpointOf<BackwardReport>& checkpoint) {
  const cuda::Availability state = cuda::Available();
  if (!state.usable) RefuseDevice(state);
  const std::vector<Case> cases = PromptsOf(options);
  const std::vector<DevicePeer> peers = BackwardPeers(options);
  BackwardReport report = {.context = std::move(context)};
  report.context.gpu = DescribeGpu();
  report.context.peers = DescribePeers(peers);
  EventStopwatch stopwatch;
  if (!options.verify_only) {
    progress("measuring matrix rates", 0, cases.size());
    report.context.peaks = MeasureDevicePeaks(stopwatch);
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    progress(cases[i].Name(), i, cases.size());
    for (const DevicePeer& peer : peers) {
      BackwardRow row = RunCase(cases[i], peer, options, stopwatch);
      row.peak_gflops = BestPeak(report.context.peaks, 1, cases[i].dtype);
      report.rows.push_back(std::move(row));
    }
    if (checkpoint) checkpoint(report);
  }
  return report;
}

}  // namespace heed::bench
