#include "src/exact/validate_patterns.h"

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

#include "heed/error.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr int64_t kMaxPosition = int64_t{1} << 53;
constexpr int64_t kMaxIndex = std::numeric_limits<int32_t>::max();

void CheckRange(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  Fail(ErrorCode::kRange, "{} = {}; it must lie in [{}, {}]", {name, value, low, high});
}

void CheckCount(std::string_view name, size_t count, size_t allowed, std::string_view meaning) {
  if (count == 1 || count == allowed) return;
  Fail(ErrorCode::kShape, "{} has {} values; expected 1 or {} = {}",
       {name, count, meaning, allowed});
}

void CheckIndices(std::string_view name, std::span<const int32_t> values, int64_t count,
                  std::string_view what) {
  for (const int32_t value : values) {
    if (value >= 0 && value < count) continue;
    Fail(ErrorCode::kRange, "{} holds {}; there are {} {}", {name, value, count, what});
  }
}

int64_t BlocksOf(int64_t len, int64_t block) { return (len + block - 1) / block; }

// For rules that know only the tokens of the keys.
void CheckPositionsInside(const AttentionProblem& p, const char* pattern) {
  for (const int64_t position : p.position) {
    if (p.q_len == 0 || (position >= 0 && position + p.q_len <= p.kv_len)) continue;
    Fail(ErrorCode::kRange, "query_offset = {} with q_len = {} leaves the kv_len = {} tokens of {}",
         {position, p.q_len, p.kv_len, pattern});
  }
}

void CheckGrid(const AttentionProblem& p, const std::vector<int64_t>& grid, size_t least,
               size_t most, const char* pattern) {
  if (grid.size() < least || grid.size() > most) {
    Fail(ErrorCode::kShape, "grid has {} extents; {} expects {}{}",
         {grid.size(), pattern, least, (least == most ? "" : " to " + std::to_string(most))});
  }
  int64_t tokens = 1;
  for (const int64_t extent : grid) {
    CheckRange("grid", extent, 1, kMaxPosition);
    if (__builtin_mul_overflow(tokens, extent, &tokens)) {
      Fail(ErrorCode::kShape, "grid has more than 2^63 tokens; expected kv_len = {}", {p.kv_len});
    }
  }
  if (tokens != p.kv_len) {
    Fail(ErrorCode::kShape, "grid has {} tokens; expected kv_len = {}", {tokens, p.kv_len});
  }
  CheckPositionsInside(p, pattern);
}

void CheckDilatedWindow(const AttentionProblem& p, int64_t reach,
                        const std::vector<int64_t>& dilation) {
  CheckRange("reach", reach, 0, kMaxPosition);
  if (!dilation.empty()) {
    CheckCount("dilation", dilation.size(), static_cast<size_t>(p.num_heads), "num_heads");
  }
  for (const int64_t step : dilation) {
    CheckRange("dilation", step, 1, kMaxPosition / std::max<int64_t>(reach, 1));
  }
}

// One overload for each alternative of KeepPattern.
struct CheckPattern {
  const AttentionProblem& p;

  void operator()(DilatedWindow& rule) const { CheckDilatedWindow(p, rule.reach, rule.dilation); }
  void operator()(Longformer& rule) const {
    CheckDilatedWindow(p, rule.reach, rule.dilation);
    for (const int64_t token : rule.global_tokens) {
      CheckRange("global_tokens", token, 0, kMaxPosition);
    }
  }
  void operator()(BigBird& rule) const {
    CheckRange("block_size", rule.block_size, 1, kMaxPosition);
    CheckRange("window_blocks", rule.window_blocks, 1, kMaxPosition);
    if (rule.window_blocks % 2 == 0) {
      Fail(ErrorCode::kRange,
           "window_blocks = {}; it must be odd: the own block and as many on each side",
           {rule.window_blocks});
    }
    CheckRange("global_blocks", rule.global_blocks, 0, kMaxPosition);
    CheckRange("last_blocks", rule.last_blocks, 0, kMaxPosition);
    CheckRange("random_blocks", rule.random_blocks, 0, kMaxPosition);
    rule.block_size = std::min(rule.block_size, std::max<int64_t>(p.kv_len, 1));
    CheckRange("kv_len / block_size", BlocksOf(p.kv_len, rule.block_size), 0, kMaxIndex);
    CheckPositionsInside(p, "bigbird");
  }
  void operator()(Strided& rule) const { CheckRange("stride", rule.stride, 1, kMaxPosition); }
  void operator()(Fixed& rule) const {
    CheckRange("stride", rule.stride, 1, kMaxPosition);
    CheckRange("summary", rule.summary, 1, rule.stride);
  }
  void operator()(Axial& rule) const {
    CheckGrid(p, rule.grid, 2, 3, "axial");
    if (rule.axis) CheckRange("axis", *rule.axis, 0, static_cast<int64_t>(rule.grid.size()) - 1);
  }
  void operator()(SwinWindow& rule) const {
    CheckGrid(p, rule.grid, 2, 2, "swin_window");
    CheckCount("window_size", rule.window_size.size(), 2, "one an axis");
    if (!rule.shift.empty()) CheckCount("shift", rule.shift.size(), 2, "one an axis");
    rule.window_size.resize(2, rule.window_size[0]);
    rule.shift.resize(2, rule.shift.empty() ? 0 : rule.shift[0]);
    for (size_t axis = 0; axis < 2; ++axis) {
      CheckRange("window_size", rule.window_size[axis], 1, rule.grid[axis]);
      CheckRange("shift", rule.shift[axis], 0, rule.window_size[axis] - 1);
      if (rule.grid[axis] % rule.window_size[axis] == 0) continue;
      Fail(ErrorCode::kShape, "window_size = {} does not divide the extent {} of grid",
           {rule.window_size[axis], rule.grid[axis]});
    }
  }
  void operator()(Neighborhood& rule) const {
    CheckGrid(p, rule.grid, 1, 3, "neighborhood");
    const size_t axes = rule.grid.size();
    CheckCount("window_size", rule.window_size.size(), axes, "one an axis");
    if (!rule.dilation.empty()) CheckCount("dilation", rule.dilation.size(), axes, "one an axis");
    rule.window_size.resize(axes, rule.window_size[0]);
    rule.dilation.resize(axes, rule.dilation.empty() ? 1 : rule.dilation[0]);
    for (size_t axis = 0; axis < axes; ++axis) {
      CheckRange("dilation", rule.dilation[axis], 1, rule.grid[axis]);
      CheckRange("window_size", rule.window_size[axis], 1, rule.grid[axis] / rule.dilation[axis]);
    }
  }
  void operator()(BlockList& rule) const {
    CheckRange("block_size", rule.q_block, 1, kMaxPosition);
    CheckRange("block_size", rule.kv_block, 1, kMaxPosition);
    rule.q_block = std::min(rule.q_block, std::max<int64_t>(p.q_len, 1));
    rule.kv_block = std::min(rule.kv_block, std::max<int64_t>(p.kv_len, 1));
    CheckRange("kv_len / block_size", BlocksOf(p.kv_len, rule.kv_block), 0, kMaxIndex);
    if (rule.keep.has_value() == !rule.indptr.empty()) {
      Fail(ErrorCode::kOption, "a block list needs block_keep, or block_indptr and block_indices");
    }
    if (rule.keep.has_value()) {
      CheckMask(rule);
    } else {
      CheckRows(rule);
    }
  }
  void operator()(PairList& rule) const {
    if (rule.pairs.size() % 2 != 0) {
      Fail(ErrorCode::kShape, "keep_pairs has {} values; expected pairs (query, key)",
           {rule.pairs.size()});
    }
    for (size_t n = 0; n < rule.pairs.size(); n += 2) {
      CheckIndices("keep_pairs", rule.pairs.subspan(n, 1), p.q_len, "queries");
      CheckIndices("keep_pairs", rule.pairs.subspan(n + 1, 1), p.kv_len, "keys");
    }
  }

 private:
  void CheckMask(const BlockList& rule) const {
    CheckPresent("block_keep", rule.keep);
    const Extents shape = {1, rule.keep.shape[1] == 1 ? 1 : p.num_heads,
                           BlocksOf(p.q_len, rule.q_block), BlocksOf(p.kv_len, rule.kv_block)};
    CheckShape("block_keep", rule.keep.shape, shape,
               "[1, 1 or num_heads, q_len / block_size, kv_len / block_size], rounded up");
  }

  void CheckRows(const BlockList& rule) const {
    const int64_t rows = BlocksOf(p.q_len, rule.q_block);
    const int64_t count = static_cast<int64_t>(rule.indptr.size());
    if (count != rows + 1 && count != p.num_heads * rows + 1) {
      Fail(ErrorCode::kShape, "block_indptr has {} values; expected {}, or {} for one list a head",
           {count, rows + 1, p.num_heads * rows + 1});
    }
    const bool ordered = std::is_sorted(rule.indptr.begin(), rule.indptr.end());
    if (rule.indptr.front() != 0 || !ordered ||
        rule.indptr.back() != static_cast<int64_t>(rule.indices.size())) {
      Fail(ErrorCode::kRange,
           "block_indptr must begin with 0, not decrease and end with {}, the number of "
           "block_indices",
           {rule.indices.size()});
    }
    CheckIndices("block_indices", rule.indices, BlocksOf(p.kv_len, rule.kv_block),
                 "blocks of keys");
  }
};

void CheckDocuments(const AttentionProblem& p, std::string_view name, std::span<const int32_t> ids,
                    int64_t len) {
  const int64_t count = static_cast<int64_t>(ids.size());
  if (count == len || count == p.batch * len) return;
  Fail(ErrorCode::kShape, "{} has {} values; expected {} or batch times as many = {}",
       {name, count, len, p.batch * len});
}

}  // namespace

const char* PatternOfPositions(const AttentionOptions& o) {
  if (!o.prefix_lengths.empty()) return "prefix_lengths";
  for (const KeepPattern& pattern : o.patterns) {
    const bool indexed =
        std::holds_alternative<BlockList>(pattern) || std::holds_alternative<PairList>(pattern);
    if (!indexed) return "pattern";
  }
  return nullptr;
}

void CheckPatterns(AttentionProblem& p) {
  AttentionOptions& o = p.options;
  if (!o.prefix_lengths.empty()) {
    if (o.prefix_lengths.size() != static_cast<size_t>(p.batch)) {
      Fail(ErrorCode::kShape, "prefix_lengths has {} values; expected batch = {}",
           {o.prefix_lengths.size(), p.batch});
    }
    for (const int32_t length : o.prefix_lengths) CheckRange("prefix_lengths", length, 0, p.kv_len);
  }
  if (!o.query_documents.empty() || !o.key_documents.empty()) {
    CheckDocuments(p, "query_documents", o.query_documents, p.q_len);
    CheckDocuments(p, "key_documents", o.key_documents, p.kv_len);
  }
  for (KeepPattern& pattern : o.patterns) std::visit(CheckPattern{p}, pattern);
}

}  // namespace heed
