#include "drawn_params.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace heed::testing {
namespace {

// Numbers in an interval.
const std::map<std::string, std::pair<double, double>> kNumbers = {
    {"softcap", {0.5, 10}},        {"min_temperature", {0.1, 1}},
    {"lambda_init", {0, 1}},       {"epsilon", {0.01, 1}},
    {"negative_slope", {-1, 1}},   {"sigmoid_bias", {-3, 1}},
    {"length_power", {0, 1}},      {"dropout_p", {0, 0.6}},
    {"base", {50, 20000}},         {"rope_base", {50, 20000}},
    {"scaling_factor", {1, 8}},    {"beta_fast", {8, 40}},
    {"beta_slow", {0.5, 4}},       {"attention_factor", {0.5, 2}},
    {"low_freq_factor", {0.5, 2}}, {"high_freq_factor", {3, 6}},
    {"gamma", {0.2, 2}},           {"scale_base", {50, 500}},
    {"center", {-5, 30}},          {"sort_temperature", {0.5, 2}},
    {"layer_depth", {0, 1}},
};

// Whole numbers in an interval that no extent decides.
const std::map<std::string, std::pair<int64_t, int64_t>> kCounts = {
    {"steps", {1, 3}},
    {"top_blocks", {1, 4}},
    {"iterations", {1, 8}},
    {"recent_tokens", {1, 12}},
    {"heavy_tokens", {1, 8}},
    {"sink_tokens", {0, 4}},
    {"page_size", {1, 9}},
    {"top_pages", {1, 4}},
    {"compression", {1, 5}},
    {"hash_rounds", {1, 3}},
    {"num_clusters", {1, 5}},
    {"cluster_tokens", {1, 20}},
    {"sort_iterations", {1, 9}},
    {"compress_stride", {1, 6}},
    {"first_blocks", {0, 1}},
    {"local_blocks", {1, 2}},
    {"window_len", {1, 12}},
    {"hash_chunk", {1, 9}},
    {"reach", {0, 20}},
    {"stride", {1, 20}},
    {"window_blocks", {1, 1}},
    {"global_blocks", {0, 2}},
    {"last_blocks", {0, 2}},
    {"random_blocks", {0, 3}},
    {"original_len", {8, 64}},
    {"seq_len", {1, 100}},
    {"period", {400, 900}},
    {"mini_batch", {1, 20}},
    {"relative_max_distance", {260, 600}},
    {"bucket_max_distance", {17, 200}},
};

const std::map<std::string, const char*> kScores = {
    {"cosine", "cosine"},          {"gaussian", "squared_distance"},
    {"luong_general", "bilinear"}, {"kernel_regression", "squared_distance"},
    {"luong_concat", "additive"},  {"additive", "additive"},
};

const std::map<std::string, const char*> kNormalizers = {{"kernel_regression", "kernel_sum"}};

}  // namespace

std::string DrawnParams::score() const {
  if (const auto at = kScores.find(r_.id); at != kScores.end()) return at->second;
  return r_.Word("score", "dot");
}

std::string DrawnParams::normalize() const {
  if (const auto at = kNormalizers.find(r_.id); at != kNormalizers.end()) return at->second;
  const auto words = WordsOf(ParameterRow("normalize").range, '|');
  if (std::ranges::find(words, r_.id) != words.end()) return r_.id;
  return r_.Word("normalize", "softmax");
}

bool DrawnParams::has_lse() const {
  if (normalize() == "kernel_sum") return r_.Word("kernel", "gaussian") == "gaussian";
  return Lists("softmax softmax1 top_k cope", normalize());
}

bool DrawnParams::chooses() const {
  if (normalize() == "kernel_sum") return r_.Word("kernel") == "boxcar";
  return Lists("hard top_k", normalize());
}

std::string DrawnParams::pattern() const {
  return Lists("longformer bigbird swin_window neighborhood", r_.id) ? r_.id : r_.Word("pattern");
}

int64_t DrawnParams::extent(const std::string& symbol) const {
  const auto at = r_.extents.find(symbol);
  return at == r_.extents.end() ? 1 : at->second;
}

double DrawnParams::Uniform(double low, double high) {
  return static_cast<float>(low + (high - low) * random_.Uniform());
}

double DrawnParams::Whole(int64_t low, int64_t high) {
  return static_cast<double>(random_.Integer(low, std::max(low, high)));
}

double DrawnParams::KernelWidth() {
  if (chooses()) return std::exp2(std::ceil(std::log2(2 * std::sqrt(extent("head_dim")))));
  return Uniform(2, 4) *
         std::sqrt(2.0 * static_cast<double>(std::max<int64_t>(1, extent("head_dim"))));
}

bool DrawnParams::Reads(const std::string& name) const {
  if (!HasReader(name)) return false;
  const bool kernel_sum = normalize() == "kernel_sum";
  if (Lists("temperature min_temperature", name)) return score() == "cosine";
  if (name == "width") return score() == "squared_distance";
  if (Lists("scale softcap", name) && kernel_sum) return false;
  if (name == "scale" && r_.has_input("synthetic_scores")) return false;
  if (name == "softcap" && r_.has_input("synthetic_scores")) return false;
  if (name == "return_lse") return has_lse();
  if (name == "return_tiles") return r_.Word("prob_mod").empty();
  if (Lists("hash_rounds hash_buckets hash_seed", name)) return !r_.has_input("rotations");
  if (Lists("num_clusters centroid_seed", name)) return !r_.has_input("centroids");
  if (name == "average_weights") return r_.param("return_weights") != nullptr;
  if (name == "tiles_of_query") return r_.param("return_tiles") != nullptr;
  if (Lists("image_height image_width", name)) return false;  // drawn together
  if (Lists("base scaling_factor original_len seq_len", name)) return !r_.has_input("cos");
  if (name == "position_offset") return r_.param("image_height") == nullptr;
  if (name == "compression") return !r_.has_input("key_conv") && !r_.has_input("value_conv");
  if (Lists("num_features feature_seed", name)) return !r_.has_input("projection");
  if (name == "interpolate") return !r_.has_input("positions");
  return true;
}

bool DrawnParams::HasReader(const std::string& name) const {
  const std::vector<std::string> readers = WordsOf(ParameterRow(name).read_by);
  return readers.empty() || std::ranges::any_of(readers, [&](const std::string& reader) {
           const size_t at = reader.find('=');
           const std::string by = reader.substr(0, at);
           if (at == std::string::npos) return r_.has_input(by) || r_.param(by) != nullptr;
           const auto words = WordsOf(std::string_view(reader).substr(at + 1), '|');
           return !Takes(by) || std::ranges::find(words, r_.Word(by)) != words.end();
         });
}

bool DrawnParams::Needs(const std::string& name) const {
  if (Lists("swin_window neighborhood", r_.id) && name == "grid") return false;
  if (name == "grid") return pattern() == "axial";
  if (name == "query_offset") {
    return extent("q_len") != extent("kv_len") || Lists("bigbird axial", pattern());
  }
  if (name == "block_size") return r_.has_input("block_keep") || r_.has_input("block_indptr");
  if (name == "window_size") return r_.param("grid") != nullptr;
  const bool scaled = !Lists("none", r_.Word("scaling", "none"));
  if (Lists("scaling_factor original_len", name)) return scaled;
  if (name == "width") return normalize() == "kernel_sum";
  if (Lists("num_features position_offset", name) && r_.has_input("initial_state")) return true;
  if (name == "key_block") return r_.has_input("sort_logits");
  if (name == "compress_block") {
    return r_.has_input("compress_k_weight") || r_.has_input("compress_v_weight");
  }
  return false;
}

std::optional<ParamValue> DrawnParams::Value(const std::string& name) {
  const std::string type(ParameterRow(name).type);
  if (type == "bool") return true;
  if (type == "offset") return Offset();
  if (type == "seed") {
    if (random_.Chance(0.5)) return std::to_string(random_.Next());
    return Whole(0, 1000000);
  }
  if (auto value = PatternValue(name)) return value;
  if (type == "number") return Number(name);
  if (type == "count") return Count(name);
  if (name == "width") {
    return normalize() == "kernel_sum" ? KernelWidth() : chooses() ? 1.0 : Uniform(0.5, 3);
  }
  if (name == "temperature") return Uniform(0.2, 2);
  if (name == "position_offset") {
    if (random_.Chance(0.5)) return Whole(0, 5);
    std::vector<double> offsets;
    for (int64_t b = 0; b < extent("batch"); ++b) offsets.push_back(Whole(-3, 9));
    return offsets;
  }
  return std::nullopt;
}

std::optional<ParamValue> DrawnParams::Number(const std::string& name) {
  if (name == "scale") {
    if (Lists("gaussian", r_.id)) return Uniform(0.1, 1);
    return Uniform(-1, 1) * 1.5 /
           std::sqrt(static_cast<double>(std::max<int64_t>(1, extent("head_dim"))));
  }
  const auto at = kNumbers.find(name);
  if (at == kNumbers.end()) return std::nullopt;
  return Uniform(at->second.first, at->second.second);
}

std::optional<ParamValue> DrawnParams::Count(const std::string& name) {
  if (name == "window_left" || name == "window_right" || name == "local_window") {
    return Whole(name == "local_window" ? 1 : 0, extent("kv_len"));
  }
  if (name == "num_landmarks") return Whole(1, extent("kv_len"));
  if (Lists("compress_block key_block", name)) return static_cast<double>(extent(name));
  if (name == "top_blocks" && r_.id == "native_sparse") return Whole(3, 6);
  if (name == "hash_buckets") return std::max(1.0, 2 * Whole(0, 4));
  if (name == "num_features") return static_cast<double>(extent("num_features"));
  if (name == "top_k") return Whole(1, extent("kv_len") + 1);
  if (name == "tiles_of_query") return Whole(0, extent("q_len") - 1);
  if (name == "rotary_dim") return 2 * Whole(1, extent("embed_dim") / 2);
  const auto at = kCounts.find(name);
  if (at == kCounts.end()) return std::nullopt;
  return Whole(at->second.first, at->second.second);
}

ParamValue DrawnParams::Offset() {
  const int64_t slack = extent("kv_len") - extent("q_len");
  if (Lists("bigbird axial swin_window neighborhood", pattern())) return Whole(0, slack);
  const int64_t far = extent("q_len") + extent("kv_len");
  const double kind = random_.Uniform();
  if (kind < 0.3) return std::string("end");
  if (kind < 0.6) return Whole(-far / 2, far);
  std::vector<double> offsets;
  for (int64_t b = 0; b < extent("batch"); ++b) offsets.push_back(Whole(-far, far));
  return offsets;
}

double DrawnParams::Divisor(double extent) {
  std::vector<double> divisors;
  for (double d = 1; d <= extent; ++d) {
    if (std::fmod(extent, d) == 0) divisors.push_back(d);
  }
  if (divisors.empty()) return 1;
  return divisors[static_cast<size_t>(
      random_.Integer(0, static_cast<int64_t>(divisors.size()) - 1))];
}

std::vector<double> DrawnParams::Grid(size_t axes) {
  std::vector<double> grid;
  double tokens = static_cast<double>(extent("kv_len"));
  for (size_t axis = 1; axis < axes; ++axis) {
    grid.push_back(Divisor(tokens));
    tokens /= grid.back();
  }
  grid.push_back(tokens);
  return grid;
}

std::optional<ParamValue> DrawnParams::PatternValue(const std::string& name) {
  const std::vector<double>* grid = nullptr;
  if (const ParamValue* given = r_.param("grid")) grid = std::get_if<std::vector<double>>(given);
  const std::vector<double> line = {1, static_cast<double>(extent("kv_len"))};
  const std::vector<double>& axes = grid != nullptr ? *grid : line;
  if (name == "block_size") {
    if (pattern() == "bigbird") return Whole(1, 16);
    return std::vector<double>{static_cast<double>(extent("q_block")),
                               static_cast<double>(extent("kv_block"))};
  }
  if (name == "grid") return Grid(pattern() == "neighborhood" && random_.Chance(0.5) ? 3 : 2);
  if (name == "axis") return Whole(0, 1);
  if (name == "summary") {
    return Whole(1, static_cast<int64_t>(r_.Number("stride", 128)));
  }
  if (name == "dilation") {
    if (pattern() == "neighborhood" || random_.Chance(0.5)) return 1.0;
    std::vector<double> steps;
    for (int64_t h = 0; h < extent("num_heads"); ++h) steps.push_back(Whole(1, 4));
    return steps;
  }
  if (name == "window_size") {
    if (grid == nullptr) return std::nullopt;
    std::vector<double> sizes;
    for (const double axis : axes) {
      sizes.push_back(pattern() == "swin_window" ? Divisor(axis)
                                                 : Whole(1, static_cast<int64_t>(axis)));
    }
    return sizes;
  }
  if (name == "shift") {
    const ParamValue* sizes = r_.param("window_size");
    const auto* list = sizes == nullptr ? nullptr : std::get_if<std::vector<double>>(sizes);
    if (list == nullptr) return std::nullopt;
    std::vector<double> shifts;
    for (const double size : *list) shifts.push_back(Whole(0, static_cast<int64_t>(size) - 1));
    return shifts;
  }
  return std::nullopt;
}

}  // namespace heed::testing
