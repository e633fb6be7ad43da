// Scaled dot-product attention: softmax(scale * Q K^T) V.
//
// Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1. Between the product and the softmax
// come, in this order: scale, softcap (Gemma 2, arXiv:2408.00118), bias, ALiBi (Press et al. 2021,
// arXiv:2108.12409) and the keep rules; sinks join the denominator.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "inputs.h"
#include "results.h"
#include "softmax.h"
#include "visibility.h"

namespace heed::reference::scaled_dot_product {
namespace {

struct Options {
  double scale;
  std::optional<double> softcap;
  std::optional<Array> bias;         // broadcasts to [batch, num_heads, q_len, kv_len]
  std::vector<double> alibi_slopes;  // [num_heads] or empty
  std::vector<double> sinks;         // [num_heads] or empty
};

double ReadScale(const Request& request, const Qkv& qkv) {
  const std::optional<double> scale = ReadNumber(request, "scale");
  if (scale) return *scale;
  if (qkv.head_dim == 0) {
    throw Error(ErrorCode::kShape, "head_dim is 0: 1/sqrt(head_dim) does not exist, give scale");
  }
  return 1.0 / std::sqrt(static_cast<double>(qkv.head_dim));
}

std::vector<double> ReadPerHead(const Request& request, const char* name, const Qkv& qkv) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return {};
  if (tensor->rank != 1 || tensor->shape[0] != qkv.num_heads) {
    throw Error(ErrorCode::kShape, Describe(name, *tensor) +
                                       ": expected one value per query head, " +
                                       std::to_string(qkv.num_heads));
  }
  return ReadList(request, name);
}

Options ReadOptions(const Request& request, const Qkv& qkv) {
  Options options{.scale = ReadScale(request, qkv),
                  .softcap = ReadNumber(request, "softcap"),
                  .bias = ReadPairs(request, "bias", qkv, DType::kFloat32),
                  .alibi_slopes = ReadPerHead(request, "alibi_slopes", qkv),
                  .sinks = ReadPerHead(request, "sinks", qkv)};
  if (options.softcap && *options.softcap <= 0.0) {
    throw Error(ErrorCode::kRange,
                "softcap is " + std::to_string(*options.softcap) + ": it must be greater than 0");
  }
  for (const double slope : options.alibi_slopes) {
    if (!std::isfinite(slope)) throw Error(ErrorCode::kRange, "alibi_slopes must be finite");
  }
  for (const double sink : options.sinks) {
    if (!std::isfinite(sink) && sink != kMinusInfinity) {
      throw Error(ErrorCode::kRange, "sinks must be finite or -inf");
    }
  }
  return options;
}

double Dot(std::span<const double> q, std::span<const double> k) {
  double sum = 0.0;
  for (size_t d = 0; d < q.size(); ++d) sum += q[d] * k[d];
  return sum;
}

// Fills the scores of query i of head h. The products of keys that are not seen are spared unless
// the caller returns scores.
void Score(const Qkv& qkv, const Options& options, const Visibility& visible, bool all_pairs,
           int64_t b, int64_t h, int64_t i, ScoreRow& row) {
  for (int64_t j = 0; j < qkv.kv_len; ++j) {
    const double bias = options.bias ? (*options.bias)(b, h, i, j) : 0.0;
    const bool kept = visible(b, h, i, j) && bias != kMinusInfinity;
    row.biased[j] = kMinusInfinity;
    if (!kept && !all_pairs) continue;

    row.raw[j] = options.scale * Dot(qkv.q.Row(b, h, i), qkv.k.Row(b, qkv.KvHead(h), j));
    row.capped[j] =
        options.softcap ? *options.softcap * std::tanh(row.raw[j] / *options.softcap) : row.raw[j];
    if (!kept) continue;

    row.biased[j] = row.capped[j] + bias;
    if (options.alibi_slopes.empty()) continue;
    const double distance = std::abs(static_cast<double>(visible.Position(b, i) - j));
    row.biased[j] -= options.alibi_slopes[h] * distance;
  }
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const Visibility visible(request, qkv);
  const Options options = ReadOptions(request, qkv);
  ExactResults results(request, qkv);

  ScoreRow scores(qkv.kv_len);
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t h = 0; h < qkv.num_heads; ++h) {
      const double sink = options.sinks.empty() ? kMinusInfinity : options.sinks[h];
      for (int64_t i = 0; i < qkv.q_len; ++i) {
        Score(qkv, options, visible, results.wants_scores(), b, h, i, scores);
        std::vector<double> weights = scores.biased;
        const double lse = Softmax(weights, sink);
        results.SetRow(b, h, i, scores, weights, lse);
      }
    }
  }
  return results.Take();
}

}  // namespace heed::reference::scaled_dot_product
