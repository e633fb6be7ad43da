#include "native_bench/approximation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "heed/registry.h"
#include "native_bench/peer.h"
#include "native_bench/words.h"

namespace heed::bench {
namespace {

// Topics of a sequence, tokens of a run, how much stronger than the noise a topic is.
constexpr int64_t kTopics = 16, kRun = 24;
constexpr float kTopicStrength = 2, kValueStrength = 1;
// A needle's logit beside logits of deviation 1: it gets nearly all of the weight of 1000 keys.
constexpr float kNeedleLogit = 14;

using Generator = std::mt19937_64;

// Rows [head][token][column] of one tensor of a problem.
struct Table {
  float* data;
  int64_t heads, tokens, width;
  float* row(int64_t head, int64_t token) const { return data + (head * tokens + token) * width; }
};

// Queries are keys as well where there are no others.
Table TableOf(const Problem& problem, std::string_view name) {
  const OwnedTensor* const own = problem.input(name);
  const OwnedTensor& tensor = own != nullptr ? *own : *problem.input("q");
  const auto& shape = tensor.shape();
  return {tensor.floats(), shape[0] * shape[1], shape[2], shape[3]};
}

void DrawNormals(const Table& table, Generator& generator) {
  std::normal_distribution<float> normal;
  std::generate_n(table.data, table.heads * table.tokens * table.width,
                  [&] { return normal(generator); });
}

void AddTopics(const Problem& problem, Generator& generator) {
  const Table q = TableOf(problem, "q"), k = TableOf(problem, "k"), v = TableOf(problem, "v");
  std::vector<int64_t> topics(static_cast<size_t>(k.tokens));
  for (int64_t t = 0; t < k.tokens; ++t) {
    topics[static_cast<size_t>(t)] = t % kRun == 0 ? static_cast<int64_t>(generator() % kTopics)
                                                   : topics[static_cast<size_t>(t - 1)];
  }
  for (int64_t head = 0; head < k.heads; ++head) {
    std::vector<float> centres(static_cast<size_t>(kTopics * k.width));
    std::vector<float> meanings(static_cast<size_t>(kTopics * v.width));
    std::normal_distribution<float> normal;
    std::generate(centres.begin(), centres.end(), [&] { return normal(generator); });
    std::generate(meanings.begin(), meanings.end(), [&] { return normal(generator); });
    const auto add = [&](const Table& to, int64_t row_head, int64_t t, int64_t topic,
                         const std::vector<float>& from, float strength) {
      for (int64_t c = 0; c < to.width; ++c) {
        to.row(row_head, t)[c] += strength * from[static_cast<size_t>(topic * to.width + c)];
      }
    };
    for (int64_t t = 0; t < k.tokens; ++t) {
      const int64_t own = topics[static_cast<size_t>(t)];
      add(k, head, t, own, centres, kTopicStrength / 2);
      add(v, head, t, own, meanings, kValueStrength);
      const int64_t other = static_cast<int64_t>(generator() % kTopics);
      add(q, head, t, generator() % 4 == 0 ? other : own, centres, kTopicStrength / 2);
    }
  }
}

// q_i = noise + strength * k_j for a j before i, so that its logit stands out.
void AddNeedles(const Problem& problem, Generator& generator) {
  const Table q = TableOf(problem, "q"), k = TableOf(problem, "k");
  const float strength = kNeedleLogit / std::sqrt(static_cast<float>(k.width));
  for (int64_t head = 0; head < q.heads; ++head) {
    for (int64_t t = 0; t < q.tokens; ++t) {
      const int64_t needle =
          static_cast<int64_t>(generator() % static_cast<uint64_t>(std::max<int64_t>(t, 1)));
      const float* key = k.row(head, needle);
      for (int64_t c = 0; c < k.width; ++c) q.row(head, t)[c] += strength * key[c];
    }
  }
}

// What the mechanism stands in for: exact attention with the same mask; without keys of their own
// to queries of length 1, and not to themselves.
class ExactProblem {
 public:
  ExactProblem(const Problem& problem, uint64_t seed)
      : shares_keys_(problem.input("k") == nullptr), problem_(ShapeOf(problem), seed) {
    request_ = problem_.request();
    if (shares_keys_) request_.params.push_back({"keep_mod", "qIndex != kvIndex"});
  }

  // Takes over q, k and v.
  void CopyFrom(const Problem& problem) {
    for (const char* name : {"q", "k", "v"}) {
      const Table from = TableOf(problem, name), to = TableOf(problem_, name);
      std::copy_n(from.data, from.heads * from.tokens * from.width, to.data);
      if (shares_keys_ && to.data == problem_.input("k")->floats()) Normalize(to);
    }
  }

  void Run(ThreadPool& pool) const { heed::Run(request_, problem_.results(), &pool); }
  TensorView<float> output() const { return problem_.output(); }

 private:
  static Case ShapeOf(const Problem& problem) {
    Case c = problem.shape();
    if (IsAlwaysCausal(c.mechanism)) c.mask = Mask::kCausal;
    c.mechanism = "scaled_dot_product";
    return c;
  }

  static void Normalize(const Table& table) {
    for (int64_t row = 0; row < table.heads * table.tokens; ++row) {
      float* const x = table.data + row * table.width;
      double squares = 0;
      for (int64_t c = 0; c < table.width; ++c) squares += double{x[c]} * x[c];
      for (int64_t c = 0; c < table.width; ++c) x[c] /= static_cast<float>(std::sqrt(squares));
    }
  }

  bool shares_keys_;
  Problem problem_;
  Request request_;
};

// Without the learned tensors that may be left out: what is drawn for them would be no filter.
Request Untrained(Request request) {
  std::erase_if(request.inputs, [&](const NamedTensor& input) {
    return HasWord(FindMechanism(request.id)->inputs, input.name + "?");
  });
  return request;
}

double RelativeError(const Problem& problem, const ExactProblem& exact) {
  const TensorView<float> output = problem.output(), truth = exact.output();
  const int64_t count = truth.shape[0] * truth.shape[1] * truth.shape[2] * truth.shape[3];
  double difference = 0, size = 0;
  for (int64_t n = 0; n < count; ++n) {
    const double wanted = truth.data[n], error = output.data[n] - wanted;
    difference += error * error;
    size += wanted * wanted;
  }
  return std::sqrt(difference / size);
}

ApproximationRow MeasureRow(const Case& c, const Options& options, ThreadPool& pool) {
  ApproximationRow row = {.shape = c, .mask = IsAlwaysCausal(c.mechanism) ? Mask::kCausal : c.mask};
  try {
    Problem problem(c, options.seed);
    ExactProblem exact(problem, options.seed);
    const Request request = Untrained(problem.request());
    const std::vector<std::function<void()>> calls = {
        [&] { Run(request, problem.results(), &pool); }, [&] { exact.Run(pool); }};
    // Random data comes last, for the timing.
    for (size_t n = kAllData.size(); n-- > 0;) {
      DrawData(kAllData[n], problem, options.seed);
      exact.CopyFrom(problem);
      for (const std::function<void()>& call : calls) call();
      row.error[n] = RelativeError(problem, exact);
    }
    if (options.verify_only) return row;
    const double warm_seconds[] = {1e-3, 1e-3};
    const std::vector<Summary> summaries = MeasureInterleaved(calls, warm_seconds, options.plan);
    row.seconds = summaries[0];
    row.over_exact = summaries[0].median / summaries[1].median;
  } catch (const Error& error) {
    row.failure = error.what();
  }
  return row;
}

}  // namespace

const char* DataName(Data data) {
  constexpr const char* kNames[] = {"random", "topics", "needle"};
  return kNames[static_cast<size_t>(data)];
}

std::vector<std::string> ApproximateMechanisms() {
  std::vector<std::string> ids;
  for (const Mechanism& row : Mechanisms()) {
    if (HasWord(row.capabilities, "approximates")) ids.emplace_back(row.id);
  }
  return ids;
}

void DrawData(Data data, const Problem& problem, uint64_t seed) {
  Generator generator(seed);
  for (const char* name : {"q", "k", "v"}) {
    if (problem.input(name) != nullptr) DrawNormals(TableOf(problem, name), generator);
  }
  if (data == Data::kTopics) AddTopics(problem, generator);
  if (data == Data::kNeedle) AddNeedles(problem, generator);
}

ApproximationReport MeasureApproximation(const Options& options, Report context,
                                         const Progress& progress,
                                         const CheckpointOf<ApproximationReport>& checkpoint) {
  const auto pool = MakeThreadPool(options.grid.threads[0]);
  ApproximationReport report = {.context = std::move(context)};
  Grid grid = options.grid;
  grid.mechanisms = ApproximateMechanisms();
  // Not grouped: some mechanisms have no keys of their own to share.
  grid.heads = {{grid.heads[0].num_heads, grid.heads[0].num_heads}};
  grid.head_dims.resize(1);
  grid.threads.resize(1);
  const std::vector<Case> cases = MakeCases(grid, options.filter);
  for (const Case& c : cases) {
    progress(c.Name(), report.rows.size(), cases.size());
    report.rows.push_back(MeasureRow(c, options, *pool));
    if (checkpoint) checkpoint(report);
  }
  if (report.rows.empty()) {
    throw Error(ErrorCode::kOption, "--filter leaves no row of --approximation");
  }
  return report;
}

bool AnyWrong(const ApproximationReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const ApproximationRow& row) { return !row.failure.empty(); });
}

void PrintApproximation(std::ostream& out, const ApproximationReport& report) {
  out << "mechanism          length  mask     random  topics  needle   median ms  time / exact\n";
  for (const ApproximationRow& row : report.rows) {
    std::array<char, 240> text;
    std::snprintf(text.data(), text.size(),
                  "%-18s %6lld  %-6s  %7.3f %7.3f %7.3f  %10.3f  %12.2f %s\n",
                  row.shape.mechanism.c_str(), static_cast<long long>(row.shape.lengths.kv_len),
                  MaskName(row.mask), row.error[0], row.error[1], row.error[2],
                  row.seconds.median * 1e3, row.over_exact, row.failure.c_str());
    out << text.data();
  }
  out << "errors: root mean square of output - exact attention, over that of exact attention\n";
}

nlohmann::json ToJson(const ApproximationReport& report) {
  nlohmann::json object = ContextJson(report.context);
  object["schema"] = "heed-bench-approximation";
  nlohmann::json& rows = object["rows"] = nlohmann::json::array();
  for (const ApproximationRow& row : report.rows) {
    nlohmann::json entry = {{"case", row.shape.Name()},
                            {"mechanism", row.shape.mechanism},
                            {"mask", MaskName(row.mask)},
                            {"length", row.shape.lengths.kv_len},
                            {"status", row.failure.empty() ? "compared" : "failed"}};
    if (!row.failure.empty()) entry["reason"] = row.failure;
    for (const Data data : kAllData) {
      entry["error"][DataName(data)] = row.error[static_cast<size_t>(data)];
    }
    if (row.seconds.count > 0) {
      entry["ms"] = TimesJson(row.seconds);
      entry["over_exact"] = row.over_exact;
    }
    rows.push_back(std::move(entry));
  }
  return object;
}

}  // namespace heed::bench
