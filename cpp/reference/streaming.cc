// Streaming attention: the last tokens, and the first.
//
// Source: Xiao et al. 2023, arXiv:2309.17453, section 3.2.
#include <string>
#include <vector>

#include "choice.h"
#include "inner.h"
#include "inputs.h"
#include "visibility.h"

namespace heed::reference::streaming {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const int64_t recent = ReadAtLeastOne(request, "recent_tokens", 1024);
  const int64_t sinks = ReadCount(request, "sink_tokens").value_or(4);
  RefuseLengthsPerQuery(request);
  InnerRequest causal(request, request.id, {});
  causal.SetParam("causal", true);
  const Visibility visible(causal.request(), qkv);
  return RunOverChosen(causal.request(), qkv, {"recent_tokens", "sink_tokens"},
                       [&](int64_t b, int64_t, int64_t i) {
                         const int64_t position = visible.Position(b, i);
                         std::vector<bool> keep(qkv.kv_len);
                         for (int64_t j = 0; j < qkv.kv_len; ++j) {
                           keep[j] = j > position - recent || j < sinks;
                         }
                         return keep;
                       });
}

}  // namespace heed::reference::streaming
