// The row table of the gradient kernels for Hopper, and the items of their blocks: which tiles each
// meets.
#ifndef HEED_SRC_CUDA_HOPPER_GRADIENT_ROWS_H_
#define HEED_SRC_CUDA_HOPPER_GRADIENT_ROWS_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/gradient_params.h"
#include "src/cuda/hopper_gradient_layout.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

// Tile `tile` of the row table of a head.
HEED_DEVICE uint32_t* TableTile(const GradientParams& params, int batch, int head, int32_t tile) {
  const int64_t index =
      (static_cast<int64_t>(batch) * params.attention.num_heads + head) * params.table_tiles + tile;
  return params.row_table + index * kTableTileWords;
}

// A number of several rows or tiles: the least begin and the greatest end of what some of them see,
// the greatest begin and the least end of what all of them see; of none, kv_len or 0.
HEED_DEVICE constexpr bool TakesLeast(TileNumber number) {
  return number == kSomeBegin || number == kAllEnd;
}
HEED_DEVICE constexpr int32_t NumberOfNone(TileNumber number, int32_t kv_len) {
  return TakesLeast(number) ? kv_len : 0;
}
HEED_DEVICE constexpr int32_t NumberOfBoth(TileNumber number, int32_t a, int32_t b) {
  return TakesLeast(number) == (a < b) ? a : b;
}

inline constexpr int kTableShared = 2 * kTableRows * static_cast<int>(sizeof(int32_t));

// Fills tiles of the row table, one a block.
template <class Block>
class RowTableKernel {
 public:
  HEED_DEVICE RowTableKernel(Block& block, const GradientParams& params)
      : block_(block),
        params_(params),
        p_(params.attention),
        begins_(block.template Allocate<int32_t>(kTableRows)),
        ends_(block.template Allocate<int32_t>(kTableRows)) {}

  HEED_DEVICE void Run(int64_t index) {
    const int32_t tile = static_cast<int32_t>(index % params_.table_tiles);
    const int64_t row = index / params_.table_tiles;
    const int head = static_cast<int>(row % p_.num_heads);
    const int batch = static_cast<int>(row / p_.num_heads);
    uint32_t* to = TableTile(params_, batch, head, tile);
    block_.Each([&](int t) {
      if (t < kTableRows) FillRow(t, to, batch, head, static_cast<int64_t>(tile) * kTableRows + t);
    });
    block_.Sync();
    block_.Each([&](int t) {
      if (t >= kTileNumbers) return;
      const TileNumber number = static_cast<TileNumber>(t);
      to[TileWordAt(number)] = static_cast<uint32_t>(NumberOfTile(t, number, to));
    });
  }

 private:
  HEED_DEVICE void FillRow(int t, uint32_t* to, int batch, int head, int64_t query) {
    RowKeys rule = {0, 0};
    float lse = 0, delta = 0;
    int64_t position = 0;
    if (query < p_.q_len) {
      const int i = static_cast<int>(query);
      const int32_t length = LengthOf(block_, p_, batch, i);
      position = PositionOf(p_.rules, batch, i, p_.q_len, length);
      lse = params_.lse.At(batch, head, i, 0);
      delta = params_.delta[ScratchRow(p_, batch, head, i)];
      rule = KeysOfRow(p_.rules, batch, position, length, p_.kv_len);
    }
    // Where every visible score is -infinity, nothing has a weight.
    const RowKeys keys = lse == kMinusInfinity ? RowKeys{0, 0} : rule;
    to[RowWordAt(kRowLse, t)] = AsWord(lse * kLog2E);
    to[RowWordAt(kRowDelta, t)] = AsWord(delta);
    to[RowWordAt(kRowBegin, t)] = static_cast<uint32_t>(keys.begin);
    to[RowWordAt(kRowEnd, t)] = static_cast<uint32_t>(keys.end);
    to[RowWordAt(kRowPosition, t)] = static_cast<uint32_t>(static_cast<int32_t>(position));
    to[RowWordAt(kRowSlope, t)] = AsWord(p_.alibi_slopes == nullptr ? 0 : p_.alibi_slopes[head]);
    begins_.Store(t, t, rule.begin);
    ends_.Store(t, t, rule.end);
  }

  // What some rows see is a matter of the rule alone: other heads go by it too. What all see is
  // that of rows that have weights.
  HEED_DEVICE int32_t NumberOfTile(int t, TileNumber number, const uint32_t* words) {
    const bool some = number == kSomeBegin || number == kSomeEnd;
    const bool begin = number == kSomeBegin || number == kAllBegin;
    int32_t result = NumberOfNone(number, p_.kv_len);
    HEED_NO_UNROLL for (int r = 0; r < kTableRows; ++r) {
      const RowKeys rule = {begins_.Load(t, r), ends_.Load(t, r)};
      if (some && rule.begin >= rule.end) continue;
      const int32_t of_rule = begin ? rule.begin : rule.end;
      const uint32_t of_row = words[RowWordAt(begin ? kRowBegin : kRowEnd, r)];
      result = NumberOfBoth(number, some ? of_rule : static_cast<int32_t>(of_row), result);
    }
    return result;
  }

  Block& block_;
  const GradientParams& params_;
  const AttentionParams& p_;
  typename Block::template Shared<int32_t> begins_, ends_;  // by the rule
};

// What a block computes at a time: kOwnRows rows of its own tensors, past tiles of one or more
// heads of the others.
struct GradientItem {
  int batch;
  int head;   // of the block's own tensors
  int tile;   // of kOwnRows rows of them
  int first;  // head of the tiles that stream past, and how many
  int heads;
  TileSpan span;  // of each
};

template <class Shape>
HEED_DEVICE int32_t GradientItemsOf(const AttentionParams& p) {
  const int32_t len = Shape::kByKeys ? p.kv_len : p.q_len;
  const int32_t heads = Shape::kByKeys ? p.num_kv_heads : p.num_heads;
  return (len + kOwnRows - 1) / kOwnRows * p.batch * heads;
}

// The longest first: in causal attention early keys are seen by more queries, and late queries see
// more keys. The span is still to be found.
template <class Shape>
HEED_DEVICE GradientItem PlaceOfGradient(const AttentionParams& p, int32_t item) {
  if constexpr (Shape::kByKeys) {
    const int32_t unit = item % (p.batch * p.num_kv_heads);
    const int kv_head = unit % p.num_kv_heads;
    return {unit / p.num_kv_heads, kv_head, item / (p.batch * p.num_kv_heads),
            kv_head * p.group,     p.group, {0, 0}};
  } else {
    const int32_t units = p.batch * p.num_heads;
    const int32_t unit = item % units;
    const int head = unit % p.num_heads;
    const int last = (p.q_len + kOwnRows - 1) / kOwnRows - 1;
    return {unit / p.num_heads, head, last - item / units, head / p.group, 1, {0, 0}};
  }
}

// The keys of a block that owns them from `first` on.
HEED_DEVICE RowKeys OwnKeys(const AttentionParams& p, int32_t first) {
  const int32_t end = first + kOwnRows;
  return {first, end < p.kv_len ? end : p.kv_len};
}

// A number of the tiles of the row table that hold the rows of a block of queries, and perhaps
// neighbours.
HEED_DEVICE int32_t NumberOfBlock(const GradientParams& params, const GradientItem& item,
                                  TileNumber number) {
  const int32_t first = item.tile * kOwnRows / kTableRows;
  const int32_t last = ((item.tile + 1) * kOwnRows - 1) / kTableRows;
  int32_t result = NumberOfNone(number, params.attention.kv_len);
  HEED_NO_UNROLL for (int32_t tile = first; tile <= last && tile < params.table_tiles; ++tile) {
    const uint32_t* words = TableTile(params, item.batch, item.head, tile);
    result = NumberOfBoth(number, static_cast<int32_t>(words[TileWordAt(number)]), result);
  }
  return result;
}

// From the first to the last tile of queries of which some row sees a key of the block. Causal,
// window and lengths do not depend on the head. Leaves the group in step.
template <class Group>
HEED_DEVICE TileSpan FindQueries(Group& group, const GradientParams& params,
                                 const GradientItem& item) {
  const RowKeys keys = OwnKeys(params.attention, item.tile * kOwnRows);
  typename Group::template Registers<int32_t, 4> ends;
  group.Each([&](int t) {
    ends(t, 0) = -params.table_tiles, ends(t, 1) = 0;  // -begin, end
    ends(t, 2) = ends(t, 3) = 0;
    HEED_NO_UNROLL for (int32_t tile = t; tile < params.table_tiles; tile += kGroupThreads) {
      const uint32_t* words = TableTile(params, item.batch, item.first, tile);
      const int32_t begin = static_cast<int32_t>(words[TileWordAt(kSomeBegin)]);
      const int32_t end = static_cast<int32_t>(words[TileWordAt(kSomeEnd)]);
      if (begin >= keys.end || end <= keys.begin) continue;
      if (-tile > ends(t, 0)) ends(t, 0) = -tile;
      ends(t, 1) = tile + 1;
    }
  });
  group.MaxOfGroup(ends);
  TileSpan span;
  group.Each([&](int t) { span = {-ends(t, 0), ends(t, 1)}; });  // the same in every thread
  return span;
}

// The item, alike in all warp groups of the block.
template <class Shape, class Group>
HEED_DEVICE GradientItem FindGradientItem(Group& group, const GradientParams& params,
                                          int32_t number) {
  GradientItem item = PlaceOfGradient<Shape>(params.attention, number);
  if constexpr (Shape::kByKeys) {
    item.span = FindQueries(group, params, item);
  } else {
    item.span = TilesOf(NumberOfBlock(params, item, kSomeBegin),
                        NumberOfBlock(params, item, kSomeEnd), Shape::kTile, 0, 1);
  }
  return item;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_GRADIENT_ROWS_H_
