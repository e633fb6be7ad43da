#include "native_bench/patterns.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <regex>

#include "heed/attention.h"
#include "heed/cost.h"
#include "heed/reference.h"
#include "native_bench/accuracy.h"

namespace heed::bench {
namespace {

constexpr int64_t kDenseLength = 4096;
// Packing queries, keys and values takes the same time however few blocks are visible: twice.
constexpr int64_t kBlocksLengths[] = {4096, 16384};
constexpr int64_t kGlobalLength = 16384;
constexpr int64_t kLongWindow = 65536;
constexpr double kReach = 256, kWideReach = 1024;
constexpr int64_t kNumGlobal = 16;
// Odd, so that tiles and blocks have tails; more than a window, and several blocks.
constexpr int64_t kCheckedLength = 1301;

PatternCase Dense(const std::string& group, int64_t length = kDenseLength) {
  return {.group = group, .mechanism = "scaled_dot_product", .length = length};
}

void AppendBlocks(int64_t block, int64_t length, std::vector<PatternCase>& cases) {
  const std::string group = "blocks of " + std::to_string(block) + " in " + std::to_string(length);
  cases.push_back(Dense(group, length));
  for (const double density : {0.05, 0.1, 0.25, 0.5}) {
    cases.push_back({.group = group,
                     .mechanism = "block_sparse",
                     .length = length,
                     .params = {{"block_size", static_cast<double>(block)}},
                     .block = block,
                     .density = density});
  }
}

void AppendWindows(const std::string& group, const std::vector<NamedParam>& params,
                   int64_t shortest, std::vector<PatternCase>& cases) {
  cases.push_back(Dense(group));
  for (int64_t length = shortest; length <= kLongWindow; length *= 2) {
    cases.push_back(
        {.group = group, .mechanism = "scaled_dot_product", .length = length, .params = params});
  }
}

Case ShapeOf(const PatternCase& c, const Heads& heads, int64_t head_dim) {
  return {.mechanism = c.mechanism,
          .heads = heads,
          .lengths = {c.length, c.length},
          .head_dim = head_dim};
}

Verdict VerifyShort(PatternCase c, const Heads& heads, int64_t head_dim, uint64_t seed,
                    ThreadPool& pool) {
  c.length = kCheckedLength;
  const Heads few = heads.num_heads == heads.num_kv_heads ? Heads{2, 2} : Heads{2, 1};
  Verdict verdict;
  try {
    const PatternProblem problem(c, few, head_dim, seed);
    const NamedTensor result = {"output", problem.output().any()};
    std::fill_n(problem.output().floats(), problem.output().size(), std::nanf(""));
    Run(problem.request(), {&result, 1}, &pool);
    const std::vector<double> truth = reference::Run(problem.request()).front().values;
    double largest = 0;
    for (int64_t n = 0; n < problem.v().size(); ++n) {
      largest = std::max(largest, std::abs(static_cast<double>(problem.v().floats()[n])));
    }
    verdict.bound = AccuracyOf(c.mechanism).max_error * largest;
    verdict.rows = static_cast<int64_t>(truth.size()) / head_dim;
    for (size_t n = 0; n < truth.size(); ++n) {
      const double error = std::abs(problem.output().floats()[n] - truth[n]);
      verdict.max_error = error <= verdict.max_error ? verdict.max_error : error;
    }
  } catch (const std::exception& error) {
    verdict.failure = error.what();
  }
  return verdict;
}

// Times the rules of a group in turn: the same disturbance for all.
void TimeGroup(std::span<PatternRow> rows, const Options& options, ThreadPool& pool) {
  const Grid& grid = options.grid;
  std::vector<PatternProblem> problems;
  std::vector<std::function<void()>> calls;
  std::vector<double> warm_seconds;
  for (PatternRow& row : rows) {
    problems.emplace_back(row.shape, grid.heads[0], grid.head_dims[0], options.seed);
    row.flop = EstimateCost(problems.back().request(), grid.threads[0]).flops.value_or(0);
    const double depth = 4.0 * static_cast<double>(grid.heads[0].num_heads * grid.head_dims[0]);
    row.visible = row.flop / depth / std::pow(static_cast<double>(row.shape.length), 2);
  }
  for (const PatternProblem& problem : problems) {
    calls.push_back([&problem, &pool] {
      const NamedTensor result = {"output", problem.output().any()};
      Run(problem.request(), {&result, 1}, &pool);
    });
    calls.back()();
    warm_seconds.push_back(1);  // every one takes longer than a sample has to
  }
  const std::vector<Summary> summaries = MeasureInterleaved(calls, warm_seconds, options.plan);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].seconds = summaries[i];
  const double ideal = rows[0].seconds.median / rows[0].flop;
  for (PatternRow& row : rows) row.over_dense = row.seconds.median / (ideal * row.flop);
}

// The exponent of a group whose rules differ in length alone.
void AppendGrowth(std::span<const PatternRow> rows, std::vector<Growth>& growths) {
  std::vector<double> lengths, seconds;
  for (const PatternRow& row : rows.subspan(1)) {
    lengths.push_back(static_cast<double>(row.shape.length));
    seconds.push_back(row.seconds.median);
  }
  if (lengths.size() < 2 || lengths.front() == lengths.back()) return;
  growths.push_back({rows[0].shape.group, Exponent(lengths, seconds)});
}

}  // namespace

std::string PatternCase::Name() const {
  const bool dense = params.empty() && block == 0 && mechanism == "scaled_dot_product";
  std::string name = dense ? "dense" : mechanism == "scaled_dot_product" ? group : mechanism;
  if (block > 0) {
    name += "/" + std::to_string(block) + "/" + std::to_string(std::lround(100 * density)) + "%";
  }
  return name + "/l" + std::to_string(length);
}

std::vector<PatternCase> PatternCases(const std::string& filter) {
  std::vector<PatternCase> all;
  for (const int64_t length : kBlocksLengths) {
    for (const int64_t block : {64, 128}) AppendBlocks(block, length, all);
  }
  AppendWindows("window/causal", {{"window_left", kReach}, {"causal", true}}, 4096, all);
  AppendWindows("window1024/causal", {{"window_left", kWideReach}, {"causal", true}}, 16384, all);
  AppendWindows("window/symmetric", {{"window_left", kReach}, {"window_right", kReach}}, 4096, all);
  all.push_back(Dense("global"));
  all.push_back({.group = "global", .mechanism = "longformer", .length = kGlobalLength});
  all.push_back({.group = "global", .mechanism = "bigbird", .length = kGlobalLength});
  const std::regex expression = CompileFilter(filter);
  std::vector<std::string> groups;
  for (const PatternCase& c : all) {
    if (std::regex_search(c.Name(), expression)) groups.push_back(c.group);
  }
  std::erase_if(all, [&](const PatternCase& c) {
    return std::find(groups.begin(), groups.end(), c.group) == groups.end();
  });
  return all;
}

PatternProblem::PatternProblem(const PatternCase& c, const Heads& heads, int64_t head_dim,
                               uint64_t seed)
    : output_("output", DType::kFloat32, {1, heads.num_heads, c.length, head_dim}) {
  Extent extents = ExtentsOf(ShapeOf(c, heads, head_dim));
  extents["num_global"] = kNumGlobal;
  for (const char* name : {"q", "k", "v"}) {
    inputs_.push_back(DrawInput(FindInput(name), extents, seed));
  }
  if (c.mechanism == "longformer") {
    inputs_.push_back(DrawInput(FindInput("global_tokens"), extents, seed));
  }
  if (c.block > 0) AddBlocks(c, seed);
  request_ = {c.mechanism, {}, c.params};
  for (const OwnedTensor& input : inputs_) request_.inputs.push_back({input.name(), input.any()});
}

// In every row of blocks as many as the density says, rounded, and at least one.
void PatternProblem::AddBlocks(const PatternCase& c, uint64_t seed) {
  const int64_t blocks = (c.length + c.block - 1) / c.block;
  const int64_t kept = std::max<int64_t>(1, std::lround(c.density * static_cast<double>(blocks)));
  OwnedTensor keep("block_keep", DType::kUint8, {blocks, blocks});
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 generator(seed);
  std::fill_n(keep.bytes(), keep.size(), uint8_t{0});
  for (int64_t row = 0; row < blocks; ++row) {
    std::shuffle(order.begin(), order.end(), generator);
    for (int64_t n = 0; n < kept; ++n) {
      keep.bytes()[row * blocks + order[static_cast<size_t>(n)]] = 1;
    }
  }
  inputs_.push_back(std::move(keep));
}

double Exponent(const std::vector<double>& x, const std::vector<double>& y) {
  double mean_x = 0, mean_y = 0, product = 0, square = 0;
  const double count = static_cast<double>(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    mean_x += std::log(x[i]) / count;
    mean_y += std::log(y[i]) / count;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double distance = std::log(x[i]) - mean_x;
    product += distance * (std::log(y[i]) - mean_y);
    square += distance * distance;
  }
  return product / square;
}

PatternReport MeasurePatterns(const Options& options, Report context, const Progress& progress,
                              const CheckpointOf<PatternReport>& checkpoint) {
  const Grid& grid = options.grid;
  const auto pool = MakeThreadPool(grid.threads[0]);
  PatternReport report = {
      .context = std::move(context), .heads = grid.heads[0], .head_dim = grid.head_dims[0]};
  const std::vector<PatternCase> cases = PatternCases(options.filter);
  if (cases.empty()) throw Error(ErrorCode::kOption, "--filter leaves no row of --patterns");
  for (const PatternCase& c : cases) {
    progress(c.Name(), report.rows.size(), cases.size());
    PatternRow& row = report.rows.emplace_back();
    row.shape = c;
    row.verdict = VerifyShort(c, grid.heads[0], grid.head_dims[0], options.seed, *pool);
  }
  if (options.verify_only || AnyWrong(report)) return report;
  for (size_t begin = 0; begin < cases.size();) {
    size_t end = begin;
    while (end < cases.size() && cases[end].group == cases[begin].group) ++end;
    progress(cases[begin].group, begin, cases.size());
    const std::span<PatternRow> group = std::span(report.rows).subspan(begin, end - begin);
    TimeGroup(group, options, *pool);
    AppendGrowth(group, report.growths);
    if (checkpoint) checkpoint(report);
    begin = end;
  }
  return report;
}

bool AnyWrong(const PatternReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const PatternRow& row) { return !row.verdict.Passed(); });
}

}  // namespace heed::bench
