#include "native_bench/backward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "heed/gradient.h"
#include "heed/reference.h"
#include "heed/registry.h"
#include "native_bench/probes.h"
#include "native_bench/simd_target.h"
#include "native_bench/words.h"

namespace heed::bench {
namespace {

// Tokens of the problem that is compared with the oracle.
constexpr int64_t kCheckedLen = 65;
constexpr double kStep = 2e-5;

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
        sum += found->second[n] * result.values[n];
      }
    }
    return sum;
  }

  Request request_;
  std::map<std::string, std::vector<double>> inputs_;
  std::map<std::string, std::vector<double>> cotangents_;
};

// The case with few tokens.
Case Short(Case c) {
  c.lengths.q_len = std::min(c.lengths.q_len, kCheckedLen);
  c.lengths.kv_len = std::min(c.lengths.kv_len, kCheckedLen);
  return c;
}

Verdict VerifyShort(const Case& c, uint64_t seed, ThreadPool& pool) {
  try {
    const BackwardProblem problem(Short(c), seed);
    problem.Forward(pool);
    problem.Backward(pool);
    return problem.Verify(seed);
  } catch (const std::exception& error) {
    Verdict verdict;
    verdict.failure = error.what();
    return verdict;
  }
}

}  // namespace

BackwardProblem::BackwardProblem(const Case& c, uint64_t seed) : problem_(c, seed) {
  const BackwardPlan plan = PlanBackward(problem_.request());
  results_ = Allocate(plan.results, named_results_);
  d_results_ = Allocate(plan.results, named_d_results_);
  gradients_ = Allocate(plan.gradients, named_gradients_);
  std::mt19937_64 random(seed);
  for (const OwnedTensor& d_result : d_results_) FillNormal(random, d_result);
  for (const OwnedTensor& gradient : gradients_) {
    std::fill_n(gradient.floats(), gradient.size(), std::nanf(""));
  }
}

void BackwardProblem::Forward(ThreadPool& pool) const {
  RunForward(problem_.request(), named_results_, &pool);
}

void BackwardProblem::Backward(ThreadPool& pool) const {
  RunBackward(problem_.request(), named_results_, named_d_results_, named_gradients_, &pool);
}

double BackwardProblem::flop() const {
  return kBackwardOverForward * problem_.EstimateCost().flops.value_or(0);
}

Verdict BackwardProblem::Verify(uint64_t seed) const {
  Differences oracle(problem_.request(), d_results_);
  std::mt19937_64 random(seed + 1);
  std::normal_distribution<double> normal;
  Verdict verdict;
  const std::string_view family = FindMechanism(problem_.request().id)->family;
  verdict.bound = family == "layer" ? kLayerGradientMaxError : kGradientMaxError;
  for (const OwnedTensor& gradient : gradients_) {
    std::vector<double> direction;
    double along = 0, terms = 0;
    for (int64_t n = 0; n < gradient.size(); ++n) {
      const double term =
          static_cast<double>(gradient.floats()[n]) * direction.emplace_back(normal(random));
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

BackwardReport MeasureBackward(const Options& options, Report context, const Progress& progress) {
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
    const auto pool = MakeThreadPool(c.threads);
    BackwardRow row = {.shape = c, .verdict = VerifyShort(c, options.seed, *pool)};
    row.peak_gflops = BestPeak(report.context.peaks, c.threads);
    if (row.verdict.Passed() && !options.verify_only) {
      const BackwardProblem problem(c, options.seed);
      row.flop = problem.flop();
      const std::vector<std::function<void()>> calls = {[&] { problem.Forward(*pool); },
                                                        [&] { problem.Backward(*pool); }};
      std::vector<double> warm;
      for (const auto& call : calls) {
        const double start = SecondsNow(options.plan.clock);
        call();
        warm.push_back(SecondsNow(options.plan.clock) - start);
      }
      const std::vector<Summary> summaries = MeasureInterleaved(calls, warm, options.plan);
      row.forward = summaries[0];
      row.seconds = summaries[1];
    }
    report.rows.push_back(std::move(row));
  }
  if (report.rows.empty()) {
    throw Error(ErrorCode::kOption, "--backward: no case of a mechanism that has a gradient");
  }
  return report;
}

bool AnyWrong(const BackwardReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const BackwardRow& row) { return !row.verdict.Passed(); });
}

void PrintBackward(std::ostream& out, const BackwardReport& report) {
  out << "backward                                  median ms        p10        p90  GFLOP/s  of "
         "peak  over forward  max error\n";
  for (const BackwardRow& row : report.rows) {
    if (row.seconds.count == 0) {
      PrintUntimed(out, row.shape.Name(), 40, row.verdict);
      continue;
    }
    std::array<char, 240> text;
    const double fraction = row.peak_gflops > 0 ? row.Gflops() / row.peak_gflops : 0;
    std::snprintf(text.data(), text.size(),
                  "%-40s  %9.3f  %9.3f  %9.3f  %7.1f  %5.0f %%  %12.2f  %9.1e\n",
                  row.shape.Name().c_str(), row.seconds.median * 1e3, row.seconds.p10 * 1e3,
                  row.seconds.p90 * 1e3, row.Gflops(), fraction * 100,
                  row.seconds.median / row.forward.median, row.verdict.max_error);
    out << text.data();
  }
  out << "GFLOP/s: 2.5 times what heed::EstimateCost counts for forward\n"
         "max error: along random directions, relative to the terms of the sum, on "
      << kCheckedLen << " tokens\n";
}

nlohmann::json ToJson(const BackwardReport& report) {
  nlohmann::json object = ContextJson(report.context);
  object["schema"] = "heed-bench-backward";
  nlohmann::json& rows = object["rows"] = nlohmann::json::array();
  for (const BackwardRow& row : report.rows) {
    nlohmann::json entry = {{"case", row.shape.Name()},
                            {"mechanism", row.shape.mechanism},
                            {"num_heads", row.shape.heads.num_heads},
                            {"num_kv_heads", row.shape.heads.num_kv_heads},
                            {"head_dim", row.shape.head_dim},
                            {"q_len", row.shape.lengths.q_len},
                            {"kv_len", row.shape.lengths.kv_len},
                            {"mask", MaskName(row.shape.mask)},
                            {"threads", row.shape.threads},
                            {"max_error", row.verdict.max_error},
                            {"error_bound", row.verdict.bound},
                            {"status", row.verdict.Passed() ? "verified" : "wrong"}};
    if (row.seconds.count > 0) {
      entry["status"] = "timed";
      entry["ms"] = TimesJson(row.seconds);
      entry["forward_ms"] = TimesJson(row.forward);
      entry["reps"] = row.seconds.count;
      entry["flop"] = row.flop;
      entry["gflops"] = row.Gflops();
      if (row.peak_gflops > 0) entry["fraction_of_peak"] = row.Gflops() / row.peak_gflops;
    }
    rows.push_back(std::move(entry));
  }
  return object;
}

}  // namespace heed::bench
