#include "native_bench/verify.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "heed/attention.h"
#include "heed/reference.h"
#include "heed/registry.h"

namespace heed::bench {
namespace {

// Problems up to this many multiply-adds go through the oracle whole (well under a second).
constexpr double kWholeFlops = 2e8;

const std::vector<double>& Output(const std::vector<reference::Result>& results) {
  const auto found = std::find_if(results.begin(), results.end(),
                                  [](const auto& result) { return result.name == "output"; });
  if (found == results.end()) {
    throw Error(ErrorCode::kUnsupported, "the oracle gave no result named 'output'");
  }
  return found->values;
}

double LargestMagnitude(TensorView<const float> view) {
  double largest = 0;
  for (int64_t i = 0; i < view.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(view.data[i])));
  }
  return largest;
}

TensorView<const float> OneHead(TensorView<const float> view, int64_t batch, int64_t head) {
  view.data = &view(batch, head, 0, 0);
  view.shape[0] = view.shape[1] = 1;
  return view;
}

TensorView<const float> OneRow(TensorView<const float> view, int64_t batch, int64_t head,
                               int64_t i) {
  view.data = &view(batch, head, i, 0);
  view.shape[0] = view.shape[1] = view.shape[2] = 1;
  return view;
}

// The problem of one query alone, which sees what it saw among the others.
Request RowRequest(const Problem& problem, int64_t batch, int64_t head, int64_t query) {
  const Heads& heads = problem.shape().heads;
  const int64_t kv_head = head / (heads.num_heads / heads.num_kv_heads);
  Request request = problem.request();
  for (NamedTensor& input : request.inputs) {
    if (input.name == "q") input.tensor = AsAnyTensor(OneRow(problem.q(), batch, head, query));
    if (input.name == "k") input.tensor = AsAnyTensor(OneHead(problem.k(), batch, kv_head));
    if (input.name == "v") input.tensor = AsAnyTensor(OneHead(problem.v(), batch, kv_head));
  }
  for (NamedParam& param : request.params) {
    if (param.name == "query_offset") {
      param.value = static_cast<double>(problem.query_offset() + query);
    }
  }
  return request;
}

// A NaN is a wrong answer, not a missing one.
double Difference(float actual, double expected) {
  const double difference = std::abs(static_cast<double>(actual) - expected);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

}  // namespace

double MaxError(std::string_view mechanism) {
  const Mechanism* row = FindMechanism(mechanism);
  if (row != nullptr && row->family == "exact") return kAttentionMaxError;
  throw Error(ErrorCode::kUnsupported,
              "heed-bench knows no accuracy bound for '" + std::string(mechanism) + "'");
}

std::vector<int64_t> SpreadQueries(int64_t q_len, int64_t count) {
  if (count >= q_len) count = q_len;
  std::vector<int64_t> queries;
  for (int64_t n = 0; n < count; ++n) {
    queries.push_back(count == 1 ? 0 : n * (q_len - 1) / (count - 1));
  }
  return queries;
}

Oracle::Oracle(const Problem& problem)
    : bound_(MaxError(problem.shape().mechanism) * LargestMagnitude(problem.v())) {
  if (FlopCount(problem.shape()) <= kWholeFlops) {
    AddAllRows(problem);
  } else if (FindMechanism(problem.shape().mechanism)->family == "exact") {
    AddSampledRows(problem);
  }
}

void Oracle::AddAllRows(const Problem& problem) {
  const std::vector<reference::Result> results = reference::Run(problem.request());
  const double* values = Output(results).data();
  const auto [batch, num_heads, q_len, head_dim] = problem.output().shape;
  for (int64_t row = 0; row < batch * num_heads * q_len; ++row, values += head_dim) {
    rows_.push_back({row / q_len / num_heads, row / q_len % num_heads, row % q_len,
                     std::vector<double>(values, values + head_dim)});
  }
}

void Oracle::AddSampledRows(const Problem& problem) {
  const auto [batch, num_heads, q_len, head_dim] = problem.output().shape;
  const int64_t per_head = std::max<int64_t>(2, kMostRows / (batch * num_heads));
  for (int64_t head = 0; head < batch * num_heads; ++head) {
    for (int64_t i : SpreadQueries(q_len, per_head)) {
      const Request request = RowRequest(problem, head / num_heads, head % num_heads, i);
      rows_.push_back({head / num_heads, head % num_heads, i, Output(reference::Run(request))});
    }
  }
}

Verdict Oracle::Compare(const Problem& problem) const {
  Verdict verdict;
  verdict.bound = bound_;
  verdict.rows = static_cast<int64_t>(rows_.size());
  const TensorView<float> output = problem.output();
  for (const Row& row : rows_) {
    for (size_t d = 0; d < row.values.size(); ++d) {
      const float actual = output(row.batch, row.head, row.query, static_cast<int64_t>(d));
      verdict.max_error = std::max(verdict.max_error, Difference(actual, row.values[d]));
    }
  }
  return verdict;
}

Verdict VerifySmall(const Peer& peer, const Case& c, uint64_t seed, ThreadPool& pool) {
  constexpr int64_t kSmallLength = 95;
  Case small = c;
  small.lengths.q_len = std::min(c.lengths.q_len, kSmallLength);
  small.lengths.kv_len = std::min(c.lengths.kv_len, kSmallLength);
  Problem problem(small, seed);
  problem.FillOutputWithNan();
  try {
    peer.prepare(problem, pool)();
  } catch (const std::exception& error) {
    return {.failure = error.what()};
  }
  return Oracle(problem).Compare(problem);
}

}  // namespace heed::bench
