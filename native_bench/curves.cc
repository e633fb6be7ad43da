#include "native_bench/curves.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "heed/registry.h"
#include "native_bench/patterns.h"
#include "native_bench/peer.h"
#include "native_bench/problem.h"
#include "native_bench/words.h"

namespace heed::bench {
namespace {

Case ShapeOf(const std::string& mechanism, const Grid& grid, int64_t length) {
  const bool causal = HasWord(FindMechanism(mechanism)->params, "causal");
  return {.mechanism = mechanism,
          .heads = grid.heads[0],
          .lengths = {length, length},
          .head_dim = grid.head_dims[0],
          .mask = causal ? Mask::kCausal : Mask::kFull,
          .threads = grid.threads[0]};
}

// A length of a curve, ready to be timed.
struct Candidate {
  std::unique_ptr<Problem> problem;
  std::function<void()> call = {};
  double warm_seconds = 0;
};

Candidate Warm(const Case& c, uint64_t seed, ThreadPool& pool) {
  Candidate candidate = {.problem = std::make_unique<Problem>(c, seed)};
  candidate.call = HeedPeer().prepare(*candidate.problem, pool);
  const auto start = std::chrono::steady_clock::now();
  candidate.call();
  candidate.warm_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return candidate;
}

// Of lengths that ascend, those whose calls end in time.
std::vector<Candidate> WarmAll(Case c, const Options& options, ThreadPool& pool) {
  std::vector<Candidate> candidates;
  for (const Lengths& lengths : options.grid.lengths) {
    if (!candidates.empty()) {
      const Candidate& last = candidates.back();
      const double longer =
          static_cast<double>(lengths.kv_len) / static_cast<double>(c.lengths.kv_len);
      // As if it grew with the square.
      if (last.warm_seconds * longer * longer > options.plan.max_seconds) break;
    }
    c.lengths = {lengths.kv_len, lengths.kv_len};
    candidates.push_back(Warm(c, options.seed, pool));
  }
  return candidates;
}

void Measure(Curve& curve, const Options& options, ThreadPool& pool) {
  const std::vector<Candidate> candidates = WarmAll(curve.shape, options, pool);
  std::vector<std::function<void()>> calls;
  std::vector<double> warm_seconds;
  for (const Candidate& candidate : candidates) {
    calls.push_back(candidate.call);
    warm_seconds.push_back(candidate.warm_seconds);
  }
  const std::vector<Summary> summaries = MeasureInterleaved(calls, warm_seconds, options.plan);
  for (size_t n = 0; n < candidates.size(); ++n) {
    curve.points.push_back({.length = candidates[n].problem->shape().lengths.kv_len,
                            .seconds = summaries[n],
                            .cost = candidates[n].problem->EstimateCost()});
  }
}

const char* SeenMask(const Case& c) {
  return MaskName(IsAlwaysCausal(c.mechanism) ? Mask::kCausal : c.mask);
}

std::vector<const CurvePoint*> LongPoints(const Curve& curve) {
  std::vector<const CurvePoint*> points;
  for (const CurvePoint& point : curve.points) {
    if (point.length >= kLinearFrom) points.push_back(&point);
  }
  return points;
}

}  // namespace

double Curve::Exponent() const {
  std::vector<double> lengths, seconds;
  for (const CurvePoint* point : LongPoints(*this)) {
    lengths.push_back(static_cast<double>(point->length));
    seconds.push_back(point->seconds.median);
  }
  return lengths.size() < 2 ? 0 : bench::Exponent(lengths, seconds);
}

double Curve::OverLinear() const {
  const std::vector<const CurvePoint*> points = LongPoints(*this);
  if (points.size() < 2) return 0;
  double most = 0;
  for (const CurvePoint* point : points) most = std::max(most, point->Rate());
  return most / points.front()->Rate();
}

double Curve::ScratchGrowth() const {
  const std::vector<const CurvePoint*> points = LongPoints(*this);
  if (points.size() < 2) return 0;
  const double first = static_cast<double>(points.front()->cost.scratch_bytes.value_or(0));
  return first > 0 ? static_cast<double>(points.back()->cost.scratch_bytes.value_or(0)) / first : 0;
}

std::vector<std::string> CurveMechanisms() {
  std::vector<std::string> ids = {"scaled_dot_product"};
  for (const Mechanism& row : Mechanisms()) {
    const bool slow =
        row.family == "recurrent" || row.family == "low_rank" || row.family == "selective";
    const bool takes_qkv = HasWord(row.inputs, "q") && HasWord(row.inputs, "v");
    if (slow && takes_qkv) ids.emplace_back(row.id);
  }
  return ids;
}

CurveReport MeasureCurves(const Options& options, Report context, const Progress& progress,
                          const CheckpointOf<CurveReport>& checkpoint) {
  const auto pool = MakeThreadPool(options.grid.threads[0]);
  CurveReport report = {.context = std::move(context)};
  const std::regex expression = CompileFilter(options.filter);
  std::vector<std::string> ids = CurveMechanisms();
  std::erase_if(ids, [&](const std::string& id) { return !std::regex_search(id, expression); });
  for (size_t n = 0; n < ids.size(); ++n) {
    progress(ids[n], n, ids.size());
    Curve& curve = report.curves.emplace_back();
    curve.shape = ShapeOf(ids[n], options.grid, options.grid.lengths.front().kv_len);
    curve.verdict = VerifySmall(HeedPeer(), curve.shape, options.seed, *pool);
    if (curve.verdict.Passed() && !options.verify_only) Measure(curve, options, *pool);
    if (checkpoint) checkpoint(report);
  }
  if (report.curves.empty()) {
    throw Error(ErrorCode::kOption, "--filter leaves no mechanism of --curves");
  }
  return report;
}

bool AnyWrong(const CurveReport& report) {
  return std::any_of(report.curves.begin(), report.curves.end(),
                     [](const Curve& curve) { return !curve.verdict.Passed(); });
}

void PrintCurves(std::ostream& out, const CurveReport& report) {
  out << "mechanism             mask     length   median ms   us/token   GFLOP/s  scratch KiB\n";
  for (const Curve& curve : report.curves) {
    std::array<char, 240> text;
    const char* id = curve.shape.mechanism.c_str();
    if (curve.points.empty()) {
      PrintUntimed(out, curve.shape.mechanism, 20, curve.verdict);
      continue;
    }
    for (const CurvePoint& point : curve.points) {
      std::snprintf(text.data(), text.size(), "%-20s  %-6s  %7lld  %10.3f  %9.3f  %8.1f  %11.0f\n",
                    id, SeenMask(curve.shape), static_cast<long long>(point.length),
                    point.seconds.median * 1e3, point.Rate() * 1e6,
                    point.cost.flops.value_or(0) / point.seconds.median * 1e-9,
                    static_cast<double>(point.cost.scratch_bytes.value_or(0)) / 1024);
      out << text.data();
    }
    if (curve.Exponent() == 0) continue;
    std::snprintf(text.data(), text.size(),
                  "%-20s  from %lld tokens: length^%.3f, a token at most %.2f times, scratch %.2f "
                  "times\n",
                  id, static_cast<long long>(kLinearFrom), curve.Exponent(), curve.OverLinear(),
                  curve.ScratchGrowth());
    out << text.data();
  }
}

nlohmann::json ToJson(const CurveReport& report) {
  nlohmann::json object = ContextJson(report.context);
  object["schema"] = "heed-bench-curves";
  nlohmann::json& curves = object["curves"] = nlohmann::json::array();
  for (const Curve& curve : report.curves) {
    nlohmann::json entry = {{"mechanism", curve.shape.mechanism},
                            {"family", FindMechanism(curve.shape.mechanism)->family},
                            {"mask", SeenMask(curve.shape)},
                            {"num_heads", curve.shape.heads.num_heads},
                            {"head_dim", curve.shape.head_dim},
                            {"threads", curve.shape.threads},
                            {"max_error", curve.verdict.max_error},
                            {"error_bound", curve.verdict.bound},
                            {"status", curve.verdict.Passed() ? "verified" : "wrong"}};
    nlohmann::json& points = entry["points"] = nlohmann::json::array();
    for (const CurvePoint& point : curve.points) {
      nlohmann::json cell = {{"length", point.length},
                             {"ms", TimesJson(point.seconds)},
                             {"reps", point.seconds.count},
                             {"bytes", point.cost.bytes_read + point.cost.bytes_written}};
      if (point.cost.flops) cell["flop"] = *point.cost.flops;
      if (point.cost.scratch_bytes) cell["scratch_bytes"] = *point.cost.scratch_bytes;
      points.push_back(std::move(cell));
    }
    if (!curve.points.empty()) entry["status"] = "timed";
    if (curve.Exponent() != 0) {
      entry["exponent"] = curve.Exponent();
      entry["over_linear"] = curve.OverLinear();
      entry["scratch_growth"] = curve.ScratchGrowth();
    }
    curves.push_back(std::move(entry));
  }
  return object;
}

}  // namespace heed::bench
