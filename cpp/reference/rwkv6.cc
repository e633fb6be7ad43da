// RWKV-6: gates per channel and token; a token reads before it writes, and its own value by u.
//
// Source: Peng et al. 2024, arXiv:2404.05892, section 4.2: receptance, key, value are q, k, v.
#include <vector>

#include "recurrent.h"

namespace heed::reference::rwkv6 {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  r.log_decay = ReadPerChannel(request, "channel_log_decay", qkv);
  const Array bonus = *ReadFloats(request, "bonus", 2);
  if (bonus.shape != Extents{1, 1, qkv.num_heads, qkv.head_dim}) {
    throw Error(ErrorCode::kShape, "bonus must be [num_heads, head_dim]");
  }
  r.bonus = bonus.values;
  r.reads_first = true;
  r.scale = ReadScale(request, qkv, 1.0);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::rwkv6
