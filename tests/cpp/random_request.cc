// Draws the tensors and parameters of a request from the rows of the registry.
#include "random_request.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "drawn_params.h"

namespace heed::testing {
namespace {

// Queries, keys and values: rows that may lie apart, and be stored in two bytes.
constexpr std::string_view kRows = "q k v compress_k compress_v window_k window_v";

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Inputs that one word of one parameter makes readable.
struct Reader {
  const char* input;
  const char* param;
  const char* word;
};
constexpr Reader kReaders[] = {
    {"score_matrix", "score", "bilinear"},      {"query_weight", "score", "additive"},
    {"key_weight", "score", "additive"},        {"score_bias", "score", "additive"},
    {"score_vector", "score", "additive"},      {"temperature", "score", "cosine"},
    {"width", "score", "squared_distance"},     {"relative_keys", "score", "dot"},
    {"relative_queries", "score", "dot"},       {"content_bias", "score", "dot"},
    {"position_bias", "score", "dot"},          {"cope_table", "normalize", "cope"},
    {"global_tokens", "pattern", "longformer"}, {"pool_query", "pooling", "attention"},
    {"norm_weights", "set_norm", "layer"},      {"norm_biases", "set_norm", "layer"},
};

// Of two inputs that go together, the one that brings the other.
constexpr std::pair<const char*, const char*> kPairs[] = {
    {"query_documents", "key_documents"},
    {"block_indptr", "block_indices"},
    {"position_bias", "relative_keys"},
    {"b_gate", "w_gate"},
    {"b_o", "w_o"},
    {"bias_k", "bias_v"},
    {"key_conv_bias", "key_conv"},
    {"value_conv_bias", "value_conv"},
    {"cos", "sin"},
};

class Drawer {
 public:
  Drawer(const Mechanism& row, Draw draw, uint64_t seed)
      : row_(row), draw_(draw), random_(seed), params_(row, random_, r_) {
    r_.id = row.id;
  }

  DrawnRequest Take() {
    if (draw_ != Draw::kLeast) DrawWords();
    DrawChoices();
    DrawExtents();
    DrawInputs();
    std::erase_if(r_.params,
                  [&](const auto& param) { return !params_.HasReader(param.first) && Rule(); });
    if (draw_ != Draw::kLeast) {
      if (Takes("image_height") && random_.Chance(0.2)) DrawImage();
      DrawMods();
      for (const std::string& name : WordsOf(row_.params)) DrawParam(name);
    }
    Complete();
    for (auto& [name, tensor] : r_.inputs) {
      const bool heads = Lists(kRows, name);
      tensor.padded = heads && draw_ != Draw::kLeast && random_.Chance(0.3);
      tensor.Pack();
    }
    return std::move(r_);
  }

 private:
  // Whether a rule is kept: wild draws break some.
  bool Rule() { return draw_ != Draw::kWild || random_.Chance(0.7); }
  bool Takes(std::string_view param) const { return Lists(row_.params, param); }
  bool HasInput(std::string_view input) const { return Lists(row_.inputs, input); }
  int64_t& extent(const std::string& symbol) { return r_.extents[symbol]; }

  int64_t Pick(std::initializer_list<int64_t> choices) {
    return choices.begin()[random_.Integer(0, static_cast<int64_t>(choices.size()) - 1)];
  }

  void DrawWords() {
    for (const std::string& name : WordsOf(row_.params)) {
      const Parameter& parameter = ParameterRow(name);
      if (parameter.type != "word" || !random_.Chance(0.4)) continue;
      const std::vector<std::string> words = WordsOf(parameter.range, '|');
      r_.params[name] =
          words[static_cast<size_t>(random_.Integer(0, static_cast<int64_t>(words.size()) - 1))];
    }
    if (params_.normalize() == "kernel_sum" && Takes("score") && Rule()) {
      r_.params["score"] = std::string("squared_distance");
    }
  }

  // Words that have no default.
  void DrawChoices() {
    for (const std::string& name : WordsOf(row_.params)) {
      const Parameter& parameter = ParameterRow(name);
      if (parameter.type != "choice" || !Rule()) continue;
      const std::vector<std::string> words = WordsOf(parameter.range, '|');
      r_.params[name] =
          words[static_cast<size_t>(random_.Integer(0, static_cast<int64_t>(words.size()) - 1))];
    }
  }

  void DrawExtents() {
    extent("batch") = random_.Integer(1, 3);
    extent("num_kv_heads") = random_.Integer(1, 2);
    extent("num_heads") = extent("num_kv_heads") * random_.Integer(1, 3);
    extent("q_len") = Pick({1, 2, 3, 5, 9, 16, 17, 25});
    const bool same = draw_ == Draw::kLeast || random_.Chance(0.4);
    extent("kv_len") = same ? extent("q_len") : Pick({1, 2, 3, 7, 15, 17, 33, 40});
    if (draw_ != Draw::kLeast && random_.Chance(0.05)) {
      extent("kv_len") = Pick({255, 257, 300});
      extent("q_len") = Pick({1, 3, 7});
      extent("batch") = 1;
    }
    extent("head_dim") = Pick({1, 2, 4, 5, 8, 13});
    extent("head_dim_v") = r_.id == "attention_free" ? extent("head_dim") : Pick({1, 3, 4, 7, 11});
    if (r_.id == "differential" && Rule()) extent("head_dim") += extent("head_dim") % 2;
    const bool inside = Lists("bigbird swin_window neighborhood", r_.id) ||
                        Lists("bigbird axial swin_window neighborhood", r_.Word("pattern"));
    if (inside && Rule()) extent("q_len") = std::min(extent("q_len"), extent("kv_len"));
    // Tokens of a recurrence are queries and keys at once.
    const bool one_len = row_.family == "recurrent"
                             ? !Takes("causal")
                             : Lists("nystrom reformer sinkhorn heavy_hitter", r_.id);
    if (one_len && Rule()) extent("q_len") = extent("kv_len");
    if (draw_ == Draw::kWild && random_.Chance(0.25)) DrawZero();
    DrawOwnExtents();
  }

  void DrawZero() {
    constexpr std::array<const char*, 5> kSymbols = {"batch", "q_len", "kv_len", "head_dim",
                                                     "head_dim_v"};
    extent(kSymbols[static_cast<size_t>(random_.Integer(0, 4))]) = 0;
  }

  // Extents that follow from others, or from rules of their own.
  void DrawOwnExtents() {
    const std::string score = params_.score();
    const bool joins = score == "bilinear" || score == "additive";
    const bool free = joins && r_.id != "differential" && r_.id != "hopfield";
    extent("head_dim_k") = free && random_.Chance(0.5) ? Pick({1, 3, 6}) : extent("head_dim");
    extent("hidden_dim") = Pick({1, 3, 8});
    extent("len") = extent("q_len");
    if (HasInput("x") || HasInput("tokens")) extent("kv_len") = extent("q_len");
    extent("max_len") = std::max(extent("len"), extent("kv_len")) + random_.Integer(0, 3);
    extent("embed_dim") =
        row_.family == "position" ? 2 * random_.Integer(1, 8) : random_.Integer(2, 12);
    for (const char* dim : {"kdim", "vdim", "out_dim", "ff_dim", "q_rank", "kv_rank", "nope_dim"}) {
      extent(dim) = random_.Integer(1, 9);
    }
    if (r_.id == "perceiver") extent("vdim") = extent("kdim");
    if (Lists("transformer_block attention_classifier", r_.id)) {
      extent("kdim") = extent("vdim") = extent("embed_dim");
    }
    if (Lists("transformer_block attention_classifier perceiver", r_.id)) {
      extent("out_dim") = extent("embed_dim");
    }
    if (r_.id == "multi_query") extent("num_kv_heads") = 1;
    if (r_.id == "synthesizer") {
      if (random_.Chance(0.5)) extent("num_kv_heads") = extent("num_heads");
      if (extent("num_kv_heads") != extent("num_heads")) extent("num_kv_heads") = 1;
      dense_ = draw_ == Draw::kLeast || random_.Chance(0.6);
      if (!dense_) extent("q_len") = extent("kv_len");
    }
    DrawStateExtents();
    extent("rope_dim") = 2 * random_.Integer(1, 3);
    extent("vocabulary") = random_.Integer(1, 9);
    extent("num_classes") = random_.Integer(1, 5);
    extent("compress_block") = random_.Integer(1, 6);
    extent("index_heads") = random_.Integer(1, 3);
    extent("index_dim") = random_.Integer(1, 6);
    extent("num_clusters") = random_.Integer(1, 5);
    extent("key_block") = draw_ == Draw::kLeast ? 64 : random_.Integer(1, 12);
    extent("token_blocks") = (extent("q_len") + extent("key_block") - 1) / extent("key_block");
    extent("hash_rounds") = random_.Integer(1, 3);
    extent("half_buckets") = random_.Integer(1, 4);
    extent("num_units") = random_.Integer(1, 9);
    extent("num_inducing") = random_.Integer(1, 5);
    if (row_.family == "low_rank") {
      extent("num_projected") = random_.Integer(1, 9);
      extent("kernel_len") = 2 * random_.Integer(0, 3) + 1;
      extent("compression") = random_.Integer(1, 4);
    }
    extent("num_positions") = random_.Integer(1, 9);
    extent("num_edges") = random_.Integer(0, 60);
    extent("num_pairs") = random_.Integer(0, 60);
    extent("num_global") = random_.Integer(0, 3);
    extent("num_buckets") = 2 * Pick({2, 4, 16});
    extent("num_biases") = 2 * Pick({0, 1, 4, 40}) + 1;
    const std::string rows = r_.Word("relative_rows", r_.id == "disentangled" ? "span" : "clip");
    extent("num_distances") = rows == "clip" ? 2 * Pick({0, 1, 4, 30}) + 1 : 8 * Pick({1, 2, 4});
    extent("num_blocks") = r_.Word("set_block", "isab") == "isab" ? 2 : 1;
    extent("num_matrices") = r_.Word("set_residual", "input") == "input" ? 5 : 4;
    extent("score_dim") = extent("head_dim") * (r_.Word("graph_score", "gat") == "gat" ? 2 : 1);
    if (r_.id == "differential" && joins) extent("hidden_dim") = extent("head_dim") / 2;
    extent("concat_dim") = extent("head_dim") + extent("head_dim_k");
    extent("width") = extent("head_dim");
    extent("q_block") = Pick({1, 4, 16});
    extent("kv_block") = Pick({1, 5, 16});
    const auto blocks = [&](const char* len, const char* block) {
      return (extent(len) + extent(block) - 1) / extent(block);
    };
    extent("q_blocks") = blocks("q_len", "q_block");
    extent("kv_blocks") = blocks("kv_len", "kv_block");
    extent("channels") = random_.Integer(1, 12);
    extent("conv_width") = random_.Integer(1, 5);
    extent("conv_tail") = extent("conv_width") - 1;
    extent("pairs") = extent("embed_dim") / 2;
    extent("rows") = extent("len") + random_.Integer(0, 5);
  }

  void DrawStateExtents() {
    const bool sums = Lists("performer cosformer based", r_.id) ||
                      (r_.id == "linear" && r_.Word("weight_sum", "one") == "one");
    extent("num_features") = random_.Integer(1, 40);
    extent("state_cols") = extent("head_dim_v") + (r_.id == "performer" ? 2 : sums ? 1 : 0);
    const int64_t dim = extent("head_dim");
    // Offsets are drawn up to 9.
    extent("levels") =
        std::bit_width(static_cast<uint64_t>(extent("kv_len") + 10)) + 1 + random_.Integer(0, 1);
    extent("mini_batch") = static_cast<int64_t>(r_.Number("mini_batch", 16));
    if (r_.id == "ttt_linear" && Rule()) {
      extent("state_cols") = extent("head_dim_v") = extent("head_dim");
    }
    extent("state_rows") = r_.id == "performer"    ? extent("num_features")
                           : r_.id == "cosformer"  ? 2 * dim
                           : r_.id == "log_linear" ? (extent("levels") - 1) * dim
                           : r_.id == "ttt_linear" ? 2 * (dim + 1)
                           : r_.id == "based"      ? 1 + dim + dim * (dim + 1) / 2
                                                   : dim;
  }

  // Whether an optional input is drawn.
  bool Wants(const std::string& name) {
    if (name == "initial_state" && r_.id == "ttt_linear") return true;  // zeros are no model
    for (const Reader& reader : kReaders) {
      if (name != reader.input || !Rule()) continue;
      const std::string word = std::string_view(reader.param) == "score" ? params_.score()
                               : std::string_view(reader.param) == "normalize"
                                   ? params_.normalize()
                                   : r_.Word(reader.param, reader.word);
      if (Takes(reader.param) && word != reader.word) return false;
      if (Takes(reader.param) && Lists("score_matrix cope_table", name)) return true;
    }
    if (name == "sinks" && !params_.has_sinks() && Rule()) return false;
    const bool logits = Lists("bias alibi_slopes distance_bias bucket_bias log_gates", name);
    if (logits && params_.normalize() == "kernel_sum" && Rule()) return false;
    if (name == "log_gates" && Takes("causal") && Rule()) {
      if (!random_.Chance(0.3)) return false;
      r_.params["causal"] = true;
      return true;
    }
    if (name == "key_weight" && extent("head_dim_k") != extent("hidden_dim") && Rule()) return true;
    if (name == "w_dq") return random_.Chance(0.75);
    if (name == "norm_q_weight" && !r_.has_input("w_dq") && Rule()) return false;
    if (name == "pool_query" && r_.Word("pooling") != "attention" && Rule()) return false;
    if (name == "pool_query") return true;
    if (name == "inducing") return r_.Word("set_block", "isab") != "sab" || !Rule();
    if (Lists("b_gate block_indptr block_indices", name)) return random_.Chance(0.1);
    return random_.Chance(0.25);
  }

  void DrawInputs() {
    // The rank of x decides whether there is a batch.
    for (const std::string& listed : WordsOf(row_.inputs)) {
      const bool optional = listed.ends_with('?');
      const std::string name = optional ? listed.substr(0, listed.size() - 1) : listed;
      if (name == "captured") continue;
      if (optional && (draw_ == Draw::kLeast ? !Needed(name) : !Wants(name))) {
        if (name == "w_dq") extent("q_rank") = extent("embed_dim");
        continue;
      }
      DrawInput(name);
    }
    for (const auto& [name, other] : kPairs) {
      if (!Rule() || r_.has_input(name) == r_.has_input(other)) continue;
      const bool both = std::string_view(name) != "position_bias" &&
                        std::string_view(name) != "b_gate" && std::string_view(name) != "b_o" &&
                        !Lists("key_conv_bias value_conv_bias", name);
      if (HasInput(other) && r_.has_input(name)) DrawInput(other);
      if (both && !r_.has_input(name)) r_.inputs.erase(other);
    }
    if (r_.id == "synthesizer" && Rule()) ChooseSynthesizer();
    if (r_.has_input("block_keep") && r_.has_input("block_indptr") && Rule()) {
      r_.inputs.erase("block_keep");
    }
    if (params_.score() == "additive" && r_.id != "luong_concat" && Rule()) FitHidden();
  }

  // Optional inputs that one form of a mechanism cannot do without.
  bool Needed(const std::string& name) const {
    if (r_.id == "synthesizer") return name == "q" || name == "synthetic_keys";
    return r_.id == "induced_set" && name == "inducing";
  }

  // Dense or random.
  void ChooseSynthesizer() {
    if (!dense_) {
      for (const char* name : {"q", "synthetic_keys", "synthetic_bias"}) r_.inputs.erase(name);
      r_.inputs.erase("bias");
      DrawInput("synthetic_scores");
      return;
    }
    r_.inputs.erase("synthetic_scores");
    DrawInput("q");
    DrawInput("synthetic_keys");
  }

  // A side without a weight is as wide as hidden_dim.
  void FitHidden() {
    if (!r_.has_input("query_weight")) {
      extent("hidden_dim") = extent("head_dim");
      for (const char* name : {"key_weight", "score_bias", "score_vector"}) {
        if (r_.has_input(name)) DrawInput(name);
      }
    }
    if (!r_.has_input("key_weight") && extent("head_dim_k") != extent("hidden_dim")) {
      DrawInput("key_weight");
    }
  }

  // One of the shapes that the table allows.
  std::vector<std::string> ChooseShape(const std::string& name) {
    std::vector<std::string> shapes = WordsOf(InputRow(name).shape, '|');
    size_t first = 0;
    // The last forms of these know keys of another width.
    if (Lists("score_matrix key_weight", name) && extent("head_dim_k") != extent("head_dim")) {
      first = 2;
    }
    const bool only_first = (row_.family == "layer" && Rule()) || draw_ == Draw::kLeast ||
                            (Lists("induced_set external perceiver", r_.id) && Rule()) ||
                            (Lists("recurrent selective low_rank", row_.family) && Rule()) ||
                            (r_.id == "luong_concat" && name == "score_vector" && Rule());
    const size_t last = only_first ? first : shapes.size() - 1;
    return WordsOf(shapes[static_cast<size_t>(
        random_.Integer(static_cast<int64_t>(first), static_cast<int64_t>(last)))]);
  }

  std::vector<int64_t> DrawShape(const std::string& name) {
    std::vector<int64_t> shape;
    const std::vector<std::string> symbols = ChooseShape(name);
    for (std::string symbol : symbols) {
      const bool broadcast = symbol.ends_with('?');
      if (broadcast) symbol.pop_back();
      if (symbol.find_first_not_of("0123456789") == std::string::npos) {
        shape.push_back(std::stoll(symbol));
        continue;
      }
      if (name == "k" && symbol == "head_dim") symbol = "head_dim_k";
      // Each map has half of q and k.
      const bool half = r_.id == "differential" && name != "q" && name != "k" && Rule();
      if (half && (symbol == "head_dim" || symbol == "head_dim_k" || symbol == "width")) {
        shape.push_back(extent(symbol) / 2);
        continue;
      }
      shape.push_back(broadcast && random_.Chance(0.35) ? 1 : extent(symbol));
    }
    if (name == "x" && shape.size() == 2 && Rule()) extent("batch") = 1;
    if (name == "block_indptr") shape = {extent("q_blocks") + 1};
    return shape;
  }

  void DrawInput(const std::string& name) {
    const Input& row = InputRow(name);
    DrawnTensor& tensor = r_.inputs[name];
    tensor.shape = DrawShape(name);
    tensor.dtype = row.kind == "keep"  ? DType::kUint8
                   : row.kind == "int" ? DType::kInt32
                                       : DType::kFloat32;
    tensor.values.assign(static_cast<size_t>(tensor.size()), 0);
    if (row.kind == "keep") {
      const double kept = 0.01 * static_cast<double>(Pick({10, 50, 90, 100}));
      for (double& x : tensor.values) {
        x = random_.Chance(kept) ? static_cast<double>(random_.Integer(1, 255)) : 0;
      }
    } else if (row.kind == "int") {
      DrawIntegers(name, row, tensor);
    } else {
      DrawFloats(name, row, tensor);
    }
  }

  void DrawFloats(const std::string& name, const Input& row, DrawnTensor& tensor) {
    const double dim = tensor.shape.empty() ? 1 : static_cast<double>(tensor.shape.back());
    const double hidden = name == "bias" && random_.Chance(0.3) ? 0.3 : 0;
    size_t n = 0;
    for (double& x : tensor.values) {
      const double normal = random_.Normal();
      x = normal;
      if (row.draw == "weight") x = normal / std::sqrt(std::max(dim, 1.0));
      if (row.draw == "positive") x = std::exp(0.3 * normal);
      if (row.draw == "slopes") x = std::exp2(-static_cast<double>(++n));
      if (row.draw == "log_gate") x = -0.2 * std::abs(normal);
      if (row.draw == "fraction") x = 1 / (1 + std::exp(-normal));
      if (random_.Chance(hidden)) x = kMinusInfinity;
    }
    if (name == "initial_state" && r_.id == "ttt_linear") {
      for (double& x : tensor.values) x = random_.Normal();
    }
    if (name == "width" && params_.normalize() == "kernel_sum") {
      for (double& x : tensor.values) x = params_.KernelWidth();
    }
    if (params_.chooses()) Quantize(name, tensor);
  }

  // Such that scores are exact floats: then equal ones are equal in float64 too.
  void Quantize(const std::string& name, DrawnTensor& tensor) {
    const double steps = name == "q" || name == "k" || name == "width" ? 4 : 16;
    if (Lists("v output_gate norm_weight lambda", name)) return;
    for (double& x : tensor.values) x = std::round(steps * x) / steps;
    if (name == "width") std::ranges::fill(tensor.values, 1.0);
  }

  void DrawIntegers(const std::string& name, const Input& row, DrawnTensor& tensor) {
    const auto below = [&](const char* symbol) {
      return static_cast<double>(random_.Integer(0, std::max<int64_t>(extent(symbol) - 1, 0)));
    };
    const std::string limit = row.draw.starts_with("index:") ? std::string(row.draw.substr(6)) : "";
    const bool pairs = row.draw == "pairs", edges = row.draw == "edges";
    const bool full = random_.Chance(0.3);
    for (size_t n = 0; n < tensor.values.size(); ++n) {
      double& x = tensor.values[n];
      if (!limit.empty()) x = below(limit.c_str());
      if (pairs) x = below(n % 2 == 0 ? "q_len" : "kv_len");
      if (edges) x = below(n % 2 == 0 ? "kv_len" : "q_len");
      if (row.draw == "lengths") {
        x = static_cast<double>(full ? extent("kv_len") : random_.Integer(0, extent("kv_len")));
      }
      if (Lists("query_documents key_documents", name)) {
        x = static_cast<double>(random_.Integer(-1, 2));
      }
    }
    if (name == "positions" && draw_ == Draw::kLeast) {
      for (size_t n = 0; n < tensor.values.size(); ++n) tensor.values[n] = static_cast<double>(n);
    }
    if (name == "block_indptr") DrawBlocks(tensor);
  }

  // A list of blocks in rows, and their indices.
  void DrawBlocks(DrawnTensor& rows) {
    double count = 0;
    for (size_t n = 1; n < rows.values.size(); ++n) {
      count += static_cast<double>(random_.Integer(0, 2));
      rows.values[n] = count;
    }
    DrawnTensor& indices = r_.inputs["block_indices"];
    indices = {DType::kInt32, {static_cast<int64_t>(count)}, {}};
    for (double n = 0; n < count; ++n) {
      const int64_t last = std::max<int64_t>(extent("kv_blocks") - 1, 0);
      indices.values.push_back(static_cast<double>(random_.Integer(0, last)));
    }
  }

  void DrawParam(const std::string& name) {
    if (r_.param(name) != nullptr && ParameterRow(name).type != "bool") return;
    if (r_.has_input(name) && Rule()) return;  // width and temperature: an input or a parameter
    const bool wild = draw_ == Draw::kWild && !random_.Chance(0.7);
    if (!wild && !params_.Reads(name)) return;
    if (!params_.Needs(name) && !random_.Chance(0.25)) return;
    if (auto value = params_.Value(name)) r_.params[name] = std::move(*value);
  }

  // Rows and columns of patches instead of positions; pairs of both need a multiple of 4.
  void DrawImage() {
    int64_t height = 1;
    for (int64_t n = 2; n <= extent("len"); ++n) {
      if (extent("len") % n == 0 && random_.Chance(0.5)) height = n;
    }
    r_.params["image_height"] = static_cast<double>(height);
    r_.params["image_width"] = static_cast<double>(extent("len") / std::max<int64_t>(height, 1));
    if (!Rule()) return;
    for (const char* name : {"positions", "cos", "sin"}) r_.inputs.erase(name);
    if (extent("embed_dim") < 4) extent("embed_dim") = 4;
    r_.params["rotary_dim"] = static_cast<double>(extent("embed_dim") / 4 * 4);
    DrawInput("x");
  }

  void CaptureSlope() {
    DrawnTensor slope = {DType::kFloat32, {extent("num_heads")}, {}};
    for (int64_t h = 0; h < extent("num_heads"); ++h) slope.values.push_back(random_.Uniform());
    r_.inputs["captured.slope"] = slope;
  }

  // User functions, with the tensors that they read.
  void DrawMods() {
    if (Takes("score_mod") && !params_.chooses() && random_.Chance(0.15) &&
        (params_.normalize() != "kernel_sum" || !Rule())) {
      constexpr std::array<const char*, 5> kMods = {
          "score * 0.5", "tanh(score)", "score - slope[h] * abs(position - kvIndex) / 8",
          "kvIndex % 3 == b ? -inf : score", "score + slope[h]"};
      const size_t n = static_cast<size_t>(random_.Integer(0, 4));
      if (std::string_view(kMods[n]).find("slope") != std::string_view::npos) CaptureSlope();
      r_.params["score_mod"] = std::string(kMods[n]);
      r_.added_score = static_cast<double>(extent("q_len") + extent("kv_len"));
    }
    if (Takes("prob_mod") && random_.Chance(0.1)) {
      r_.params["prob_mod"] =
          std::string(random_.Chance(0.5) ? "prob * 0.5" : "kvIndex % 2 == 0 ? prob : 0");
    }
    if (Takes("keep_mod") && random_.Chance(0.15)) {
      constexpr std::array<const char*, 3> kMods = {"(b + h + qIndex + kvIndex) % 2 == 0",
                                                    "kvIndex <= position", "kvIndex % 3 != 1"};
      r_.params["keep_mod"] = std::string(kMods[static_cast<size_t>(random_.Integer(0, 2))]);
    }
    if (Takes("feature_mod")) DrawFeatureMod();
  }

  void DrawFeatureMod() {
    const bool user = r_.Word("feature_map") == "user";
    const bool free = r_.param("feature_map") == nullptr || !Rule();
    if (user ? !Rule() : !free || !random_.Chance(0.3)) return;
    // Positive, as the words' features are.
    constexpr std::array<const char*, 4> kMods = {"x > 0 ? x + 1 : exp(x)", "exp(x / 2) + d / 8",
                                                  "max(x, 0) * (1 + b) + slope[h]",
                                                  "isKey ? sigmoid(x) : exp(-abs(x))"};
    const size_t n = static_cast<size_t>(random_.Integer(0, 3));
    if (n == 2) CaptureSlope();
    r_.params["feature_mod"] = std::string(kMods[n]);
  }

  // What follows from everything else.
  void Complete() {
    const bool moves = Takes("query_offset") && extent("q_len") != extent("kv_len");
    if (moves && r_.param("query_offset") == nullptr && draw_ != Draw::kLeast && Rule()) {
      r_.params["query_offset"] = *params_.Value("query_offset");
    }
    if (r_.has_input("captured.slope") && r_.Word("score_mod").empty() &&
        r_.Word("feature_mod").empty()) {
      r_.inputs.erase("captured.slope");
    }
    // Signed weights may sum to almost nothing: only positive features are divided by their sum.
    if (r_.Word("feature_map") == "identity") r_.params["weight_sum"] = std::string("free");
    if (r_.has_input("cos") && Rule()) r_.params.erase("scaling");
    // "end" is one number a batch entry.
    if (r_.Word("query_offset") == "end" && Rule() && r_.has_input("key_lengths") &&
        r_.inputs["key_lengths"].shape.size() == 2) {
      r_.params["query_offset"] = 0.0;
    }
    if (params_.chooses() && Takes("scale") && params_.normalize() != "kernel_sum")
      r_.params["scale"] = 0.25;
    if (params_.chooses()) r_.params.erase("softcap");
    if (r_.id == "induced_set" && extent("embed_dim") % 2 == 0 && random_.Chance(0.5)) {
      r_.params["num_heads"] = 2.0;
    }
    if (draw_ != Draw::kLeast && random_.Chance(0.3)) StoreHalf();
  }

  // Queries, keys and values in two bytes, where the mechanism reads them.
  void StoreHalf() {
    const DType dtype = random_.Chance(0.5) ? DType::kFloat16 : DType::kBFloat16;
    const auto store = [&](DType type) {
      for (auto& [name, tensor] : r_.inputs) {
        if (Lists(kRows, name)) tensor.dtype = type;
        tensor.Pack();
      }
    };
    const DrawnRequest before = r_;
    store(dtype);
    try {
      PlanOutputs(r_.request());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kDType) r_ = before;
    }
  }

  const Mechanism& row_;
  Draw draw_;
  bool dense_ = true;  // which synthesizer
  Random random_;
  DrawnRequest r_;
  DrawnParams params_;
};

}  // namespace

DrawnRequest DrawRequest(const Mechanism& row, Draw draw, uint64_t seed) {
  uint64_t mixed = seed * 0x9e3779b97f4a7c15u;
  for (const char letter : row.id) mixed = mixed * 31 + static_cast<uint64_t>(letter);
  return Drawer(row, draw, mixed).Take();
}

}  // namespace heed::testing
