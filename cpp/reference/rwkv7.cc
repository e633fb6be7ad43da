// RWKV-7: a generalised delta rule with gates, and rates of erasing, per channel.
//
// Source: Peng et al. 2025, arXiv:2503.14456: receptance, replacement key and value are q, k and v;
// erase_key is the removal key before it is normalised, erase_rate the in-context learning rate.
#include <vector>

#include "recurrent.h"

namespace heed::reference::rwkv7 {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  r.log_decay = ReadPerChannel(request, "channel_log_decay", qkv);
  r.erase_key = ReadPerChannel(request, "erase_key", qkv);
  r.erase_rate = ReadPerChannel(request, "erase_rate", qkv);
  r.scale = ReadScale(request, qkv, 1.0);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::rwkv7
