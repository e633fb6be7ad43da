// Block-sparse attention: any list of blocks or edges, and named patterns.
//
// Sources: Child et al. 2019, arXiv:1904.10509, section 4.3 (strided, fixed); Ho et al. 2019,
// arXiv:1912.12180 (axial).
#include <set>
#include <utility>
#include <vector>

#include "exact.h"
#include "patterns.h"

namespace heed::reference {
namespace {

// Queries and keys of a block.
std::pair<int64_t, int64_t> ReadBlockSize(const Request& request) {
  const std::vector<int64_t> size = ReadWholes(request, "block_size", 1);
  if (size.size() > 2) {
    throw Error(ErrorCode::kShape, "block_size: expected one number, or queries and keys");
  }
  if (size.empty()) return {64, 64};
  return {size.front(), size.back()};
}

PairRule MaskRule(const Request& request, const Qkv& qkv) {
  const Array keep = *ReadBytes(request, "block_keep");
  const auto [q_block, kv_block] = ReadBlockSize(request);
  const Extents expected = {1, keep.shape[1] == 1 ? 1 : qkv.num_heads,
                            (qkv.q_len + q_block - 1) / q_block,
                            (qkv.kv_len + kv_block - 1) / kv_block};
  if (keep.shape != expected) {
    throw Error(ErrorCode::kShape, "block_keep: expected [num_heads or 1, q_blocks, kv_blocks]");
  }
  return [keep, q = q_block, kv = kv_block](const Pair& at) {
    return keep(0, at.h, at.i / q, at.j / kv) != 0;
  };
}

PairRule RowsRule(const Request& request, const Qkv& qkv) {
  const auto starts = ReadIntegers(request, "block_indptr");
  const auto blocks = ReadIntegers(request, "block_indices");
  if (!starts || !blocks) {
    throw Error(ErrorCode::kOption, "block_indptr and block_indices go together");
  }
  const auto [q_block, kv_block] = ReadBlockSize(request);
  const int64_t rows = (qkv.q_len + q_block - 1) / q_block;
  const int64_t given = static_cast<int64_t>(starts->values.size());
  if (given != rows + 1 && given != qkv.num_heads * rows + 1) {
    throw Error(ErrorCode::kShape, "block_indptr: expected one value more than block rows");
  }
  std::set<std::pair<int64_t, int64_t>> seen;
  double last = 0;
  for (int64_t row = 0; row + 1 < given; ++row) {
    const double end = starts->values[row + 1];
    if (starts->values[0] != 0 || end < last || end > static_cast<double>(blocks->values.size())) {
      throw Error(ErrorCode::kRange, "block_indptr: must begin with 0 and not decrease");
    }
    for (double n = last; n < end; ++n) {
      const double block = blocks->values[static_cast<size_t>(n)];
      if (block < 0 || block * static_cast<double>(kv_block) >= static_cast<double>(qkv.kv_len)) {
        throw Error(ErrorCode::kRange, "block_indices: no such block");
      }
      seen.insert({row, static_cast<int64_t>(block)});
    }
    last = end;
  }
  if (last != static_cast<double>(blocks->values.size())) {
    throw Error(ErrorCode::kRange, "block_indptr: must end with the number of block_indices");
  }
  const bool per_head = given != rows + 1;
  return [=, q = q_block, kv = kv_block](const Pair& at) {
    return seen.count({(per_head ? at.h * rows : 0) + at.i / q, at.j / kv}) != 0;
  };
}

PairRule EdgeRule(const Request& request, const Qkv& qkv) {
  const AnyTensor& tensor = *FindInput(request, "keep_pairs");
  if (tensor.rank != 2 || tensor.shape[1] != 2) {
    throw Error(ErrorCode::kShape, Describe("keep_pairs", tensor) + ": expected [num_pairs, 2]");
  }
  const std::vector<double> values = ReadIntegers(request, "keep_pairs")->values;
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (size_t n = 0; n < values.size(); n += 2) {
    const auto query = static_cast<int64_t>(values[n]), key = static_cast<int64_t>(values[n + 1]);
    if (query < 0 || query >= qkv.q_len || key < 0 || key >= qkv.kv_len) {
      throw Error(ErrorCode::kRange, "keep_pairs: no such query or key");
    }
    pairs.insert({query, key});
  }
  return [pairs](const Pair& at) { return pairs.count({at.i, at.j}) != 0; };
}

}  // namespace

std::vector<PairRule> ListRules(const Request& request, const Qkv& qkv) {
  std::vector<PairRule> rules;
  const bool rows = FindInput(request, "block_indptr") != nullptr ||
                    FindInput(request, "block_indices") != nullptr;
  if (rows) rules.push_back(RowsRule(request, qkv));
  if (FindInput(request, "block_keep") != nullptr) rules.push_back(MaskRule(request, qkv));
  if (FindInput(request, "keep_pairs") != nullptr) rules.push_back(EdgeRule(request, qkv));
  return rules;
}

PairRule StridedRule(const Request& request) {
  const int64_t stride = ReadWhole(request, "stride", 128, 1);
  return [stride](const Pair& at) {
    return at.j <= at.p && (at.j >= at.p - stride || (at.p - at.j) % stride == 0);
  };
}

PairRule FixedRule(const Request& request) {
  const int64_t stride = ReadWhole(request, "stride", 128, 1);
  const int64_t summary = ReadWhole(request, "summary", 8, 1);
  if (summary > stride) throw Error(ErrorCode::kRange, "summary is more than stride");
  return [stride, summary](const Pair& at) {
    if (at.j > at.p) return false;
    return at.j / stride == at.p / stride || at.j % stride >= stride - summary;
  };
}

PairRule AxialRule(const Request& request, const Qkv& qkv) {
  const std::vector<int64_t> grid = ReadGrid(request, qkv, 2, 3);
  const std::optional<int64_t> axis = ReadCount(request, "axis");
  if (axis && *axis >= static_cast<int64_t>(grid.size())) {
    throw Error(ErrorCode::kRange, "axis: the grid has fewer");
  }
  return [grid, axis](const Pair& at) {
    const auto query = Coordinates(at.p, grid), key = Coordinates(at.j, grid);
    int64_t differing = 0;
    for (size_t n = 0; n < grid.size(); ++n) {
      if (query[n] == key[n]) continue;
      ++differing;
      if (axis && static_cast<int64_t>(n) != *axis) return false;
    }
    return differing <= 1;
  };
}

namespace block_sparse {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace block_sparse
}  // namespace heed::reference
