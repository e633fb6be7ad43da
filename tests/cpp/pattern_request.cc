#include "pattern_request.h"

#include <variant>

namespace heed::testing {
namespace {

void AddNumber(Request& request, const char* name, int64_t number) {
  request.params.push_back({name, static_cast<double>(number)});
}

void AddNumbers(Request& request, const char* name, const std::vector<int64_t>& numbers) {
  if (numbers.empty()) return;
  request.params.push_back({name, std::vector<double>(numbers.begin(), numbers.end())});
}

void AddInts(Request& request, const char* name, const std::vector<int32_t>& values,
             std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  int32_t* data = const_cast<int32_t*>(values.data());
  request.inputs.push_back({name, ContiguousTensor(DType::kInt32, data, shape)});
}

// One overload for each alternative of KeepPattern.
struct AddPattern {
  Request& request;
  const std::vector<int32_t>& global_tokens;

  void Word(const char* word) const { request.params.push_back({"pattern", std::string(word)}); }

  void operator()(const DilatedWindow& rule) const {
    Word("dilated");
    AddNumber(request, "reach", rule.reach);
    AddNumbers(request, "dilation", rule.dilation);
  }
  void operator()(const Longformer& rule) const {
    Word("longformer");
    AddNumber(request, "reach", rule.reach);
    AddNumbers(request, "dilation", rule.dilation);
    AddInts(request, "global_tokens", global_tokens);
  }
  void operator()(const BigBird& rule) const {
    Word("bigbird");
    AddNumber(request, "block_size", rule.block_size);
    AddNumber(request, "window_blocks", rule.window_blocks);
    AddNumber(request, "global_blocks", rule.global_blocks);
    AddNumber(request, "last_blocks", rule.last_blocks);
    AddNumber(request, "random_blocks", rule.random_blocks);
    request.params.push_back({"pattern_seed", std::to_string(rule.seed)});
  }
  void operator()(const Strided& rule) const {
    Word("strided");
    AddNumber(request, "stride", rule.stride);
  }
  void operator()(const Fixed& rule) const {
    Word("fixed");
    AddNumber(request, "stride", rule.stride);
    AddNumber(request, "summary", rule.summary);
  }
  void operator()(const Axial& rule) const {
    Word("axial");
    AddNumbers(request, "grid", rule.grid);
    if (rule.axis) AddNumber(request, "axis", *rule.axis);
  }
  void operator()(const SwinWindow& rule) const {
    Word("swin_window");
    AddNumbers(request, "grid", rule.grid);
    AddNumbers(request, "window_size", rule.window_size);
    AddNumbers(request, "shift", rule.shift);
  }
  void operator()(const Neighborhood& rule) const {
    Word("neighborhood");
    AddNumbers(request, "grid", rule.grid);
    AddNumbers(request, "window_size", rule.window_size);
    AddNumbers(request, "dilation", rule.dilation);
  }
  void operator()(const BlockList&) const {}
  void operator()(const PairList&) const {}
};

void AddDocuments(const AttentionCase& c, Request& request) {
  if (c.query_documents.empty()) return;
  const auto shape = [&](const std::vector<int32_t>& ids, int64_t len) {
    const bool shared = static_cast<int64_t>(ids.size()) == len;
    return shared ? std::vector<int64_t>{len} : std::vector<int64_t>{c.sizes.batch, len};
  };
  AddInts(request, "query_documents", c.query_documents, shape(c.query_documents, c.sizes.q_len));
  AddInts(request, "key_documents", c.key_documents, shape(c.key_documents, c.sizes.kv_len));
}

}  // namespace

bool HasPatterns(const AttentionCase& c) {
  return !c.scalars.patterns.empty() || c.lists.block_keep.has_value() ||
         !c.lists.block_indptr.empty() || c.lists.pairs.has_value() || !c.prefix_lengths.empty() ||
         !c.query_documents.empty();
}

void AppendLists(const KeepLists& lists, std::vector<KeepPattern>& patterns) {
  if (lists.block_keep.has_value()) {
    BlockList blocks = {lists.q_block, lists.kv_block, lists.block_keep.view(), {}, {}};
    patterns.push_back(blocks);
  }
  if (!lists.block_indptr.empty()) {
    BlockList blocks = {lists.q_block, lists.kv_block, {}, lists.block_indptr, lists.block_indices};
    patterns.push_back(blocks);
  }
  if (lists.pairs) patterns.push_back(PairList{*lists.pairs});
}

void AddPatterns(const AttentionCase& c, Request& request) {
  for (const KeepPattern& pattern : c.scalars.patterns) {
    std::visit(AddPattern{request, c.global_tokens}, pattern);
  }
  const KeepLists& lists = c.lists;
  if (lists.block_keep.has_value() || !lists.block_indptr.empty()) {
    AddNumbers(request, "block_size", {lists.q_block, lists.kv_block});
  }
  if (lists.block_keep.has_value()) {
    AnyTensor tensor = lists.block_keep.any(DType::kUint8, 3);
    const Extents shape = lists.block_keep.view().shape;
    const Extents strides = lists.block_keep.view().strides;
    for (size_t axis = 0; axis < 3; ++axis) {
      tensor.shape[axis] = shape[axis + 1];
      tensor.strides[axis] = strides[axis + 1];
    }
    request.inputs.push_back({"block_keep", tensor});
  }
  if (!lists.block_indptr.empty()) {
    AddInts(request, "block_indptr", lists.block_indptr);
    AddInts(request, "block_indices", lists.block_indices);
  }
  if (lists.pairs) {
    AddInts(request, "keep_pairs", *lists.pairs,
            {static_cast<int64_t>(lists.pairs->size() / 2), 2});
  }
  if (!c.prefix_lengths.empty()) AddInts(request, "prefix_lengths", c.prefix_lengths);
  AddDocuments(c, request);
}

std::vector<std::string> Picture(const KeepPattern& pattern, int64_t len, int64_t num_heads,
                                 int64_t head) {
  AttentionOptions options;
  options.patterns.push_back(pattern);
  std::vector<uint8_t> cells(static_cast<size_t>(num_heads * len * len), 2);
  const auto picture = Contiguous(cells.data(), 1, num_heads, len, len);
  Explain(options, picture);
  std::vector<std::string> lines;
  for (int64_t i = 0; i < len; ++i) {
    std::string line;
    for (int64_t j = 0; j < len; ++j) {
      const uint8_t cell = picture(0, head, i, j);
      line += cell == 0 ? '.' : cell == 1 ? 'x' : '?';
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace heed::testing
