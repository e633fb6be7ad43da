#include "native_bench/shapes.h"

namespace heed::bench {
namespace {

Case Shape(Heads heads, int64_t head_dim, Lengths lengths, Mask mask) {
  return {.mechanism = "", .heads = heads, .lengths = lengths, .head_dim = head_dim, .mask = mask};
}

Case WithSinks(Case shape) {
  shape.sinks = true;
  return shape;
}

// Each query sees itself and `left` keys before it.
Case WithWindow(Case shape, int64_t left) {
  shape.window_left = left;
  return shape;
}

Case WithSoftcap(Case shape, double softcap) {
  shape.softcap = softcap;
  return shape;
}

Case WithValues(Case shape, int64_t head_dim_v) {
  shape.head_dim_v = head_dim_v;
  return shape;
}

constexpr std::string_view kGpt2 = "Radford et al. 2019; gpt2 (124M)";
constexpr std::string_view kBert = "Devlin et al., arXiv:1810.04805; bert-base";
constexpr std::string_view kVit = "Dosovitskiy et al., arXiv:2010.11929; ViT-B/16, 224 x 224";
constexpr std::string_view kWhisper = "Radford et al., arXiv:2212.04356; large";
constexpr std::string_view kLlama = "Grattafiori et al., arXiv:2407.21783; 8B";
constexpr std::string_view kGemma = "Gemma Team, arXiv:2408.00118; 2B";
constexpr std::string_view kGptOss = "OpenAI, arXiv:2508.10925; gpt-oss-20b";
constexpr std::string_view kDeepSeek = "DeepSeek-AI, arXiv:2412.19437; V3";

// Prompts are cut to lengths that a core computes in seconds, 6144 for Gemma's window of 4096.
std::vector<NamedShape> MakeShapes() {
  const auto full = Mask::kFull, causal = Mask::kCausal;
  const Lengths token = {1, 8192};
  const Case gemma = WithSoftcap(Shape({8, 4}, 256, {2048, 2048}, causal), 50);
  const Case gpt_oss = WithSinks(Shape({64, 8}, 64, {2048, 2048}, causal));
  const auto at = [](Case shape, Lengths lengths) {
    shape.lengths = lengths;
    return shape;
  };
  return {
      {"bert-base", "encode", kBert, Shape({12, 12}, 64, {512, 512}, full)},
      {"gpt2", "prefill", kGpt2, Shape({12, 12}, 64, {1024, 1024}, causal)},
      {"gpt2", "decode", kGpt2, Shape({12, 12}, 64, {1, 1024}, causal)},
      {"vit-b16", "encode", kVit, Shape({12, 12}, 64, {197, 197}, full)},
      {"whisper", "encode", kWhisper, Shape({20, 20}, 64, {1500, 1500}, full)},
      {"whisper", "cross-decode", kWhisper, Shape({20, 20}, 64, {1, 1500}, full)},
      {"whisper", "decode", kWhisper, Shape({20, 20}, 64, {1, 448}, causal)},
      {"llama3-8b", "prefill", kLlama, Shape({32, 8}, 128, {2048, 2048}, causal)},
      {"llama3-8b", "decode", kLlama, Shape({32, 8}, 128, token, causal)},
      {"gemma2-2b", "prefill", kGemma, gemma},
      {"gemma2-2b", "prefill-window", kGemma, WithWindow(at(gemma, {6144, 6144}), 4095)},
      {"gemma2-2b", "decode", kGemma, at(gemma, token)},
      {"gemma2-2b", "decode-window", kGemma, WithWindow(at(gemma, token), 4095)},
      {"gpt-oss", "prefill", kGptOss, gpt_oss},
      {"gpt-oss", "prefill-window", kGptOss, WithWindow(gpt_oss, 127)},
      {"gpt-oss", "decode", kGptOss, at(gpt_oss, token)},
      {"gpt-oss", "decode-window", kGptOss, WithWindow(at(gpt_oss, token), 127)},
      // Keys of 128 + 64 for positions, values of 128.
      {"deepseek-v3", "prefill", kDeepSeek,
       WithValues(Shape({128, 128}, 192, {1024, 1024}, causal), 128)},
      // Absorbed: every head reads the one latent of 512 + 64, whose first 512 are the values.
      {"deepseek-v3", "decode", kDeepSeek,
       WithValues(Shape({128, 1}, 576, {1, 4096}, causal), 512)},
  };
}

}  // namespace

std::string NamedShape::Name() const { return std::string(model) + ":" + std::string(phase); }

std::span<const NamedShape> NamedShapes() {
  static const std::vector<NamedShape> shapes = MakeShapes();
  return shapes;
}

std::vector<Case> FindShapes(const std::vector<std::string>& names) {
  std::vector<Case> found;
  for (const std::string& name : names) {
    const size_t before = found.size();
    for (const NamedShape& row : NamedShapes()) {
      if (name != "all" && name != row.model && name != row.Name()) continue;
      found.push_back(row.shape);
      found.back().model = row.Name();
    }
    if (found.size() == before) {
      throw Error(ErrorCode::kOption,
                  "--shapes: '" + name + "' is not a named shape; --list prints them");
    }
  }
  return found;
}

}  // namespace heed::bench
