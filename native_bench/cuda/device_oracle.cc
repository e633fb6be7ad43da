#include "native_bench/cuda/device_oracle.h"

#include <algorithm>
#include <cmath>

#include "heed/reference.h"
#include "native_bench/accuracy.h"

namespace heed::bench {
namespace {

// The request of one query alone, which sees what it saw among the others.
std::vector<double> ReferenceRow(const Case& c, int64_t query, std::vector<float>& q,
                                 std::vector<float>& k, std::vector<float>& v) {
  const auto view = [](std::vector<float>& data, int64_t rows) {
    return AsAnyTensor(
        Contiguous<const float>(data.data(), 1, 1, rows, static_cast<int64_t>(data.size()) / rows));
  };
  Request request;
  request.id = c.mechanism;
  request.inputs = {
      {"q", view(q, 1)}, {"k", view(k, c.lengths.kv_len)}, {"v", view(v, c.lengths.kv_len)}};
  if (c.mask == Mask::kCausal) {
    const int64_t position = query + c.lengths.kv_len - c.lengths.q_len;
    request.params = {{"causal", true}, {"query_offset", static_cast<double>(position)}};
  }
  return OutputOf(reference::Run(request));
}

double LargestMagnitude(const std::vector<float>& data) {
  double largest = 0;
  for (const float x : data) largest = std::max(largest, std::abs(static_cast<double>(x)));
  return largest;
}

}  // namespace

DeviceOracle::DeviceOracle(const DeviceProblem& problem) {
  const Case& c = problem.shape();
  const int64_t group = c.heads.num_heads / c.heads.num_kv_heads;
  double largest = 0;
  for (const OutputRow& at : SampledRows(c)) {
    const int64_t kv_head = at.head / group;
    std::vector<float> q = problem.FetchRows(problem.input("q"), at.batch, at.head, at.query, 1);
    std::vector<float> k =
        problem.FetchRows(problem.input("k"), at.batch, kv_head, 0, c.lengths.kv_len);
    std::vector<float> v =
        problem.FetchRows(problem.input("v"), at.batch, kv_head, 0, c.lengths.kv_len);
    largest = std::max(largest, LargestMagnitude(v));
    rows_.push_back({at, ReferenceRow(c, at.query, q, k, v)});
  }
  bound_ = (AccuracyOf(c.mechanism).max_error + StorageAllowance(c.dtype)) * largest;
}

Verdict DeviceOracle::Compare(const DeviceProblem& problem) const {
  const StoredOutput output = problem.output();
  const StoredTensor read(output.data, output.dtype, output.shape, output.strides);
  Verdict verdict;
  verdict.bound = bound_;
  verdict.rows = static_cast<int64_t>(rows_.size());
  for (const Row& row : rows_) {
    const std::vector<float> actual =
        problem.FetchRows(read, row.at.batch, row.at.head, row.at.query, 1);
    for (size_t d = 0; d < actual.size(); ++d) {
      verdict.max_error = std::max(verdict.max_error, Difference(actual[d], row.values[d]));
    }
  }
  return verdict;
}

}  // namespace heed::bench
