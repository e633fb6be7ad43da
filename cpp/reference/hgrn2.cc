// HGRN2: gated linear attention whose keys are 1 minus the forget gates.
//
// Source: Qin et al. 2024, arXiv:2404.07904.
#include <cmath>
#include <vector>

#include "recurrent.h"

namespace heed::reference::hgrn2 {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request, KeyWidth::kAsQueries, "channel_log_decay");
  Recurrence r;
  r.log_decay = qkv.k;
  r.features = [](std::vector<double> row, const Place& place) {
    for (double& x : row) x = place.side == Side::kKey ? -std::expm1(x) : x;
    return row;
  };
  r.scale = ReadScale(request, qkv, 1.0);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::hgrn2
