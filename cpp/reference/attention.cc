// Exact attention with every socket open: `score` and `normalize` name the parts.
#include <string>
#include <vector>

#include "exact.h"

namespace heed::reference::attention {
namespace {

PairScore MakeScore(const std::string& score, const std::string& normalize, const Request& request,
                    const Qkv& qkv) {
  if (normalize == "average") return ZeroScore();
  if (score == "squared_distance") return SquaredDistanceScore(request, qkv);
  if (score == "bilinear") return BilinearScore(request, qkv);
  if (score == "additive") return AdditiveScore(request, qkv);
  if (score == "cosine") return CosineScore(request, qkv);
  return DotScore(request, qkv);
}

RowNormalize MakeNormalize(const std::string& word, const Request& request, const Qkv& qkv) {
  if (word == "kernel_sum") return KernelSumNormalize(request);
  if (word == "softmax1") return Softmax1Normalize(request);
  if (word == "average") return AverageNormalize(request);
  if (word == "hard") return HardNormalize(request);
  if (word == "top_k") return TopKNormalize(request, qkv);
  if (word == "sigmoid") return SigmoidNormalize(request, qkv);
  if (word == "relu") return ReluNormalize(request);
  if (word == "relu_squared") return ReluSquaredNormalize(request);
  if (word == "sparsemax") return SparsemaxNormalize(request);
  if (word == "entmax15") return Entmax15Normalize(request);
  if (word == "stick_breaking") return StickBreakingNormalize(request);
  if (word == "cope") return CopeNormalize(request, qkv);
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
      ReadWord(request, "normalize",
               {"softmax", "kernel_sum", "softmax1", "average", "hard", "top_k", "sigmoid", "relu",
                "relu_squared", "sparsemax", "entmax15", "stick_breaking", "cope"})
          .value_or("softmax");
  if (normalize == "kernel_sum" && score != "squared_distance") {
    throw Error(ErrorCode::kUnsupported,
                "normalize \"kernel_sum\" needs score \"squared_distance\"");
  }
  return RunExact(request, qkv, MakeScore(score, normalize, request, qkv),
                  MakeNormalize(normalize, request, qkv));
}

}  // namespace heed::reference::attention
