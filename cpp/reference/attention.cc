// Exact attention with every socket open: `score` and `normalize` name the parts.
#include <string>
#include <vector>

#include "exact.h"

namespace heed::reference::attention {
namespace {

PairScore MakeScore(const std::string& score, const std::string& normalize, const Request& request,
                    const Qkv& qkv) {
  if (normalize == "average") {
    if (score == "additive") AdditiveScore(request, qkv);  // its tensors are checked all the same
    if (score == "bilinear") BilinearScore(request, qkv);
    return ZeroScore();
  }
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

// What only one score or one normaliser reads is refused beside the others.
void RefuseUnread(const Request& request, const std::string& score, const std::string& normalize) {
  const auto refuse = [&](std::initializer_list<const char*> names, bool read) {
    for (const char* name : names) {
      if (read || (FindInput(request, name) == nullptr && FindParam(request, name) == nullptr)) {
        continue;
      }
      throw Error(ErrorCode::kOption, std::string(name) + " is not read by score \"" + score +
                                          "\" with normalize \"" + normalize + "\"");
    }
  };
  refuse({"width"}, score == "squared_distance");
  refuse({"temperature", "min_temperature"}, score == "cosine");
  refuse({"score_matrix"}, score == "bilinear");
  refuse({"query_weight", "key_weight", "score_bias", "score_vector"}, score == "additive");
  refuse({"cope_table"}, normalize == "cope");
  for (const char* name : {"relative_keys", "relative_queries", "content_bias", "position_bias"}) {
    if (score == "dot" || FindInput(request, name) == nullptr) continue;
    throw Error(ErrorCode::kUnsupported, std::string(name) + " is a term of the dot product");
  }
  if (normalize != "kernel_sum") return;
  for (const char* name : {"scale", "softcap", "score_mod", "bias", "alibi_slopes", "sinks",
                           "distance_bias", "bucket_bias", "log_gates"}) {
    if (FindInput(request, name) == nullptr && FindParam(request, name) == nullptr) continue;
    throw Error(ErrorCode::kUnsupported, std::string(name) + " is not used by kernel sums");
  }
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const std::string score =
      ReadWord(request, "score", {"dot", "squared_distance", "cosine", "bilinear", "additive"})
          .value_or("dot");
  const Qkv qkv = ReadQkv(request, WidthOfScore(request));
  const std::string normalize =
      ReadWord(request, "normalize",
               {"softmax", "kernel_sum", "softmax1", "average", "hard", "top_k", "sigmoid", "relu",
                "relu_squared", "sparsemax", "entmax15", "stick_breaking", "cope"})
          .value_or("softmax");
  if (normalize == "kernel_sum" && score != "squared_distance") {
    throw Error(ErrorCode::kUnsupported,
                "normalize \"kernel_sum\" needs score \"squared_distance\"");
  }
  RefuseUnread(request, score, normalize);
  return RunExact(request, qkv, MakeScore(score, normalize, request, qkv),
                  MakeNormalize(normalize, request, qkv));
}

}  // namespace heed::reference::attention
