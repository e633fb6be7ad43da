// Gated attention: attention times sigmoid(gate), element by element.
//
// Source: Qiu et al. 2025, arXiv:2505.06708, section 2.2, position G1.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "inner.h"
#include "inputs.h"

namespace heed::reference::gated {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request, WidthOfScore(request));
  Qkv values = qkv;  // the gate broadcasts to the output, not to the pairs
  values.kv_len = qkv.head_dim_v;
  const Array gate = *ReadPairs(request, "output_gate", values, DType::kFloat32);
  InnerRequest inner(request, "attention", {"output_gate", "return_weights"});
  inner.SetParam("return_weights", true);
  std::vector<Result> results = inner.RunAll();
  const std::vector<double> weights = Values(results, "weights");
  std::vector<double>& output = results[0].values;
  for (size_t n = 0; n < output.size(); ++n) {
    const int64_t row = n / qkv.head_dim_v;
    const auto first = weights.begin() + row * qkv.kv_len;
    // A row without weights is empty: its gate, even if it is not finite, has nothing to open.
    if (std::all_of(first, first + qkv.kv_len, [](double w) { return w == 0.0; })) continue;
    const int64_t i = row % qkv.q_len, h = row / qkv.q_len % qkv.num_heads;
    const int64_t b = row / qkv.q_len / qkv.num_heads;
    output[n] /= 1.0 + std::exp(-gate(b, h, i, n % qkv.head_dim_v));
  }
  if (!ReadFlag(request, "return_weights")) {
    std::erase_if(results, [](const Result& result) { return result.name == "weights"; });
  }
  return results;
}

}  // namespace heed::reference::gated
