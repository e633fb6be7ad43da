// State space duality: C, B and x are queries, keys and values, beta the step size, and skip is D.
//
// Source: Dao and Gu 2024, arXiv:2405.21060: a scalar decay per head and token.
#include <vector>

#include "recurrent.h"

namespace heed::reference::mamba2 {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  r.log_decay = ReadPerToken(request, "log_decay", qkv);
  r.beta = ReadPerToken(request, "beta", qkv);
  r.skip = ReadList(request, "skip");
  if (!r.skip.empty() && static_cast<int64_t>(r.skip.size()) != qkv.num_heads) {
    throw Error(ErrorCode::kShape, "skip must have one value per query head");
  }
  r.scale = ReadScale(request, qkv, 1.0);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::mamba2
