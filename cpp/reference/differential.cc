// Differential attention: (softmax(q1 k1^T) - lambda softmax(q2 k2^T)) v, RMS-normalised per head.
//
// Source: Ye et al. 2024, arXiv:2410.05258, section 2.1, equations 1 to 3.
#include <cmath>
#include <string>
#include <vector>

#include "inner.h"
#include "inputs.h"

namespace heed::reference::differential {
namespace {

struct Options {
  std::vector<double> lambda;  // per head
  double lambda_init;
  double epsilon;
  bool normalise;
  std::vector<double> weight;  // per dimension of v
};

// `count` numbers; `absent` for each when the input is not there.
std::vector<double> ReadNumbers(const Request& request, const char* name, int64_t count,
                                double absent) {
  std::vector<double> values = ReadList(request, name);
  if (FindInput(request, name) == nullptr) values = std::vector(count, absent);
  if (static_cast<int64_t>(values.size()) != count) {
    throw Error(ErrorCode::kShape, std::string(name) + " has " + std::to_string(values.size()) +
                                       " values: expected " + std::to_string(count));
  }
  for (const double value : values) {
    if (!std::isfinite(value)) {
      throw Error(ErrorCode::kRange, std::string(name) + " must be finite");
    }
  }
  return values;
}

Options ReadOptions(const Request& request, const Qkv& qkv) {
  Options o;
  o.lambda_init = ReadNumber(request, "lambda_init").value_or(0.8);
  if (o.lambda_init < 0.0 || o.lambda_init > 1.0) {
    throw Error(ErrorCode::kRange, "lambda_init must lie in [0, 1]");
  }
  const AnyTensor* lambda = FindInput(request, "lambda");
  const bool shared = lambda != nullptr && ReadList(request, "lambda").size() == 1;
  o.lambda = ReadNumbers(request, "lambda", shared ? 1 : qkv.num_heads, o.lambda_init);
  if (shared) o.lambda = std::vector(qkv.num_heads, o.lambda[0]);
  o.epsilon = ReadNumber(request, "epsilon").value_or(1e-5);
  if (o.epsilon <= 0.0) throw Error(ErrorCode::kRange, "epsilon must be greater than 0");
  o.normalise = ReadWord(request, "sub_norm", {"rms", "none"}).value_or("rms") == "rms";
  o.weight = ReadNumbers(request, "norm_weight", qkv.head_dim_v, 1.0);
  return o;
}

// The results of one of the two maps.
std::vector<Result> RunMap(const Request& request, const Qkv& qkv, int64_t half) {
  const int64_t width = qkv.head_dim / 2;
  InnerRequest map(request, "attention",
                   {"lambda", "lambda_init", "norm_weight", "epsilon", "sub_norm"});
  map.SetInput("q", Columns(qkv.q, half * width, width));
  map.SetInput("k", Columns(qkv.k, half * width, width));
  return map.RunAll();
}

void NormaliseRow(const Options& o, double* row, int64_t width) {
  double sum = 0.0;
  for (int64_t d = 0; d < width; ++d) sum += row[d] * row[d];
  const double rms = std::sqrt(sum / width + o.epsilon);
  for (int64_t d = 0; d < width; ++d) row[d] *= (1.0 - o.lambda_init) / rms * o.weight[d];
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  if (qkv.head_dim % 2 != 0) {
    throw Error(ErrorCode::kShape, "q: head_dim must be even, the halves are q1 and q2");
  }
  const Options o = ReadOptions(request, qkv);
  std::vector<Result> results = RunMap(request, qkv, 0);
  const std::vector<Result> second = RunMap(request, qkv, 1);
  for (size_t r = 0; r < results.size(); ++r) {
    const int64_t width = results[r].shape[3];
    for (size_t n = 0; n < results[r].values.size(); ++n) {
      const int64_t head = n / width / qkv.q_len % qkv.num_heads;
      results[r].values[n] -= o.lambda[head] * second[r].values[n];
    }
  }
  std::vector<double>& output = results[0].values;
  for (size_t n = 0; o.normalise && n < output.size(); n += qkv.head_dim_v) {
    NormaliseRow(o, &output[n], qkv.head_dim_v);
  }
  return results;
}

}  // namespace heed::reference::differential
