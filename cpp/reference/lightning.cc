// Lightning attention: linear attention without a denominator, decayed at the rates of ALiBi.
//
// Source: Qin et al. 2024, arXiv:2401.04658, with the slopes of the authors' code; upper layers
// decay more slowly, as in TransNormerLLM (Qin et al. 2023, arXiv:2307.14995).
#include <cmath>
#include <vector>

#include "recurrent.h"

namespace heed::reference::lightning {
namespace {

// 2^(-8 i / n) for a power of two; else those of the power below, and every other one of the power
// above.
std::vector<double> Slopes(int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t i = 1; i <= power && i <= heads; ++i) slopes.push_back(std::exp2(-8.0 * i / power));
  for (int64_t i = 1; static_cast<int64_t>(slopes.size()) < heads; i += 2) {
    slopes.push_back(std::exp2(-8.0 * i / (2 * power)));
  }
  return slopes;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  const double depth = ReadNumber(request, "layer_depth").value_or(0);
  if (depth < 0 || depth > 1) throw Error(ErrorCode::kRange, "layer_depth must lie in [0, 1]");
  const std::vector<double> slopes = Slopes(qkv.num_kv_heads);
  r.log_decay = ReadRates(request, qkv, [&](int64_t h) { return -slopes[h] * (1 - depth); });
  r.scale = ReadScale(request, qkv, 1.0);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::lightning
