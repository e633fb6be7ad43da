// Exact attention with every socket open: `score` and `normalize` name the parts.
#include <string>
#include <vector>

#include "exact.h"

namespace heed::reference::attention {
namespace {

PairScore MakeScore(const std::string& word, const Request& request, const Qkv& qkv) {
  if (word == "squared_distance") return SquaredDistanceScore(request, qkv);
  if (word == "bilinear") return BilinearScore(request, qkv);
  if (word == "additive") return AdditiveScore(request, qkv);
  if (word == "cosine") return CosineScore(request, qkv);
  return DotScore(request, qkv);
}

RowNormalize MakeNormalize(const std::string& word, const Request& request, const Qkv& qkv) {
  if (word == "kernel_sum") return KernelSumNormalize(request);
  return SoftmaxNormalize(request, qkv);
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const std::string score =
      ReadWord(request, "score", {"dot", "squared_distance", "cosine", "bilinear", "additive"})
          .value_or("dot");
  const bool joins_widths = score == "bilinear" || score == "additive";
  const Qkv qkv = ReadQkv(request, joins_widths ? KeyWidth::kFree : KeyWidth::kAsQueries);
  const std::string normalize =
      ReadWord(request, "normalize", {"softmax", "kernel_sum"}).value_or("softmax");
  if (normalize == "kernel_sum" && score != "squared_distance") {
    throw Error(ErrorCode::kUnsupported,
                "normalize \"kernel_sum\" needs score \"squared_distance\"");
  }
  return RunExact(request, qkv, MakeScore(score, request, qkv),
                  MakeNormalize(normalize, request, qkv));
}

}  // namespace heed::reference::attention
