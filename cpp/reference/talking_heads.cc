// Talking heads: softmax(mix(scale q k^T)) mixed again, times v.
//
// Source: Shazeer et al. 2020, arXiv:2003.02436, section 4: P_l before and P_w after the softmax.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "exact.h"
#include "inner.h"
#include "inputs.h"

namespace heed::reference::talking_heads {
namespace {

// [from head][to head]; the identity when it is absent.
std::vector<double> ReadMatrix(const Request& request, const char* name, int64_t heads) {
  std::vector<double> matrix(heads * heads);
  for (int64_t h = 0; h < heads; ++h) matrix[h * heads + h] = 1.0;
  const std::optional<Array> given = ReadFloats(request, name, 2);
  if (!given) return matrix;
  if (given->shape[2] != heads || given->shape[3] != heads) {
    throw Error(ErrorCode::kShape,
                Describe(name, *FindInput(request, name)) + ": expected [num_heads, num_heads]");
  }
  for (const double x : given->values) {
    if (!std::isfinite(x)) throw Error(ErrorCode::kRange, std::string(name) + " must be finite");
  }
  return given->values;
}

// pairs[b, h, i, j] = sum over g of matrix[g, h] pairs[b, g, i, j].
std::vector<double> Mix(const std::vector<double>& pairs, const std::vector<double>& matrix,
                        const Qkv& qkv) {
  std::vector<double> mixed(pairs.size());
  const int64_t heads = qkv.num_heads, cells = qkv.q_len * qkv.kv_len;
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t g = 0; g < heads; ++g) {
        for (int64_t cell = 0; cell < cells; ++cell) {
          mixed[(b * heads + h) * cells + cell] +=
              matrix[g * heads + h] * pairs[(b * heads + g) * cells + cell];
        }
      }
    }
  }
  return mixed;
}

// The raw scores of all pairs, before anything looks at their place or at their row.
std::vector<double> RawScores(const Request& request) {
  std::vector<std::string_view> others;
  for (const NamedTensor& input : request.inputs) {
    if (input.name != "q" && input.name != "k" && input.name != "v") others.push_back(input.name);
  }
  for (const NamedParam& param : request.params) {
    if (param.name != "scale") others.push_back(param.name);
  }
  InnerRequest inner(request, "attention", others);
  inner.SetParam("return_scores", std::string("raw"));
  return inner.Run("scores");
}

// What a key that some head keeps contributes to every mixed head.
void Aggregate(const Qkv& qkv, const std::vector<double>& scores,
               const std::vector<double>& weights, std::vector<double>& output) {
  const int64_t heads = qkv.num_heads;
  output.assign(qkv.batch * heads * qkv.q_len * qkv.head_dim_v, 0.0);
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t i = 0; i < qkv.q_len; ++i) {
      for (int64_t j = 0; j < qkv.kv_len; ++j) {
        bool kept = false;
        for (int64_t h = 0; h < heads; ++h) {
          const double s = scores[((b * heads + h) * qkv.q_len + i) * qkv.kv_len + j];
          kept = kept || !(std::isinf(s) && s < 0);
        }
        if (!kept) continue;
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t row = (b * heads + h) * qkv.q_len + i;
          const auto v = qkv.v.Row(b, qkv.KvHead(h), j);
          for (int64_t d = 0; d < qkv.head_dim_v; ++d) {
            output[row * qkv.head_dim_v + d] += weights[row * qkv.kv_len + j] * v[d];
          }
        }
      }
    }
  }
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const auto mix_scores = ReadMatrix(request, "mix_scores", qkv.num_heads);
  const auto mix_weights = ReadMatrix(request, "mix_weights", qkv.num_heads);
  const std::vector<double> mixed = Mix(RawScores(request), mix_scores, qkv);

  InnerRequest inner(request, "attention", {"mix_scores", "mix_weights"});
  inner.SetParam("return_weights", true);
  inner.SetParam("return_scores", std::string("biased"));
  const PairScore score = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return mixed[((b * qkv.num_heads + h) * qkv.q_len + i) * qkv.kv_len + j];
  };
  std::vector<Result> results =
      RunExact(inner.request(), qkv, score, SoftmaxNormalize(request, qkv));
  const std::vector<double> scores = Values(results, "scores");
  const std::vector<double> weights = Mix(Values(results, "weights"), mix_weights, qkv);
  Aggregate(qkv, scores, weights, results[0].values);
  const bool wants_weights = ReadFlag(request, "return_weights");
  for (Result& result : results) {
    if (result.name == "weights") result.values = weights;
  }
  std::erase_if(results, [&](const Result& result) {
    return result.name == "scores" || (result.name == "weights" && !wants_weights);
  });
  return results;
}

}  // namespace heed::reference::talking_heads
