// Gated linear attention: every channel of a key forgets at a rate of its own, token by token.
//
// Source: Yang et al. 2023, arXiv:2312.06635.
#include <vector>

#include "recurrent.h"

namespace heed::reference::gated_linear {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  r.log_decay = ReadPerChannel(request, "channel_log_decay", qkv);
  r.scale = ReadScale(request, qkv);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::gated_linear
