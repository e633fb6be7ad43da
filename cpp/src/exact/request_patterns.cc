#include "src/exact/request_patterns.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "src/choice.h"
#include "src/exact/request.h"
#include "src/message.h"

namespace heed {
namespace {

std::vector<int64_t> Wholes(const RequestReader& reader, const char* name) {
  std::vector<int64_t> wholes;
  for (const double number : reader.Numbers(name)) wholes.push_back(WholeNumber(name, number));
  // To the options, no values mean the default.
  if (wholes.empty() && reader.Param(name) != nullptr) {
    Fail(ErrorCode::kShape, "{} has 0 values; expected at least one", {name});
  }
  return wholes;
}

void SetCount(const RequestReader& reader, const char* name, int64_t& field) {
  if (const auto count = reader.Count(name)) field = *count;
}

// The largest divisor of an extent up to 7, the window of the papers.
int64_t DefaultSwinWindow(int64_t extent) {
  int64_t window = 7;
  while (extent > 0 && extent % window != 0) --window;
  return window;
}

// One overload for each alternative of KeepPattern that has parameters.
struct ReadPattern {
  const RequestReader& reader;
  const PatternSizes& sizes;

  void operator()(DilatedWindow& rule) const {
    SetCount(reader, "reach", rule.reach);
    rule.dilation = Wholes(reader, "dilation");
  }
  void operator()(Longformer& rule) const {
    SetCount(reader, "reach", rule.reach);
    rule.dilation = Wholes(reader, "dilation");
    const std::span<const int32_t> tokens = reader.Ints("global_tokens");
    rule.global_tokens.assign(tokens.begin(), tokens.end());
  }
  void operator()(BigBird& rule) const {
    const std::vector<int64_t> size = Wholes(reader, "block_size");
    if (size.size() > 1) {
      Fail(ErrorCode::kShape, "block_size has {} values; bigbird expects one", {size.size()});
    }
    if (!size.empty()) rule.block_size = size[0];
    SetCount(reader, "window_blocks", rule.window_blocks);
    SetCount(reader, "global_blocks", rule.global_blocks);
    SetCount(reader, "last_blocks", rule.last_blocks);
    SetCount(reader, "random_blocks", rule.random_blocks);
    rule.seed = reader.Seed("pattern_seed").value_or(rule.seed);
  }
  void operator()(Strided& rule) const { SetCount(reader, "stride", rule.stride); }
  void operator()(Fixed& rule) const {
    SetCount(reader, "stride", rule.stride);
    SetCount(reader, "summary", rule.summary);
  }
  void operator()(Axial& rule) const {
    rule.grid = ReadGrid(2);
    rule.axis = reader.Count("axis");
  }
  void operator()(SwinWindow& rule) const {
    rule.grid = ReadGrid(2);
    rule.window_size = Wholes(reader, "window_size");
    rule.shift = Wholes(reader, "shift");
    if (!rule.window_size.empty()) return;
    for (const int64_t extent : rule.grid) rule.window_size.push_back(DefaultSwinWindow(extent));
  }
  void operator()(Neighborhood& rule) const {
    rule.grid = ReadGrid(1);
    rule.window_size = Wholes(reader, "window_size");
    rule.dilation = Wholes(reader, "dilation");
    for (size_t axis = 0; axis < rule.grid.size() && reader.Param("window_size") == nullptr;
         ++axis) {
      const auto& d = rule.dilation;
      const int64_t step = d.empty() ? 1 : d[std::min(axis, d.size() - 1)];
      rule.window_size.push_back(
          std::min<int64_t>(7, rule.grid[axis] / std::max<int64_t>(step, 1)));
    }
  }
  void operator()(BlockList&) const {}
  void operator()(PairList&) const {}

 private:
  // Absent: one line of tokens.
  std::vector<int64_t> ReadGrid(size_t axes) const {
    std::vector<int64_t> grid = Wholes(reader, "grid");
    if (!grid.empty()) return grid;
    grid.assign(axes, 1);
    grid.back() = sizes.kv_len;
    return grid;
  }
};

using MakePattern = KeepPattern (*)();
template <class Pattern>
KeepPattern Make() {
  return Pattern();
}

constexpr Choice<MakePattern> kPatterns[] = {{"dilated", Make<DilatedWindow>},
                                             {"longformer", Make<Longformer>},
                                             {"bigbird", Make<BigBird>},
                                             {"strided", Make<Strided>},
                                             {"fixed", Make<Fixed>},
                                             {"axial", Make<Axial>},
                                             {"swin_window", Make<SwinWindow>},
                                             {"neighborhood", Make<Neighborhood>}};

BlockList BlocksOfSize(const RequestReader& reader) {
  BlockList list;
  const std::vector<int64_t> size = Wholes(reader, "block_size");
  if (size.size() > 2) {
    Fail(ErrorCode::kShape, "block_size has {} values; expected one, or queries and keys",
         {size.size()});
  }
  if (!size.empty()) {
    list.q_block = size.front();
    list.kv_block = size.back();
  }
  return list;
}

void ReadLists(const RequestReader& reader, AttentionOptions& o) {
  if (reader.Input("block_indptr") != nullptr || reader.Input("block_indices") != nullptr) {
    BlockList list = BlocksOfSize(reader);
    list.indptr = reader.Ints("block_indptr");
    list.indices = reader.Ints("block_indices");
    o.patterns.push_back(list);
  }
  if (reader.Input("block_keep") != nullptr) {
    BlockList list = BlocksOfSize(reader);
    list.keep = reader.ByteTensor("block_keep");
    o.patterns.push_back(list);
  }
  if (const AnyTensor* pairs = reader.Input("keep_pairs")) {
    if (pairs->rank != 2 || pairs->shape[1] != 2) {
      Fail(ErrorCode::kShape, "keep_pairs must have the shape [num_pairs, 2]: pairs (query, key)");
    }
    o.patterns.push_back(PairList{reader.Ints("keep_pairs")});
  }
}

// [len] or [batch, len]. The options know only how many values there are.
std::span<const int32_t> ReadDocuments(const RequestReader& reader, std::string_view name,
                                       int64_t batch, int64_t len) {
  const std::span<const int32_t> ids = reader.Ints(name);
  const AnyTensor* tensor = reader.Input(name);
  if (tensor == nullptr) return ids;
  if (tensor->rank == 1 && tensor->shape[0] == len) return ids;
  if (tensor->rank == 2 && tensor->shape[0] == batch && tensor->shape[1] == len) return ids;
  Fail(ErrorCode::kShape, "{} must have the shape [{}] or [{}, {}]", {name, len, batch, len});
}

AttentionOptions Preset(KeepPattern pattern) {
  AttentionOptions options;
  options.patterns.push_back(std::move(pattern));
  return options;
}

}  // namespace

void ReadPatterns(const RequestReader& reader, const PatternSizes& sizes, AttentionOptions& o) {
  if (const auto make = ReadChoice(reader, "pattern", kPatterns)) o.patterns.push_back((*make)());
  for (KeepPattern& pattern : o.patterns) std::visit(ReadPattern{reader, sizes}, pattern);
  ReadLists(reader, o);
  o.prefix_lengths = reader.Ints("prefix_lengths");
  const bool queries = reader.Input("query_documents") != nullptr;
  if (queries != (reader.Input("key_documents") != nullptr)) {
    throw Error(ErrorCode::kOption, std::string(queries ? "key_documents" : "query_documents") +
                                        " is missing: query_documents and key_documents go "
                                        "together");
  }
  o.query_documents = ReadDocuments(reader, "query_documents", sizes.batch, sizes.q_len);
  o.key_documents = ReadDocuments(reader, "key_documents", sizes.batch, sizes.kv_len);
}

AttentionOptions LongformerPreset() { return Preset(Longformer()); }
AttentionOptions BigBirdPreset() { return Preset(BigBird()); }
AttentionOptions SwinWindowPreset() { return Preset(SwinWindow()); }
AttentionOptions NeighborhoodPreset() { return Preset(Neighborhood()); }

}  // namespace heed
