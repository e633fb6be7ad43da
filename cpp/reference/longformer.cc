// Longformer: a sliding window, dilated or not, and global tokens.
//
// Source: Beltagy et al. 2020, arXiv:2004.05150, section 3.1. A window of size w has reach w / 2.
#include <cstdlib>
#include <set>
#include <vector>

#include "exact.h"
#include "patterns.h"

namespace heed::reference {

PairRule LongformerRule(const Request& request, const Qkv& qkv) {
  const int64_t reach = ReadWhole(request, "reach", 256, 0);
  std::vector<int64_t> dilation = ReadWholes(request, "dilation", 1);
  if (dilation.empty()) dilation = {1};
  if (dilation.size() == 1) dilation = std::vector(qkv.num_heads, dilation[0]);
  if (static_cast<int64_t>(dilation.size()) != qkv.num_heads) {
    throw Error(ErrorCode::kShape, "dilation: expected one number, or one per head");
  }
  std::set<int64_t> global;
  const auto tokens = ReadIntegers(request, "global_tokens");
  const bool named = FindParam(request, "pattern") != nullptr &&
                     ReadWord(request, "pattern", {"longformer", "dilated"}) == "dilated";
  if (tokens && !named) {
    for (const double token : tokens->values) {
      if (token < 0) throw Error(ErrorCode::kRange, "global_tokens: expected tokens >= 0");
      global.insert(static_cast<int64_t>(token));
    }
  }
  return [=](const Pair& at) {
    if (global.count(at.p) != 0 || global.count(at.j) != 0) return true;
    const int64_t distance = std::abs(at.p - at.j);
    return distance % dilation[at.h] == 0 && distance / dilation[at.h] <= reach;
  };
}

namespace longformer {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace longformer
}  // namespace heed::reference
