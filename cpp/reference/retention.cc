// Retention: linear attention whose heads forget at fixed rates.
//
// Source: Sun et al. 2023, arXiv:2307.08621, with its rates 1 - 2^(-5 - h).
#include <cmath>
#include <vector>

#include "recurrent.h"

namespace heed::reference::retention {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  std::vector<double> rates = ReadList(request, "head_log_decay");
  if (FindInput(request, "head_log_decay") == nullptr) {
    for (int64_t h = 0; h < qkv.num_kv_heads; ++h) {
      rates.push_back(std::log1p(-std::exp2(-5.0 - static_cast<double>(h))));
    }
  }
  if (static_cast<int64_t>(rates.size()) != qkv.num_kv_heads) {
    throw Error(ErrorCode::kShape, "head_log_decay must have one value per KV head");
  }
  Array decay;
  decay.shape = {1, qkv.num_kv_heads, 1, 1};
  decay.values = rates;
  r.log_decay = decay;
  r.scale = ReadScale(request, qkv);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::retention
