#include "native_bench/row_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "heed/reference.h"
#include "native_bench/accuracy.h"
#include "native_bench/device_attention.h"
#include "native_bench/float8.h"

namespace heed::bench {
namespace {

// The request of one query alone, which sees what it saw among the others.
std::vector<double> ReferenceRow(const Case& c, const OutputRow& at, RowInputs& inputs) {
  const auto view = [](std::vector<float>& data, int64_t rows, int64_t dim) {
    return AsAnyTensor(Contiguous<const float>(data.data(), 1, 1, rows, dim));
  };
  Request request;
  request.id = c.mechanism;
  request.inputs = {{"q", view(inputs.q, 1, c.head_dim)},
                    {"k", view(inputs.k, c.KeyCount(), c.head_dim)},
                    {"v", view(inputs.v, c.KeyCount(), c.ValueDim())}};
  request.params = AttentionParamsOf(c, at.query);
  SocketArrays arrays = SocketArraysOf(c);
  const auto add = [&](const char* name, std::vector<float>& of_heads) {
    if (of_heads.empty()) return;
    float* own = of_heads.data() + at.head;
    request.inputs.push_back({name, ContiguousTensor(DType::kFloat32, own, {{1}})});
  };
  add("alibi_slopes", arrays.alibi_slopes);
  add("sinks", arrays.sinks);
  return OutputOf(reference::Run(request));
}

double LargestMagnitude(const std::vector<float>& data) {
  double largest = 0;
  for (const float x : data) largest = std::max(largest, std::abs(static_cast<double>(x)));
  return largest;
}

// The largest sum of the absolute terms of a score, over the keys that the query sees.
double LargestLogit(const Case& c, int64_t query, const RowInputs& inputs) {
  const bool causal = c.mask == Mask::kCausal;
  const int64_t seen = causal ? std::min(c.PositionOf(query) + 1, c.KeyCount()) : c.KeyCount();
  double largest = 0;
  for (int64_t j = 0; j < seen; ++j) {
    const float* key = inputs.k.data() + j * c.head_dim;
    double sum = 0;
    for (size_t d = 0; d < inputs.q.size(); ++d) {
      sum += std::abs(static_cast<double>(inputs.q[d]) * static_cast<double>(key[d]));
    }
    largest = std::max(largest, sum);
  }
  return largest / std::sqrt(static_cast<double>(c.head_dim));
}

// The root mean square of the error of a row over that of its result.
double SpreadOf(const std::vector<float>& actual, const std::vector<double>& expected) {
  double errors = 0, results = 0;
  for (size_t d = 0; d < expected.size(); ++d) {
    const double error = Difference(actual[d], expected[d]);
    errors += error * error;
    results += expected[d] * expected[d];
  }
  return errors == 0 ? 0 : std::sqrt(errors / results);
}

std::string SpreadFailure(double spread) {
  char text[128];
  std::snprintf(text, sizeof(text),
                "the error of a row is %.3g of its result, as root mean squares; float8 may have "
                "%.3g",
                spread, kFloat8Spread);
  return text;
}

}  // namespace

std::vector<OutputRow> AllRows(const Case& c) {
  std::vector<OutputRow> rows;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads.num_heads; ++h) {
      for (int64_t i = 0; i < c.lengths.q_len; ++i) rows.push_back({b, h, i});
    }
  }
  return rows;
}

RowOracle::RowOracle(const Case& c, const std::vector<OutputRow>& rows,
                     const std::function<RowInputs(const OutputRow&)>& fetch)
    : case_(c) {
  const bool is_float8 = c.dtype == DType::kFloat8E4M3;
  double largest = 0, largest_logit = 0;
  for (const OutputRow& at : rows) {
    RowInputs inputs = fetch(at);
    largest = std::max(largest, LargestMagnitude(inputs.v));
    if (is_float8) largest_logit = std::max(largest_logit, LargestLogit(c, at.query, inputs));
    rows_.push_back({at, ReferenceRow(c, at, inputs)});
  }
  const double allowance = is_float8 ? Float8Allowance(c.lengths.kv_len, largest_logit) : 0;
  bound_ =
      (AccuracyOf(c.mechanism).max_error + StorageAllowance(c.OutputDType()) + allowance) * largest;
}

Verdict RowOracle::Compare(const std::function<std::vector<float>(const OutputRow&)>& fetch) const {
  Verdict verdict;
  verdict.bound = bound_;
  verdict.rows = static_cast<int64_t>(rows_.size());
  double spread = 0;
  for (const Row& row : rows_) {
    const std::vector<float> actual = fetch(row.at);
    for (size_t d = 0; d < actual.size(); ++d) {
      verdict.max_error = std::max(verdict.max_error, Difference(actual[d], row.values[d]));
    }
    spread = std::max(spread, SpreadOf(actual, row.values));
  }
  const bool is_spread = case_.dtype == DType::kFloat8E4M3 &&
                         case_.ValueDim() >= kFloat8SpreadColumns && spread > kFloat8Spread;
  if (is_spread && verdict.Passed()) verdict.failure = SpreadFailure(spread);
  return verdict;
}

}  // namespace heed::bench
