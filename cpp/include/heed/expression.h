// User functions inside attention: a callable on a tile of scores, keep decisions or weights,
// written in C++ or compiled from an expression such as "score - slope[h] * abs(position -
// kvIndex)".
#ifndef HEED_EXPRESSION_H_
#define HEED_EXPRESSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/tensor.h"

namespace heed {

// A few rows by some keys of the [q_len, kv_len] matrix while it is computed. Column c of row r is
// values[r * row_stride + c] and belongs to key key_begin + c.
struct PairTile {
  struct Row {
    int64_t head;      // query head
    int64_t query;     // index i of the query
    int64_t position;  // i + query_offset of the batch entry
  };
  int64_t batch;
  const Row* rows;
  size_t num_rows;
  int64_t key_begin;
  size_t num_keys;
  float* values;
  size_t row_stride;
};

// Replaces the values of a tile. Called from several threads at once, for each tile any number of
// times and in any order; must depend on its argument only and must not throw. It may be shown keys
// that are masked; what it makes of those does not matter.
using TileFunction = std::function<void(const PairTile&)>;

// A tensor that an expression reads by name: slope[h], table[h, i - j + 4]. The caller keeps the
// memory alive as long as the function is used.
struct CapturedTensor {
  std::string name;
  int rank = 0;
  Extents shape{};    // the first `rank` count
  Extents strides{};  // in elements
  const float* data = nullptr;
};

// What the values of the tile are called in the expression, and what becomes of the result.
enum class ExpressionValue {
  kScore,  // `score`: the new score
  kKeep,   // no name; nonzero = the query may attend to the key
  kProb,   // `prob`: the new weight
};

// Compiles an expression to a function on tiles.
//
//   numbers    1, 0.5, 1e-3, inf
//   names      score (or prob), b, h, qIndex, kvIndex, position (qIndex + the query offset), and
//              captured tensors of other names: name[index, ...], one index a dimension, or the
//              bare name of a tensor with one element. q_index, kv_index are C++'s spelling,
//              q_idx, kv_idx that of PyTorch's FlexAttention.
//   operators  c ? a : b, ||, &&, == !=, < <= > >=, + -, * / %, unary - and !, as in C; % has the
//              sign of the divisor; conditions are 0 or 1, NaN counts as false
//   functions  abs min max floor sqrt exp log tanh sigmoid sin cos
//
// Numbers are float32, so indices are exact below 2^24. An index is rounded down; outside of the
// tensor it reads NaN. Both sides of ?: are computed, one is chosen.
// Errors   Error(kOption) that names `what`, the place in the text and what was expected there;
//          Error(kShape) for a wrong number of indices.
// Accuracy each operation is within 4 units in the last place of float32.
// Cost     one pass over the tile for every operation that depends on the key; what depends on the
//          row only is computed once a row.
TileFunction CompileExpression(std::string_view what, std::string_view text, ExpressionValue value,
                               std::vector<CapturedTensor> captured = {});

}  // namespace heed

#endif  // HEED_EXPRESSION_H_
