#include "exact.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "dropout.h"
#include "formula.h"
#include "results.h"
#include "softmax.h"
#include "visibility.h"

namespace heed::reference {
namespace {

struct Modifiers {
  std::optional<double> softcap;
  std::optional<Array> bias;                // broadcasts to [batch, num_heads, q_len, kv_len]
  std::vector<double> alibi_slopes;         // [num_heads] or empty
  std::optional<Array> distance_bias = {};  // [1, 1, num_heads or 1, 2 m + 1]
  std::optional<Array> bucket_bias = {};    // [1, 1, num_buckets, num_heads]
  bool bidirectional = true;
  int64_t bucket_max_distance = 128;
  std::optional<Array> log_gates = {};  // broadcasts to [1, batch, num_heads, kv_len]
  std::optional<Formula> score_mod;
  std::optional<Formula> prob_mod;
};

// A tensor of `least` to `most` extents that pass a test; its extents become the last ones.
std::optional<Array> ReadBiases(const Request& request, const char* name, int least, int most,
                                const std::function<bool(const Array&)>& fits) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return std::nullopt;
  Array array = ReadArray(request, name);
  if (tensor->rank < least || tensor->rank > most || !fits(array)) {
    throw Error(ErrorCode::kShape, Describe(name, *tensor) + ": its extents do not fit");
  }
  return array;
}

void ReadDistances(const Request& request, const Qkv& qkv, Modifiers& m) {
  const auto one_or = [](int64_t extent, int64_t full) { return extent == 1 || extent == full; };
  m.distance_bias = ReadBiases(request, "distance_bias", 1, 2, [&](const Array& a) {
    return one_or(a.shape[2], qkv.num_heads) && a.shape[3] % 2 == 1;
  });
  m.bucket_bias = ReadBiases(request, "bucket_bias", 2, 2,
                             [&](const Array& a) { return a.shape[3] == qkv.num_heads; });
  m.log_gates = ReadBiases(request, "log_gates", 3, 3, [&](const Array& a) {
    return one_or(a.shape[1], qkv.batch) && one_or(a.shape[2], qkv.num_heads) &&
           a.shape[3] == qkv.kv_len;
  });
  m.bidirectional = ReadWord(request, "bucket_direction", {"bidirectional", "causal"}) != "causal";
  m.bucket_max_distance = ReadCount(request, "bucket_max_distance").value_or(128);
  const int64_t buckets = m.bucket_bias ? m.bucket_bias->shape[2] : 4;
  if (buckets < (m.bidirectional ? 4 : 2) || (m.bidirectional && buckets % 2 != 0) ||
      (m.bucket_bias && m.bucket_max_distance <= buckets / (m.bidirectional ? 4 : 2))) {
    throw Error(ErrorCode::kRange, "bucket_bias: too few buckets, or too small a largest distance");
  }
  if (m.log_gates && request.id != "forgetting" && !ReadFlag(request, "causal")) {
    throw Error(ErrorCode::kOption, "log_gates needs causal");
  }
}

Modifiers ReadModifiers(const Request& request, const Qkv& qkv) {
  Modifiers modifiers{.softcap = ReadNumber(request, "softcap"),
                      .bias = ReadPairs(request, "bias", qkv, DType::kFloat32),
                      .alibi_slopes = ReadPerHead(request, "alibi_slopes", qkv),
                      .score_mod = ReadFormula(request, "score_mod", "score"),
                      .prob_mod = ReadFormula(request, "prob_mod", "prob")};
  if (modifiers.softcap && *modifiers.softcap <= 0.0) {
    throw Error(ErrorCode::kRange,
                "softcap is " + std::to_string(*modifiers.softcap) + ": it must be greater than 0");
  }
  ReadDistances(request, qkv, modifiers);
  for (const double slope : modifiers.alibi_slopes) {
    if (!std::isfinite(slope)) throw Error(ErrorCode::kRange, "alibi_slopes must be finite");
  }
  return modifiers;
}

// T5's bucket of a distance, key minus query.
int64_t Bucket(const Modifiers& m, int64_t distance) {
  const int64_t all = m.bucket_bias->shape[2];
  const int64_t buckets = m.bidirectional ? all / 2 : all;
  const int64_t side = m.bidirectional && distance > 0 ? buckets : 0;
  const int64_t size = m.bidirectional ? std::abs(distance) : std::max<int64_t>(0, -distance);
  const int64_t exact = buckets / 2;
  if (size < exact) return side + size;
  const double e = static_cast<double>(exact);
  const double share = std::log(size / e) / std::log(m.bucket_max_distance / e);
  // A distance on the bound of a bucket belongs to the upper one, whatever logarithms round to.
  const int64_t bucket = exact + static_cast<int64_t>(share * (buckets - exact) + 1e-9);
  return side + std::min(bucket, buckets - 1);
}

// Below it a gate counts as 0.
constexpr double kClosedGate = -1e5;

// The sum of the log gates of tokens after j, up to the query, as far as they exist.
double SumOfGates(const Modifiers& m, const Visibility& visible, const RowPlace& at, int64_t j) {
  const int64_t end = std::min(visible.Position(at.b, at.i) + 1, visible.Length(at.b, at.i));
  double sum = 0.0;
  for (int64_t l = j + 1; l < end; ++l) {
    const double gate = (*m.log_gates)(0, at.b, at.h, l);
    sum += gate < kClosedGate ? kMinusInfinity : gate;
  }
  return sum;
}

// Everything that depends on positions alone, and the dense bias.
double BiasOf(const Modifiers& m, const Visibility& visible, const RowPlace& at, int64_t j) {
  const auto [b, h, i] = at;
  const int64_t distance = j - visible.Position(b, i);
  double bias = m.bias ? (*m.bias)(b, h, i, j) : 0.0;
  if (bias == kMinusInfinity) return bias;  // hidden, whatever the others are
  if (!m.alibi_slopes.empty()) {
    bias -= m.alibi_slopes[h] * std::abs(static_cast<double>(distance));
  }
  if (m.distance_bias) {
    const int64_t most = m.distance_bias->shape[3] / 2;
    bias += (*m.distance_bias)(0, 0, h, most + std::clamp(distance, -most, most));
  }
  if (m.bucket_bias) bias += (*m.bucket_bias)(0, 0, Bucket(m, distance), h);
  if (m.log_gates && visible(b, h, i, j)) bias += SumOfGates(m, visible, at, j);
  return bias;
}

// Fills the scores of a row. Pairs that are not seen are spared unless the caller returns scores.
void ScoreOneRow(const Qkv& qkv, const PairScore& score, const Modifiers& modifiers,
                 const Visibility& visible, bool all_pairs, const RowPlace& at, ScoreRow& row) {
  const auto [b, h, i] = at;
  for (int64_t j = 0; j < qkv.kv_len; ++j) {
    const double bias = BiasOf(modifiers, visible, at, j);
    const bool kept = visible(b, h, i, j) && bias != kMinusInfinity;
    row.biased[j] = kMinusInfinity;
    if (!kept && !all_pairs) continue;

    row.raw[j] = score(b, h, i, j);
    row.capped[j] = modifiers.softcap
                        ? *modifiers.softcap * std::tanh(row.raw[j] / *modifiers.softcap)
                        : row.raw[j];
    if (!kept) continue;

    row.biased[j] = row.capped[j] + bias;
    const int64_t position = visible.Position(b, i);
    if (modifiers.score_mod) {
      row.biased[j] = (*modifiers.score_mod)({row.biased[j], b, h, i, j, position});
    }
  }
}

// The user's function on the weights of visible keys; a key that is left out stays out.
void ModifyWeights(const Formula& formula, const Visibility& visible, const RowPlace& at,
                   const ScoreRow& scores, std::vector<double>& weights) {
  for (size_t j = 0; j < weights.size(); ++j) {
    if (scores.biased[j] == kMinusInfinity || weights[j] == kMinusInfinity) continue;
    const int64_t key = static_cast<int64_t>(j);
    weights[j] = formula({weights[j], at.b, at.h, at.i, key, visible.Position(at.b, at.i)});
  }
}

}  // namespace

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

double ReadScale(const Request& request, const Qkv& qkv) {
  const std::optional<double> scale = ReadNumber(request, "scale");
  if (scale) return *scale;
  if (qkv.head_dim == 0) {
    throw Error(ErrorCode::kShape, "head_dim is 0: 1/sqrt(head_dim) does not exist, give scale");
  }
  return 1.0 / std::sqrt(static_cast<double>(qkv.head_dim));
}

std::vector<double> ReadPositive(const Request& request, const std::string& name) {
  const bool input = FindInput(request, name) != nullptr;
  const ParamValue* param = FindParam(request, name);
  if (!input && param == nullptr) return {};
  if (input && param != nullptr) {
    throw Error(ErrorCode::kOption, name + " is given as an input and as a parameter: give one");
  }
  std::vector<double> values = ReadList(request, name);
  if (param != nullptr) {
    const auto* list = std::get_if<std::vector<double>>(param);
    values = list != nullptr ? *list : std::vector<double>{*ReadNumber(request, name)};
  }
  if (values.empty()) throw Error(ErrorCode::kShape, name + " has 0 values");
  for (const double value : values) {
    if (!(value > 0.0) || !std::isfinite(value)) {
      throw Error(ErrorCode::kRange, name + " has a value of " + std::to_string(value) +
                                         ": each must be > 0 and finite");
    }
  }
  return values;
}

void RefuseDenominator(const Request& request, const char* normalize) {
  for (const char* name : {"return_lse", "sinks"}) {
    const bool given = name == std::string("sinks") ? FindInput(request, name) != nullptr
                                                    : ReadFlag(request, name);
    if (!given) continue;
    throw Error(ErrorCode::kUnsupported, std::string(name) + " with normalize \"" + normalize +
                                             "\": it has no softmax denominator");
  }
}

std::vector<double> ReadSinks(const Request& request, const Qkv& qkv) {
  std::vector<double> sinks = ReadPerHead(request, "sinks", qkv);
  for (const double sink : sinks) {
    if (!std::isfinite(sink) && sink != kMinusInfinity) {
      throw Error(ErrorCode::kRange, "sinks must be finite or -inf");
    }
  }
  return sinks;
}

bool IsEmpty(std::span<const double> row) {
  return std::ranges::all_of(row, [](double s) { return s == kMinusInfinity; });
}

bool HasNan(std::span<const double> row) {
  return std::ranges::any_of(row, [](double s) { return std::isnan(s); });
}

bool HasNanOrInfinity(std::span<const double> row) {
  return std::ranges::any_of(row, [](double s) { return std::isnan(s) || s == -kMinusInfinity; });
}

void LoseRow(std::span<double> row) {
  for (double& s : row) s = s == kMinusInfinity ? 0.0 : std::nan("");
}

std::vector<Result> RunExact(const Request& request, const Qkv& qkv, const PairScore& score,
                             const RowNormalize& normalize) {
  const Visibility visible(request, qkv);
  const Modifiers modifiers = ReadModifiers(request, qkv);
  const std::optional<Dropout> dropout = ReadDropout(request);
  ExactResults results(request, qkv);
  ScoreRow scores(qkv.kv_len);
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t h = 0; h < qkv.num_heads; ++h) {
      for (int64_t i = 0; i < qkv.q_len; ++i) {
        const RowPlace at = {b, h, i};
        ScoreOneRow(qkv, score, modifiers, visible, results.wants_scores(), at, scores);
        std::vector<double> weights = scores.biased;
        const double lse = normalize(at, weights);
        if (modifiers.prob_mod && lse != kMinusInfinity) {
          ModifyWeights(*modifiers.prob_mod, visible, at, scores, weights);
        }
        std::vector<double> dropped = weights;
        if (dropout) dropout->Apply(b, h, i, dropped);
        results.SetRow(b, h, i, scores, weights, dropped, lse);
      }
    }
  }
  return results.Take();
}

}  // namespace heed::reference
