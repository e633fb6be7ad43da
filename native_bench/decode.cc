#include "native_bench/decode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>

#include "heed/cache.h"
#include "heed/reference.h"
#include "native_bench/draw.h"
#include "native_bench/peer.h"
#include "native_bench/problem.h"

namespace heed::bench {
namespace {

constexpr DType kStorage[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8,
                              DType::kFloat8E4M3};

Case ShapeOf(const DecodeRow& row) {
  return {.mechanism = "scaled_dot_product",
          .heads = row.heads,
          .lengths = {1, row.length},
          .head_dim = row.head_dim,
          .threads = row.threads};
}

// The tokens in a cache of one storage type.
KvCache Filled(const DecodeRow& row, const Problem& problem) {
  KvCache cache(
      {.num_kv_heads = row.heads.num_kv_heads, .head_dim = row.head_dim, .dtype = row.dtype});
  cache.Append(problem.k(), problem.v());
  return cache;
}

TensorView<float> Writable(const TensorView<const float>& view) {
  return Contiguous(const_cast<float*>(view.data), view.shape[0], view.shape[1], view.shape[2],
                    view.shape[3]);
}

// The oracle sees what the cache holds, rounded as it is: keys and values of the problem change.
Verdict Verify(const KvCache& cache, Problem& problem, ThreadPool& pool) {
  problem.FillOutputWithNan();
  try {
    Decode(problem.q(), cache, {}, {.output = problem.output()}, &pool);
  } catch (const std::exception& error) {
    return {.failure = error.what()};
  }
  cache.Read(0, 0, cache.length(0), Writable(problem.k()), Writable(problem.v()));
  return Oracle(problem).Compare(problem);
}

double ReadRate(const Report& context, int threads) {
  for (const StreamRate& rate : context.streams) {
    if (rate.threads == threads) return rate.read_gbps;
  }
  return 0;
}

// The storage types of one shape, in turn.
void MeasureShape(std::span<DecodeRow> rows, const Options& options, const Report& context) {
  const auto pool = MakeThreadPool(rows[0].threads);
  Problem problem(ShapeOf(rows[0]), options.seed);
  std::vector<KvCache> caches;
  for (DecodeRow& row : rows) {
    caches.push_back(Filled(row, problem));
    row.bytes = static_cast<double>(caches.back().memory().bytes);
  }
  std::vector<std::function<void()>> calls;
  std::vector<double> warm_seconds;
  std::vector<DecodeRow*> right;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].verdict = Verify(caches[i], problem, *pool);
    if (options.verify_only || !rows[i].verdict.Passed()) continue;
    calls.push_back([&problem, &pool, &cache = caches[i]] {
      Decode(problem.q(), cache, {}, {.output = problem.output()}, pool.get());
    });
    warm_seconds.push_back(rows[i].bytes / 10e9);  // near enough to fill a sample
    right.push_back(&rows[i]);
  }
  const std::vector<Summary> summaries = MeasureInterleaved(calls, warm_seconds, options.plan);
  const double read = ReadRate(context, rows[0].threads);
  for (size_t n = 0; n < right.size(); ++n) {
    right[n]->seconds = summaries[n];
    right[n]->fraction_of_read = read > 0 ? right[n]->Gbps() / read : 0;
  }
}

std::vector<DecodeRow> Shapes(const Grid& grid) {
  std::vector<DecodeRow> shapes;
  for (const Heads& heads : grid.heads) {
    for (const int64_t head_dim : grid.head_dims) {
      for (const Lengths& lengths : grid.lengths) {
        for (const int threads : grid.threads) {
          DecodeRow& row = shapes.emplace_back();
          row.heads = heads;
          row.head_dim = head_dim;
          row.length = lengths.kv_len;
          row.threads = threads;
        }
      }
    }
  }
  return shapes;
}

// The rows that the filter leaves, those of a shape together.
std::vector<std::vector<DecodeRow>> FilteredRows(const Options& options) {
  const std::regex expression = CompileFilter(options.filter);
  std::vector<std::vector<DecodeRow>> filtered;
  for (DecodeRow row : Shapes(options.grid)) {
    std::vector<DecodeRow> rows;
    for (const DType dtype : kStorage) {
      row.dtype = dtype;
      if (std::regex_search(row.Name(), expression)) rows.push_back(row);
    }
    if (!rows.empty()) filtered.push_back(std::move(rows));
  }
  return filtered;
}

}  // namespace

std::string DecodeRow::Name() const {
  std::string name =
      std::string("decode/") + DTypeName(dtype) + "/h" + std::to_string(heads.num_heads);
  if (heads.num_kv_heads != heads.num_heads) name += ":" + std::to_string(heads.num_kv_heads);
  return name + "/d" + std::to_string(head_dim) + "/l" + std::to_string(length) + "/t" +
         std::to_string(threads);
}

DecodeReport MeasureDecode(const Options& options, Report context, const Progress& progress,
                           const CheckpointOf<DecodeReport>& checkpoint) {
  DecodeReport report = {.context = std::move(context)};
  std::vector<std::vector<DecodeRow>> shapes = FilteredRows(options);
  if (shapes.empty()) throw Error(ErrorCode::kOption, "--filter leaves no row of --decode");
  if (!options.verify_only) {
    for (const int threads : options.grid.threads) {
      report.context.streams.push_back(MeasureStream(threads, options.plan.clock));
    }
  }
  for (size_t n = 0; n < shapes.size(); ++n) {
    std::vector<DecodeRow>& rows = shapes[n];
    progress(rows[0].Name(), n, shapes.size());
    MeasureShape(rows, options, report.context);
    report.rows.insert(report.rows.end(), rows.begin(), rows.end());
    if (checkpoint) checkpoint(report);
  }
  return report;
}

bool AnyWrong(const DecodeReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const DecodeRow& row) { return !row.verdict.Passed(); });
}

void PrintDecode(std::ostream& out, const DecodeReport& report) {
  out << "one token                               median ms         p10         p90    GB/s  "
         "of read  max error\n";
  for (const DecodeRow& row : report.rows) {
    if (row.seconds.count == 0) {
      PrintUntimed(out, row.Name(), 38, row.verdict);
      continue;
    }
    std::array<char, 240> text;
    std::snprintf(text.data(), text.size(),
                  "%-38s  %9.4f  %10.4f  %10.4f  %6.1f  %5.1f %%  %9.1e\n", row.Name().c_str(),
                  row.seconds.median * 1e3, row.seconds.p10 * 1e3, row.seconds.p90 * 1e3,
                  row.Gbps(), 100 * row.fraction_of_read, row.verdict.max_error);
    out << text.data();
  }
  out << "GB/s: bytes of the cache over time; of read: over the stream-read rate\n";
}

nlohmann::json ToJson(const DecodeReport& report) {
  nlohmann::json object = ContextJson(report.context);
  object["schema"] = "heed-bench-decode";
  nlohmann::json& rows = object["rows"] = nlohmann::json::array();
  for (const DecodeRow& row : report.rows) {
    nlohmann::json entry = {{"case", row.Name()},
                            {"dtype", DTypeName(row.dtype)},
                            {"num_heads", row.heads.num_heads},
                            {"num_kv_heads", row.heads.num_kv_heads},
                            {"head_dim", row.head_dim},
                            {"length", row.length},
                            {"threads", row.threads},
                            {"max_error", row.verdict.max_error},
                            {"error_bound", row.verdict.bound},
                            {"bytes", row.bytes},
                            {"status", row.verdict.Passed() ? "verified" : "wrong"}};
    if (row.seconds.count > 0) {
      entry["status"] = "timed";
      entry["ms"] = TimesJson(row.seconds);
      entry["reps"] = row.seconds.count;
      entry["gbps"] = row.Gbps();
      entry["fraction_of_read"] = row.fraction_of_read;
    }
    rows.push_back(std::move(entry));
  }
  return object;
}

}  // namespace heed::bench
