#include "native_bench/verify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <iomanip>
#include <limits>
#include <thread>
#include <utility>

#include "heed/attention.h"
#include "heed/reference.h"
#include "heed/registry.h"
#include "native_bench/accuracy.h"
#include "native_bench/words.h"

namespace heed::bench {
namespace {

// Problems up to this many multiply-adds go through the oracle whole (well under a second).
constexpr double kWholeFlops = 2e8;

template <typename T>
double LargestMagnitude(const T* data, int64_t size) {
  double largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(data[i])));
  }
  return largest;
}

double LargestValue(const Problem& problem) {
  const OwnedTensor* values = problem.input("v");
  if (values == nullptr) values = problem.input("memory_v");
  if (values == nullptr) {
    throw Error(ErrorCode::kUnsupported, problem.shape().mechanism + " has no values");
  }
  return LargestMagnitude(values->floats(), values->size());
}

// Rows of exact attention to q, k and v alone, but for sinks, without a pattern of positions.
bool RowsAreIndependent(const Problem& problem) {
  const Mechanism& mechanism = *FindMechanism(problem.shape().mechanism);
  const auto& inputs = problem.request().inputs;
  const bool only_qkv = std::all_of(inputs.begin(), inputs.end(), [](const NamedTensor& input) {
    return input.name == "q" || input.name == "k" || input.name == "v" || input.name == "sinks";
  });
  return mechanism.family == "exact" && mechanism.cost == "quadratic" && only_qkv;
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
  Request request = problem.widened();
  for (NamedTensor& input : request.inputs) {
    if (input.name == "sinks") {
      input.tensor.data = static_cast<float*>(input.tensor.data) + head;
      input.tensor.shape[0] = 1;
    }
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

// Recurrent attention to q, k and v whose columns of values never meet: what learns has norms over
// them.
bool ColumnsAreIndependent(const Problem& problem) {
  const Mechanism& mechanism = *FindMechanism(problem.shape().mechanism);
  return mechanism.family == "recurrent" && problem.input("v") != nullptr &&
         !HasWord(mechanism.params, "mini_batch");
}

// What is left of a dimension when only its ends are.
void KeepEnds(AnyTensor& tensor, size_t dimension) {
  if (tensor.shape[dimension] < 3) return;
  tensor.strides[dimension] *= tensor.shape[dimension] - 1;
  tensor.shape[dimension] = 2;
}

// Into how many parts the heads can be cut. Decays that are not given follow from the place of a
// head among all of them: then they stay together. Else each KV head is one, with its query heads.
int64_t SeparateHeads(const Problem& problem) {
  const Mechanism& mechanism = *FindMechanism(problem.shape().mechanism);
  const bool derives =
      HasWord(mechanism.inputs, "head_log_decay?") && problem.input("head_log_decay") == nullptr;
  return derives ? 1 : problem.shape().heads.num_kv_heads;
}

// The problem of one batch entry and of one of so many equal parts of the heads, and of the first
// and the last column of v.
Request ColumnRequest(const Problem& problem, int64_t entry, int64_t part, int64_t parts) {
  Request request = problem.widened();
  for (NamedTensor& input : request.inputs) {
    AnyTensor& tensor = input.tensor;
    const auto take = [&](size_t axis, int64_t begin, int64_t count) {
      if (tensor.shape[axis] == 1) return;  // for all
      tensor.data = static_cast<float*>(tensor.data) + begin * tensor.strides[axis];
      tensor.shape[axis] = count;
    };
    const auto symbols = SplitWords(FindInput(input.name).shape);
    for (size_t axis = 0; axis < static_cast<size_t>(tensor.rank); ++axis) {
      const int64_t count = tensor.shape[axis] / parts;
      if (symbols[axis] == "batch") take(axis, entry, 1);
      if (symbols[axis] == "num_heads" || symbols[axis] == "num_kv_heads") {
        take(axis, part * count, count);
      }
    }
    if (input.name == "v") KeepEnds(tensor, 3);
  }
  return request;
}

// Calls `body(n)` for every n below `count` on all processors; throws what a call has thrown.
template <class Body>
void ForEach(int64_t count, const Body& body) {
  const int64_t processors = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::exception_ptr> failures(static_cast<size_t>(count));
  const auto pool = MakeThreadPool(static_cast<int>(std::min(count, processors)));
  pool->Run(count, [&](int64_t n, int) {
    try {
      body(n);
    } catch (...) {
      failures[static_cast<size_t>(n)] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// What a bound that is relative to results is multiplied by.
double ResultSize(const std::vector<double>& values) {
  return std::max(1.0, LargestMagnitude(values.data(), static_cast<int64_t>(values.size())));
}

}  // namespace

std::vector<int64_t> SpreadQueries(int64_t q_len, int64_t count) {
  if (count >= q_len) count = q_len;
  std::vector<int64_t> queries;
  for (int64_t n = 0; n < count; ++n) {
    queries.push_back(count == 1 ? 0 : n * (q_len - 1) / (count - 1));
  }
  return queries;
}

const std::vector<double>& OutputOf(const std::vector<reference::Result>& results) {
  const auto found = std::find_if(results.begin(), results.end(),
                                  [](const auto& result) { return result.name == "output"; });
  if (found == results.end()) {
    throw Error(ErrorCode::kUnsupported, "the oracle gave no result named 'output'");
  }
  return found->values;
}

std::vector<OutputRow> SampledRows(const Case& c) {
  constexpr int64_t kKeys = int64_t{1} << 19;  // of all rows together, about
  const int64_t rows = std::clamp<int64_t>(kKeys / std::max<int64_t>(1, c.lengths.kv_len), 8, 32);
  const int64_t all = c.batch * c.heads.num_heads * c.lengths.q_len;
  std::vector<OutputRow> sampled;
  for (int64_t at : SpreadQueries(all, rows)) {
    const int64_t head = at / c.lengths.q_len;
    sampled.push_back({head / c.heads.num_heads, head % c.heads.num_heads, at % c.lengths.q_len});
  }
  return sampled;
}

double Difference(float actual, double expected) {
  const double difference = std::abs(static_cast<double>(actual) - expected);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

double StorageAllowance(DType dtype) {
  // A program may keep its weights in that type too, not only its output.
  if (dtype == DType::kFloat16) return 4 * kFloat16Rounding;
  return dtype == DType::kBFloat16 ? 4 * kBFloat16Rounding : 0;
}

Oracle::Oracle(const Problem& problem) {
  const Accuracy accuracy = AccuracyOf(problem.shape().mechanism);
  const double allowance = StorageAllowance(problem.stored_output().any().dtype);
  const double relative = accuracy.max_error + allowance;
  const bool whole = FlopCount(problem.shape()) <= kWholeFlops;
  if (!whole && ColumnsAreIndependent(problem)) {
    AddColumns(problem);
    for (Line& line : lines_) line.bound = relative * ResultSize(line.values);
    return;
  }
  if (whole) {
    AddAllRows(problem);
  } else if (RowsAreIndependent(problem)) {
    AddSampledRows(problem);
  }
  bound_ = relative * SizeOf(problem, accuracy.relative_to);
  for (Line& line : lines_) line.bound = bound_;
}

// What the accuracy is relative to.
double Oracle::SizeOf(const Problem& problem, RelativeTo relative_to) const {
  const Case& c = problem.shape();
  switch (relative_to) {
    case RelativeTo::kValues:
      return LargestValue(problem);
    case RelativeTo::kUnscaled:
      return LargestValue(problem) * std::max(1.0, static_cast<double>(c.head_dim) / 16);
    case RelativeTo::kNormedValues:
      return LargestValue(problem) * std::sqrt(static_cast<double>(c.lengths.kv_len));
    case RelativeTo::kResults:
      break;
  }
  double size = 1;
  for (const Line& line : lines_) size = std::max(size, ResultSize(line.values));
  return size;
}

void Oracle::AddAllRows(const Problem& problem) {
  const std::vector<reference::Result> results = reference::Run(problem.widened());
  const std::vector<double>& values = OutputOf(results);
  const std::vector<int64_t>& shape = problem.stored_output().shape();
  const int64_t width = std::max<int64_t>(1, shape.empty() ? 1 : shape.back());
  for (int64_t begin = 0; begin < static_cast<int64_t>(values.size()); begin += width) {
    const auto first = values.begin() + begin;
    lines_.push_back({begin, 1, std::vector<double>(first, first + width)});
  }
  rows_ = static_cast<int64_t>(lines_.size());
}

void Oracle::AddSampledRows(const Problem& problem) {
  const std::vector<int64_t>& shape = problem.stored_output().shape();
  const int64_t batch = shape[0], num_heads = shape[1], q_len = shape[2], width = shape[3];
  const int64_t per_head = std::max<int64_t>(2, kMostRows / (batch * num_heads));
  for (int64_t head = 0; head < batch * num_heads; ++head) {
    for (int64_t i : SpreadQueries(q_len, per_head)) {
      const Request request = RowRequest(problem, head / num_heads, head % num_heads, i);
      lines_.push_back({(head * q_len + i) * width, 1, OutputOf(reference::Run(request))});
    }
  }
  rows_ = static_cast<int64_t>(lines_.size());
}

void Oracle::AddColumns(const Problem& problem) {
  const std::vector<int64_t>& shape = problem.stored_output().shape();
  const int64_t batch = shape[0], num_heads = shape[1], q_len = shape[2], width = shape[3];
  const std::vector<int64_t> entries = SpreadQueries(batch, 2), columns = SpreadQueries(width, 2);
  const int64_t parts = SeparateHeads(problem), num_entries = static_cast<int64_t>(entries.size());
  std::vector<std::vector<double>> values(static_cast<size_t>(num_entries * parts));
  ForEach(num_entries * parts, [&](int64_t n) {
    const int64_t entry = entries[static_cast<size_t>(n / parts)];
    const Request request = ColumnRequest(problem, entry, n % parts, parts);
    values[static_cast<size_t>(n)] = OutputOf(reference::Run(request));
  });
  rows_ = num_entries * num_heads * q_len;
  const int64_t taken = static_cast<int64_t>(columns.size()), heads = num_heads / parts;
  for (int64_t n = 0; n < num_entries * num_heads; ++n) {  // a head
    const double* head = values[static_cast<size_t>(n / heads)].data() + n % heads * q_len * taken;
    const int64_t entry = entries[static_cast<size_t>(n / num_heads)];
    const int64_t begin = (entry * num_heads + n % num_heads) * q_len * width;
    for (int64_t c = 0; c < taken; ++c) {
      Line line = {begin + columns[static_cast<size_t>(c)], width, {}};
      for (int64_t i = 0; i < q_len; ++i) line.values.push_back(head[i * taken + c]);
      lines_.push_back(std::move(line));
    }
  }
}

Verdict Oracle::Compare(const Problem& problem) const {
  Verdict verdict;
  verdict.bound = bound_;
  verdict.rows = rows_;
  double worst = -1;  // error over bound
  for (const Line& line : lines_) {
    double error = 0;
    for (size_t n = 0; n < line.values.size(); ++n) {
      const float actual = problem.OutputAt(line.begin + static_cast<int64_t>(n) * line.stride);
      error = std::max(error, Difference(actual, line.values[n]));
    }
    if (error <= worst * line.bound) continue;
    worst = line.bound > 0 ? error / line.bound : error;
    verdict.max_error = error;
    verdict.bound = line.bound;
  }
  return verdict;
}

Case SmallCaseOf(const Case& c) {
  constexpr int64_t kSmallLength = 95;
  Case small = c;
  small.lengths.q_len = std::min(c.lengths.q_len, kSmallLength);
  small.lengths.kv_len = std::min(c.lengths.kv_len, kSmallLength);
  // A window, a cap and a length of its own, so that they change something here too.
  if (c.window_left.has_value()) small.window_left = std::min(*c.window_left, kSmallLength / 4);
  if (c.softcap.has_value()) small.softcap = std::min(*c.softcap, 0.5);
  if (c.key_length.has_value()) small.key_length = std::min(*c.key_length, kSmallLength * 3 / 4);
  return small;
}

Verdict VerifySmall(const Peer& peer, const Case& c, uint64_t seed, ThreadPool& pool) {
  try {
    Problem problem(SmallCaseOf(c), seed);
    problem.FillOutputWithNan();
    peer.prepare(problem, pool)();
    return Oracle(problem).Compare(problem);
  } catch (const std::exception& error) {
    return {.failure = error.what()};
  }
}

void PrintUntimed(std::ostream& out, const std::string& name, int width, const Verdict& verdict) {
  std::array<char, 80> numbers;
  std::snprintf(numbers.data(), numbers.size(), "%s, max error %.1e, bound %.1e",
                verdict.Passed() ? "verified" : "WRONG", verdict.max_error, verdict.bound);
  out << std::left << std::setw(width) << name << std::right << "  " << numbers.data() << " "
      << verdict.failure << "\n";
}

}  // namespace heed::bench
