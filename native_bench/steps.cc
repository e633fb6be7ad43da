#include "native_bench/steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <regex>

#include "heed/reference.h"
#include "heed/registry.h"
#include "native_bench/accuracy.h"
#include "native_bench/words.h"

namespace heed::bench {
namespace {

constexpr char kState[] = "initial_state";
constexpr char kProjection[] = "projection";
// Where the token stands, for those who look: the next one joins all levels but one of log_linear.
constexpr double kPosition = 1022;
// Steps whose outputs are compared with the oracle.
constexpr int kCheckedSteps = 4;

// max |actual - wanted|; NaN counts as infinite.
double LargestError(const float* actual, const std::vector<double>& wanted) {
  double largest = 0;
  for (size_t n = 0; n < wanted.size(); ++n) {
    const double error = std::abs(actual[n] - wanted[n]);
    if (!(error <= largest)) largest = std::isnan(error) ? HUGE_VAL : error;
  }
  return largest;
}

double LargestMagnitude(const std::vector<double>& values) {
  double largest = 1;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// Each step from the state that the one before left, against the oracle from the same state.
Verdict Verify(const StepProblem& problem, ThreadPool& pool) {
  Verdict verdict;
  const double promised = AccuracyOf(problem.request().id).max_error;
  try {
    for (int step = 0; step < kCheckedSteps; ++step) {
      const std::vector<reference::Result> truth = reference::Run(problem.request());
      problem.Step(pool);
      for (const reference::Result& result : truth) {
        const bool is_state = result.name == "state";
        const OwnedTensor& actual = is_state ? problem.state() : problem.output();
        // Errors and bounds both relative to the result.
        const double size = LargestMagnitude(result.values);
        verdict.max_error =
            std::max(verdict.max_error, LargestError(actual.floats(), result.values) / size);
        verdict.rows += actual.size() / actual.shape().back();
      }
    }
    const OwnedTensor& v = problem.v();
    double values = 1;
    for (int64_t n = 0; n < v.size(); ++n) {
      values = std::max(values, std::abs(static_cast<double>(v.floats()[n])));
    }
    verdict.bound = promised * values;
  } catch (const std::exception& error) {
    verdict.failure = error.what();
  }
  return verdict;
}

}  // namespace

std::vector<std::string> StepMechanisms() {
  std::vector<std::string> ids;
  for (const Mechanism& row : Mechanisms()) {
    const bool takes = HasWord(row.inputs, std::string(kState) + "?");
    if (takes && HasWord(row.params, "return_state")) ids.emplace_back(row.id);
  }
  return ids;
}

StepProblem::StepProblem(const Case& c, uint64_t seed) {
  const Mechanism& mechanism = *FindMechanism(c.mechanism);
  const Extent extents = ExtentsOf(c);
  request_ = {c.mechanism, {}, ExampleParams(mechanism, extents)};
  if (HasWord(mechanism.params, "causal")) request_.params.push_back({"causal", true});
  request_.params.push_back({"return_state", true});
  if (HasWord(mechanism.params, "position_offset")) {
    request_.params.push_back({"position_offset", kPosition});
  }
  for (std::string_view name : ExampleInputs(mechanism)) {
    inputs_.push_back(DrawInput(FindInput(name), extents, seed));
    request_.inputs.push_back({inputs_.back().name(), inputs_.back().any()});
  }
  if (HasWord(mechanism.inputs, std::string(kProjection) + "?")) {
    // Drawn once, as a decoder would, and not again for every token.
    inputs_.push_back(DrawInput(FindInput(kProjection), extents, seed));
    request_.inputs.push_back({kProjection, inputs_.back().any()});
  }
  for (const OutputSpec& spec : PlanOutputs(request_)) {
    const std::span<const int64_t> shape =
        std::span(spec.shape).first(static_cast<size_t>(spec.rank));
    std::vector<OwnedTensor>& to = spec.name == "state" ? inputs_ : results_;
    to.emplace_back(spec.name == "state" ? kState : spec.name, spec.dtype,
                    std::vector<int64_t>(shape.begin(), shape.end()));
    outputs_.push_back({spec.name, to.back().any()});
  }
  request_.inputs.push_back({kState, state().any()});
  Reset();
}

const OwnedTensor& StepProblem::v() const {
  return *std::find_if(inputs_.begin(), inputs_.end(),
                       [](const OwnedTensor& tensor) { return tensor.name() == "v"; });
}

void StepProblem::Step(ThreadPool& pool) const { Run(request_, outputs_, &pool); }

void StepProblem::Reset() const { std::fill_n(state().floats(), state().size(), 0.0f); }

StepReport MeasureSteps(const Options& options, Report context, const Progress& progress,
                        const CheckpointOf<StepReport>& checkpoint) {
  const Grid& grid = options.grid;
  const auto pool = MakeThreadPool(grid.threads[0]);
  StepReport report = {.context = std::move(context)};
  const std::regex expression = CompileFilter(options.filter);
  std::vector<std::string> ids = StepMechanisms();
  std::erase_if(ids, [&](const std::string& id) { return !std::regex_search(id, expression); });
  const size_t total = ids.size() * grid.heads.size() * grid.head_dims.size();
  for (const Heads& heads : grid.heads) {
    for (const int64_t head_dim : grid.head_dims) {
      // All mechanisms of a shape in turn.
      std::vector<StepProblem> problems;
      std::vector<size_t> rows;
      for (const std::string& id : ids) {
        const Case c = {.mechanism = id,
                        .heads = heads,
                        .lengths = {1, 1},
                        .head_dim = head_dim,
                        .mask = Mask::kCausal,
                        .threads = grid.threads[0]};
        progress(c.Name(), report.rows.size(), total);
        StepProblem problem(c, options.seed);
        StepRow row = {.shape = c, .verdict = Verify(problem, *pool)};
        row.state_bytes = 4 * problem.state().size();
        problem.Reset();
        if (row.verdict.Passed() && !options.verify_only) {
          rows.push_back(report.rows.size());
          problems.push_back(std::move(problem));
        }
        report.rows.push_back(std::move(row));
      }
      std::vector<std::function<void()>> calls;
      for (const StepProblem& problem : problems) {
        calls.push_back([&problem, &pool] { problem.Step(*pool); });
      }
      const std::vector<double> warm_seconds(calls.size(), 1e-5);
      const std::vector<Summary> summaries = MeasureInterleaved(calls, warm_seconds, options.plan);
      for (size_t n = 0; n < rows.size(); ++n) report.rows[rows[n]].seconds = summaries[n];
      if (checkpoint) checkpoint(report);
    }
  }
  if (report.rows.empty()) throw Error(ErrorCode::kOption, "--filter leaves no row of --steps");
  return report;
}

bool AnyWrong(const StepReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const StepRow& row) { return !row.verdict.Passed(); });
}

void PrintSteps(std::ostream& out, const StepReport& report) {
  out << "one token                               median us         p10         p90    GB/s  "
         "state KiB  max error\n";
  for (const StepRow& row : report.rows) {
    if (row.seconds.count == 0) {
      PrintUntimed(out, row.shape.Name(), 38, row.verdict);
      continue;
    }
    std::array<char, 240> text;
    std::snprintf(text.data(), text.size(), "%-38s  %9.2f  %10.2f  %10.2f  %6.1f  %9.0f  %9.1e\n",
                  row.shape.Name().c_str(), row.seconds.median * 1e6, row.seconds.p10 * 1e6,
                  row.seconds.p90 * 1e6, row.Gbps(), static_cast<double>(row.state_bytes) / 1024,
                  row.verdict.max_error);
    out << text.data();
  }
  out << "GB/s: the state, read and written, over time; all heads together\n";
}

nlohmann::json ToJson(const StepReport& report) {
  nlohmann::json object = ContextJson(report.context);
  object["schema"] = "heed-bench-steps";
  nlohmann::json& rows = object["rows"] = nlohmann::json::array();
  for (const StepRow& row : report.rows) {
    nlohmann::json entry = {{"case", row.shape.Name()},
                            {"mechanism", row.shape.mechanism},
                            {"num_heads", row.shape.heads.num_heads},
                            {"num_kv_heads", row.shape.heads.num_kv_heads},
                            {"head_dim", row.shape.head_dim},
                            {"threads", row.shape.threads},
                            {"max_error", row.verdict.max_error},
                            {"error_bound", row.verdict.bound},
                            {"state_bytes", row.state_bytes},
                            {"status", row.verdict.Passed() ? "verified" : "wrong"}};
    if (row.seconds.count > 0) {
      entry["status"] = "timed";
      entry["us"] = row.seconds.median * 1e6;
      entry["ms"] = TimesJson(row.seconds);
      entry["reps"] = row.seconds.count;
      entry["gbps"] = row.Gbps();
    }
    rows.push_back(std::move(entry));
  }
  return object;
}

}  // namespace heed::bench
