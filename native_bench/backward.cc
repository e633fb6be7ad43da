#include "native_bench/backward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>

#include "heed/gradient.h"
#include "heed/reference.h"
#include "heed/registry.h"
#include "native_bench/accuracy.h"
#include "native_bench/columns.h"
#include "native_bench/memory.h"
#include "native_bench/probes.h"
#include "native_bench/simd_target.h"
#include "native_bench/words.h"

namespace heed::bench {
namespace {

// So short that hardly any row chooses other keys, or passes a kink, on the way; the oracle's own
// rounding is far below the bounds.
constexpr double kStep = 2e-7;

void FillNormal(std::mt19937_64& random, const OwnedTensor& tensor) {
  std::normal_distribution<float> normal;
  for (int64_t n = 0; n < tensor.size(); ++n) tensor.floats()[n] = normal(random);
}

// Tensors for specs, which are to be float32.
std::vector<OwnedTensor> Allocate(const std::vector<OutputSpec>& specs,
                                  std::vector<NamedTensor>& named) {
  std::vector<OwnedTensor> tensors;
  for (const OutputSpec& spec : specs) {
    const auto end = spec.shape.begin() + spec.rank;
    tensors.emplace_back(spec.name, spec.dtype, std::vector<int64_t>(spec.shape.begin(), end));
    named.push_back({spec.name, tensors.back().any()});
  }
  return tensors;
}

// The request with float inputs in double, which can be moved.
class Differences {
 public:
  Differences(const Request& request, const std::vector<OwnedTensor>& d_results)
      : request_(request) {
    for (NamedTensor& input : request_.inputs) {
      AnyTensor& tensor = input.tensor;
      if (tensor.dtype != DType::kFloat32) continue;
      const float* from = static_cast<const float*>(tensor.data);
      int64_t size = 1;
      for (int axis = 0; axis < tensor.rank; ++axis) size *= tensor.shape[axis];
      std::vector<double>& values = inputs_[input.name];
      values.assign(from, from + size);
      tensor.dtype = DType::kFloat64;
      tensor.data = values.data();
    }
    for (const OwnedTensor& d_result : d_results) {
      cotangents_[d_result.name()].assign(d_result.floats(), d_result.floats() + d_result.size());
    }
    // Rows that cannot be asked for their lse give it unasked.
    const bool asked = HasWord(FindMechanism(request.id)->params, "return_lse");
    if (asked && cotangents_.count("lse") > 0) request_.params.push_back({"return_lse", true});
  }

  double Along(const std::string& input, const std::vector<double>& direction) {
    std::vector<double>& values = inputs_.at(input);
    const std::vector<double> before = values;
    const auto at = [&](double step) {
      for (size_t n = 0; n < values.size(); ++n) values[n] = before[n] + step * direction[n];
      return Value();
    };
    const double difference = (at(kStep) - at(-kStep)) / (2 * kStep);
    std::copy(before.begin(), before.end(), values.begin());
    return difference;
  }

 private:
  double Value() const {
    double sum = 0;
    for (const reference::Result& result : reference::Run(request_)) {
      const auto found = cotangents_.find(result.name);
      if (found == cotangents_.end()) continue;
      for (size_t n = 0; n < result.values.size(); ++n) {
        // The lse of a row without keys is that wherever its inputs are.
        if (result.values[n] == -std::numeric_limits<double>::infinity()) continue;
        sum += found->second[n] * result.values[n];
      }
    }
    return sum;
  }

  Request request_;
  std::map<std::string, std::vector<double>> inputs_;
  std::map<std::string, std::vector<double>> cotangents_;
};

// A step of each number of an input: random, and where not every number is allowed, in proportion
// to it, so that no sign changes.
std::vector<double> RandomDirection(const OwnedTensor& input, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  const std::string_view draw = FindInput(input.name()).draw;
  const bool has_range = draw == "log_gate" || draw == "positive" || draw == "fraction";
  std::vector<double> direction;
  for (int64_t n = 0; n < input.size(); ++n) {
    direction.push_back(normal(random) * (has_range ? double{input.floats()[n]} : 1));
  }
  return direction;
}

Verdict VerifyShort(const Case& c, uint64_t seed, ThreadPool& pool) {
  try {
    const BackwardProblem problem(ShortOf(c), seed);
    problem.Forward(pool);
    problem.Backward(pool);
    return problem.Verify(seed);
  } catch (const std::exception& error) {
    return {.failure = error.what()};
  }
}

// The first calls, whose gradients are to be numbers, then many in turn.
void TimeVerified(const BackwardProblem& problem, ThreadPool& pool, const MeasurePlan& plan,
                  BackwardRow& row) {
  const std::vector<std::function<void()>> calls = {[&] { problem.Forward(pool); },
                                                    [&] { problem.Backward(pool); }};
  std::vector<double> warm;
  for (const auto& call : calls) {
    const HighWater memory;
    const double start = SecondsNow(plan.clock);
    call();
    warm.push_back(SecondsNow(plan.clock) - start);
    row.peak_bytes = memory.Bytes();  // the last one's
  }
  if (!problem.IsFinite()) return Judge({.failure = "a gradient is not a number"}, row);
  const std::vector<Summary> summaries = MeasureInterleaved(calls, warm, plan);
  row.forward = summaries[0];
  row.seconds = summaries[1];
  row.status = Status::kTimed;
}

BackwardRow RunCase(const Case& c, const Options& options) {
  BackwardRow row = {.shape = c};
  const auto pool = MakeThreadPool(c.threads);
  std::unique_ptr<BackwardProblem> problem;
  try {
    problem = std::make_unique<BackwardProblem>(c, options.seed);
  } catch (const Error& error) {
    row.reason = error.what();
    return row;
  } catch (const std::bad_alloc&) {
    row.reason = "the tensors do not fit into memory";
    return row;
  }
  row.flop = problem->flop();
  Judge(VerifyShort(c, options.seed, *pool), row);
  if (row.status == Status::kVerified && !options.verify_only) {
    TimeVerified(*problem, *pool, options.plan, row);
  }
  return row;
}

}  // namespace

Case ShortOf(Case c) {
  c.lengths.q_len = std::min(c.lengths.q_len, kBackwardCheckedLen);
  c.lengths.kv_len = std::min(c.lengths.kv_len, kBackwardCheckedLen);
  return c;
}

void Judge(const Verdict& verdict, BackwardRow& row) {
  row.verdict = verdict;
  row.status = verdict.Passed() ? Status::kVerified : Status::kWrong;
  row.reason = verdict.failure;
  if (row.status == Status::kWrong && row.reason.empty()) {
    row.reason = Format("max error %.3g exceeds the bound ", verdict.max_error) +
                 Format("%.3g", verdict.bound);
  }
}

BackwardProblem::BackwardProblem(const Case& c, uint64_t seed) : problem_(c, seed) {
  const BackwardPlan plan = PlanBackward(problem_.widened());
  results_ = Allocate(plan.results, named_results_);
  d_results_ = Allocate(plan.results, named_d_results_);
  gradients_ = Allocate(plan.gradients, named_gradients_);
  std::mt19937_64 random(seed);
  for (const OwnedTensor& d_result : d_results_) {
    FillNormal(random, d_result);
    if (c.dtype != DType::kFloat32 && d_result.name() == "output") StoredAs(d_result, c.dtype);
  }
  for (const OwnedTensor& gradient : gradients_) {
    std::fill_n(gradient.floats(), gradient.size(), std::nanf(""));
  }
}

void BackwardProblem::Forward(ThreadPool& pool) const {
  RunForward(problem_.widened(), named_results_, &pool);
}

void BackwardProblem::Backward(ThreadPool& pool) const {
  RunBackward(problem_.widened(), named_results_, named_d_results_, named_gradients_, &pool);
}

double BackwardProblem::flop() const {
  return kBackwardOverForward * problem_.EstimateCost().flops.value_or(0);
}

Verdict BackwardProblem::Verify(uint64_t seed, double rounding) const {
  Differences oracle(problem_.widened(), d_results_);
  std::mt19937_64 random(seed + 1);
  Verdict verdict;
  verdict.bound = GradientMaxErrorOf(problem_.request().id) + rounding;
  for (const OwnedTensor& gradient : gradients_) {
    const std::vector<double> direction = RandomDirection(*problem_.input(gradient.name()), random);
    double along = 0, terms = 0;
    for (size_t n = 0; n < direction.size(); ++n) {
      const double term = static_cast<double>(gradient.floats()[n]) * direction[n];
      along += term;
      terms += std::abs(term);
    }
    const double error = std::abs(along - oracle.Along(gradient.name(), direction));
    const double relative = terms > 0 ? error / terms : error;
    verdict.max_error = std::isnan(relative) ? HUGE_VAL : std::max(verdict.max_error, relative);
    ++verdict.rows;
  }
  return verdict;
}

bool BackwardProblem::IsFinite() const {
  return std::all_of(gradients_.begin(), gradients_.end(), [](const OwnedTensor& gradient) {
    return std::all_of(gradient.floats(), gradient.floats() + gradient.size(),
                       [](float x) { return std::isfinite(x); });
  });
}

BackwardReport MeasureBackward(const Options& options, Report context, const Progress& progress,
                               const CheckpointOf<BackwardReport>& checkpoint) {
  BackwardReport report = {.context = std::move(context)};
  Grid grid = options.grid;
  std::erase_if(grid.mechanisms, [](const std::string& id) {
    const Mechanism* row = FindMechanism(id);
    return row != nullptr && !HasWord(row->capabilities, "gradient");
  });
  grid.dtypes = {DType::kFloat32};
  const std::vector<Case> cases = MakeCases(grid, options.filter);
  if (!options.verify_only) {
    for (const int threads : grid.threads) {
      progress("probing", 0, 0);
      report.context.peaks.push_back(MeasureFmaPeak(ChosenTarget(), threads, options.plan.clock));
    }
  }
  for (const Case& c : cases) {
    progress(c.Name(), report.rows.size(), cases.size());
    report.rows.push_back(RunCase(c, options));
    report.rows.back().peak_gflops = BestPeak(report.context.peaks, c.threads);
    if (checkpoint) checkpoint(report);
  }
  if (report.rows.empty()) {
    throw Error(ErrorCode::kOption, "--backward: no case of a mechanism that has a gradient");
  }
  return report;
}

bool AnyWrong(const BackwardReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const BackwardRow& row) { return row.status == Status::kWrong; });
}

}  // namespace heed::bench
