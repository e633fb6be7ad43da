// Contextual position encoding: each visible key is as far away as the gates sigmoid(s) of the keys
// from it to the last visible one sum up to; the logit of that position is added to its score.
//
// Source: Golovneva et al. 2024, Contextual Position Encoding, arXiv:2405.18719, section 4.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

namespace {

// cope_table [num_positions, head_dim] or [num_heads, num_positions, head_dim], as [1, heads,
// num_positions, head_dim].
Array ReadTable(const Request& request, const Qkv& qkv) {
  const AnyTensor* tensor = FindInput(request, "cope_table");
  if (tensor == nullptr) {
    throw Error(ErrorCode::kOption, "cope_table is missing: normalize \"cope\" needs it");
  }
  Array table = ReadFloats(request, "cope_table");
  const bool ranks = tensor->rank == 2 || tensor->rank == 3;
  if (!ranks || table.shape[3] != qkv.head_dim || table.shape[2] < 1 ||
      (table.shape[1] != 1 && table.shape[1] != qkv.num_heads)) {
    throw Error(ErrorCode::kShape,
                Describe("cope_table", *tensor) +
                    ": expected [num_positions, head_dim] or [num_heads, num_positions, head_dim]");
  }
  return table;
}

// q . e[position], between two whole positions their linear mix.
double PositionLogit(const Array& table, int64_t head, std::span<const double> q, double position) {
  const auto whole = static_cast<int64_t>(position);
  const auto logit = [&](int64_t p) {
    double sum = 0.0;
    for (size_t d = 0; d < q.size(); ++d) {
      sum += q[d] * table(0, head, p, static_cast<int64_t>(d));
    }
    return sum;
  };
  const double rest = position - static_cast<double>(whole);
  if (rest == 0.0) return logit(whole);
  return (1.0 - rest) * logit(whole) + rest * logit(whole + 1);
}

}  // namespace

RowNormalize CopeNormalize(const Request& request, const Qkv& qkv) {
  const std::vector<double> sinks = ReadSinks(request, qkv);
  const Array table = ReadTable(request, qkv);
  return [sinks, table, &qkv](const RowPlace& at, std::span<double> row) {
    if (HasNan(row)) {
      LoseRow(row);
      return std::nan("");
    }
    const double farthest = static_cast<double>(table.shape[2] - 1);
    double position = 0.0;
    for (size_t j = row.size(); j-- > 0;) {
      if (row[j] == kMinusInfinity) continue;
      position += 1.0 / (1.0 + std::exp(-row[j]));
      row[j] +=
          PositionLogit(table, at.h, qkv.q.Row(at.b, at.h, at.i), std::min(position, farthest));
    }
    return Softmax(row, sinks.empty() ? kMinusInfinity : sinks[at.h]);
  };
}

namespace cope {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), CopeNormalize(request, qkv));
}

}  // namespace cope
}  // namespace heed::reference
