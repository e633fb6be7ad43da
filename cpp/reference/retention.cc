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
  r.log_decay = ReadRates(request, qkv, [](int64_t h) {
    return std::log1p(-std::exp2(-5.0 - static_cast<double>(h)));
  });
  r.scale = ReadScale(request, qkv);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::retention
