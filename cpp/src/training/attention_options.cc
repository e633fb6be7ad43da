#include "src/training/attention_options.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include "heed/gradient.h"
#include "src/param_checks.h"
#include "src/training/checks.h"
#include "src/training/mechanism_row.h"
#include "src/word_lists.h"

namespace heed::training {
namespace {

void CheckSizes(const AttentionLayerOptions& o) {
  CheckCount("embed_dim", o.embed_dim);
  CheckCount("num_heads", o.num_heads);
  CheckCount("num_kv_heads", o.num_kv_heads);
  if (o.embed_dim % o.num_heads != 0) {
    Fail(ErrorCode::kRange, "embed_dim = {}; it must be a multiple of num_heads = {}",
         {o.embed_dim, o.num_heads});
  }
  if (o.num_heads % o.num_kv_heads != 0) {
    Fail(ErrorCode::kRange, "num_heads = {}; it must be a multiple of num_kv_heads = {}",
         {o.num_heads, o.num_kv_heads});
  }
}

void CheckPosition(const AttentionLayerOptions& o, const Mechanism& row) {
  if (o.position == HeadPosition::kAlibi && !HasWord(row.inputs, "alibi_slopes")) {
    Fail(ErrorCode::kUnsupported, "position: mechanism \"{}\" takes no ALiBi slopes",
         {o.mechanism});
  }
  if (o.position != HeadPosition::kRope) return;
  if (!HasWord(row.inputs, "k")) {
    Fail(ErrorCode::kUnsupported,
         "position: mechanism \"{}\" has no keys to turn; give a position that is not rope",
         {o.mechanism});
  }
  if (o.embed_dim / o.num_heads % 2 != 0) {
    Fail(ErrorCode::kRange, "embed_dim / num_heads = {}; position rope needs an even number",
         {o.embed_dim / o.num_heads});
  }
  CheckRopeBase(o.rope_base);
}

bool HasParam(const AttentionLayerOptions& o, std::string_view name) {
  return std::any_of(o.params.begin(), o.params.end(),
                     [&](const NamedParam& param) { return param.name == name; });
}

void CheckParams(const AttentionLayerOptions& o, const Mechanism& row) {
  for (const NamedParam& param : o.params) {
    if (param.name == "causal") {
      Fail(ErrorCode::kOption, "params: causal is an option of the layer");
    }
    if (!HasWord(row.params, param.name)) {
      Fail(ErrorCode::kOption, "params: mechanism \"{}\" has no parameter {}; it has {}",
           {o.mechanism, param.name, row.params});
    }
    if (param.name.starts_with("return_")) {
      Fail(ErrorCode::kOption, "params: {} asks for a result that no layer reads", {param.name});
    }
    CheckParam(param);
  }
  if (HasParam(o, "dropout_seed") && !HasParam(o, "dropout_p")) {
    Fail(ErrorCode::kOption, "params: dropout_seed is read only beside dropout_p");
  }
  CheckRead(row, {o.mechanism, {}, o.params});
}

void CheckCausal(const AttentionLayerOptions& o, const Mechanism& row) {
  const bool can_be_causal = HasWord(row.capabilities, "causal");
  if (!o.causal && can_be_causal && !HasWord(row.params, "causal")) {
    Fail(ErrorCode::kUnsupported, "causal: mechanism \"{}\" is causal by nature", {o.mechanism});
  }
  if (o.causal && !can_be_causal) {
    Fail(ErrorCode::kUnsupported,
         "causal: rows of mechanism \"{}\" hold all tokens of the context; give causal = false",
         {o.mechanism});
  }
}

// A parameter's numbers; none where it is absent, or a flag or a word.
std::vector<double> NumbersOf(const AttentionLayerOptions& o, std::string_view name) {
  for (const NamedParam& param : o.params) {
    if (param.name != name) continue;
    if (const auto* number = std::get_if<double>(&param.value)) return {*number};
    if (const auto* list = std::get_if<std::vector<double>>(&param.value)) return *list;
  }
  return {};
}

// A length that the parameters ask for: grids, windows of grids and landmarks do not fit every one.
int64_t LengthFor(const AttentionLayerOptions& o) {
  constexpr double kLargest = 0x1p40;  // no sequence is as long
  double length = 1;
  const auto take = [&](std::string_view name) {
    for (const double factor : NumbersOf(o, name)) {
      length = std::min(length * std::max(factor, 1.0), kLargest);
    }
  };
  if (HasParam(o, "grid")) {
    take("grid");
    return static_cast<int64_t>(length);
  }
  for (const std::string_view name : {"window_size", "dilation", "num_landmarks"}) take(name);
  // Windows have this width by default, and are shifted by less.
  if (HasParam(o, "shift") && !HasParam(o, "window_size")) length *= 7;
  return static_cast<int64_t>(length);
}

// Entries of the batch: positions may be given for each.
int64_t BatchFor(const AttentionLayerOptions& o) {
  const size_t count =
      std::max(NumbersOf(o, "query_offset").size(), NumbersOf(o, "position_offset").size());
  return std::max<int64_t>(1, static_cast<int64_t>(count));
}

// Rows that are all the same zeros: checks read some numbers of heads and tokens, and of the rest
// only the shapes.
AnyTensor SharedRows(const std::vector<int64_t>& shape, std::vector<float>& row) {
  AnyTensor tensor = {DType::kFloat32, row.data(), static_cast<int>(shape.size()), {}, {}};
  std::copy(shape.begin(), shape.end(), tensor.shape.begin());
  tensor.strides[shape.size() - 1] = 1;
  return tensor;
}

// A call of the layer's mechanism, with dropout: what is wrong without it is wrong with it too.
// Parameters that no length and no numbers would make right are refused by its plan.
void CheckCall(const AttentionLayerOptions& o, const Mechanism& row) {
  const int64_t head_dim = o.embed_dim / o.num_heads, batch = BatchFor(o), len = LengthFor(o);
  const std::vector<int64_t> keys = {batch, o.num_kv_heads, len, head_dim};
  std::vector<std::pair<std::string_view, std::vector<int64_t>>> shapes = {
      {"q", {batch, o.num_heads, len, head_dim}}, {"v", keys}};
  if (HasWord(row.inputs, "k")) shapes.push_back({"k", keys});
  for (const std::string_view gate : GateInputs(row)) {
    const int64_t heads = gate == "log_gates" ? o.num_heads : o.num_kv_heads;
    const std::vector<int64_t> numbers = {batch, heads, len};
    shapes.push_back({gate, gate == "channel_log_decay" ? keys : numbers});
  }
  for (const std::string_view input : LearnedInputs(row)) {
    shapes.push_back({input, LearnedShape(input, o)});
  }
  if (o.position == HeadPosition::kAlibi) shapes.push_back({"alibi_slopes", {o.num_heads}});
  int64_t longest = 0;
  for (const auto& [name, shape] : shapes) longest = std::max(longest, shape.back());
  std::vector<float> zeros;
  MakeRoom("what checks read", longest, zeros);
  Request request = {o.mechanism, {}, o.params};
  if (HasWord(row.params, "causal")) request.params.push_back({"causal", o.causal});
  for (const auto& [name, shape] : shapes) {
    request.inputs.push_back({std::string(name), SharedRows(shape, zeros)});
  }
  PlanBackward(request);
}

}  // namespace

void CheckRopeBase(double base) {
  if (base > 1 && std::isfinite(base)) return;
  Fail(ErrorCode::kRange, "rope_base = {}; it must be finite and above 1", {base});
}

std::vector<int64_t> LearnedShape(std::string_view input, const AttentionLayerOptions& options) {
  const int64_t head_dim = options.embed_dim / options.num_heads;
  if (input == "bonus") return {options.num_heads, head_dim};
  if (input == "score_matrix") return {head_dim, head_dim};
  return {options.num_heads};
}

AttentionLayerOptions CheckedAttention(AttentionLayerOptions options) {
  if (options.num_kv_heads == 0) options.num_kv_heads = options.num_heads;
  CheckSizes(options);
  const Mechanism& row = TrainableMechanism(options.mechanism);
  CheckParams(options, row);
  CheckCausal(options, row);
  CheckPosition(options, row);
  CheckCall(options, row);
  return options;
}

}  // namespace heed::training
