// Synthesizers: rows of scores from the token alone (dense), or learned once for all (random).
//
// Source: Tay et al. 2020, arXiv:2005.00743, sections 3.1 and 3.2.
#include <algorithm>
#include <string>
#include <vector>

#include "exact.h"
#include "inner.h"
#include "inputs.h"

namespace heed::reference::synthesizer {
namespace {

// A learned tensor of rank 3 or 2 with its heads in axis 1.
Array ReadLearned(const Request& request, const char* name, int rank) {
  Array array = *ReadFloats(request, name, rank);
  if (rank == 2) array.shape = {1, array.shape[2], 1, array.shape[3]};
  return array;
}

void ExpectReach(const Request& request, const char* name, bool fits) {
  if (fits) return;
  throw Error(ErrorCode::kShape,
              Describe(name, *FindInput(request, name)) + ": does not fit q and v");
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const bool dense = FindInput(request, "q") != nullptr;
  const bool random = FindInput(request, "synthetic_scores") != nullptr;
  const bool stray = random && FindInput(request, "synthetic_bias") != nullptr;
  if (stray || dense == random || dense != (FindInput(request, "synthetic_keys") != nullptr)) {
    throw Error(ErrorCode::kOption,
                "give q and synthetic_keys (dense) or synthetic_scores (random)");
  }
  Qkv qkv;
  qkv.v = *ReadFloats(request, "v", 4);
  qkv.batch = qkv.v.shape[0], qkv.num_kv_heads = qkv.v.shape[1];
  qkv.kv_len = qkv.v.shape[2], qkv.head_dim_v = qkv.v.shape[3];
  Array hidden, keys, bias, scores;
  if (dense) {
    hidden = *ReadFloats(request, "q", 4);
    keys = ReadLearned(request, "synthetic_keys", 3);
    qkv.num_heads = hidden.shape[1], qkv.q_len = hidden.shape[2], qkv.head_dim = hidden.shape[3];
    ExpectReach(request, "q", hidden.shape[0] == qkv.batch);
    ExpectReach(request, "synthetic_keys",
                keys.shape[3] == qkv.head_dim && keys.shape[2] >= qkv.kv_len &&
                    (keys.shape[1] == 1 || keys.shape[1] == qkv.num_heads));
    if (FindInput(request, "synthetic_bias") != nullptr) {
      bias = ReadLearned(request, "synthetic_bias", 2);
      ExpectReach(
          request, "synthetic_bias",
          bias.shape[3] >= qkv.kv_len && (bias.shape[1] == 1 || bias.shape[1] == qkv.num_heads));
    }
  } else {
    scores = ReadLearned(request, "synthetic_scores", 3);
    qkv.num_heads = scores.shape[1], qkv.q_len = qkv.kv_len;
    ExpectReach(request, "synthetic_scores",
                scores.shape[2] >= qkv.kv_len && scores.shape[3] >= qkv.kv_len);
    for (const char* name : {"scale", "softcap", "bias"}) {
      if (FindInput(request, name) == nullptr && FindParam(request, name) == nullptr) continue;
      throw Error(ErrorCode::kUnsupported, std::string(name) + " with learned scores");
    }
  }
  ExpectReach(request, "v", qkv.num_kv_heads == 1 || qkv.num_kv_heads == qkv.num_heads);
  const double scale = ReadNumber(request, "scale").value_or(1.0);
  const PairScore score = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    if (random) return scores(0, h, i, j);
    double sum = bias.values.empty() ? 0.0 : bias(0, h, 0, j);
    for (int64_t d = 0; d < qkv.head_dim; ++d) {
      const double x = hidden(b, h, i, d);
      sum += (x < 0.0 ? 0.0 : x) * keys(0, h, j, d);
    }
    return scale * sum;
  };
  return RunExact(request, qkv, score, SoftmaxNormalize(request, qkv));
}

}  // namespace heed::reference::synthesizer
