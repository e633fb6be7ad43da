// Requests of induced_set and perceiver.
#ifndef HEED_SRC_COMPOSE_SET_ATTENTION_REQUEST_H_
#define HEED_SRC_COMPOSE_SET_ATTENTION_REQUEST_H_

#include "heed/set_attention.h"
#include "src/layers/multi_head_request.h"
#include "src/request_reader.h"

namespace heed {

enum class SetBlock { kIsab, kPma, kSab };

struct InducedSetRequest {
  TensorView<const float> x, inducing;
  SetBlock block = SetBlock::kIsab;
  SetBlockWeights weights[2];
  SetBlockOptions options;
};
InducedSetRequest ReadInducedSet(const RequestReader& reader);

// A block's matrices are q, k, v, o, ff, or q, k, v, ff where the residual is projected.
inline bool HasOutputMatrix(const SetBlockOptions& options) {
  return options.residual != SetResidual::kProjected;
}
inline int64_t MatricesOf(const SetBlockOptions& options) {
  return HasOutputMatrix(options) ? 5 : 4;
}

// Matrix `matrix` of block `n` of set_weights, [blocks, matrices, dim, dim], as [1, heads,
// head_dim, dim].
template <typename T>
TensorView<T> HeadsOfBlock(const TensorView<T>& all, int64_t n, int64_t matrix, int64_t heads) {
  const int64_t dim = all.shape[3];
  return {all.data + n * all.strides[0] + matrix * all.strides[1],
          {1, heads, dim / heads, dim},
          {0, dim / heads * all.strides[2], all.strides[2], all.strides[3]}};
}

// The projection of the heads' outputs, as [1, dim, heads, head_dim].
template <typename T>
TensorView<T> OutputOfBlock(const TensorView<T>& all, int64_t n, int64_t heads) {
  const TensorView<T> rows = HeadsOfBlock(all, n, 3, 1);
  const int64_t dim = all.shape[3];
  return {rows.data, {1, dim, heads, dim / heads}, {0, all.strides[2], dim / heads, 1}};
}

// Row `row` of block n of an optional [num_blocks, rows, dim].
template <typename T>
std::span<T> RowOfBlock(std::span<T> values, int64_t rows, int64_t n, int64_t row, int64_t dim) {
  if (values.empty()) return {};
  return values.subspan(static_cast<size_t>((n * rows + row) * dim), static_cast<size_t>(dim));
}

struct PerceiverRequest {
  TensorView<const float> latents, input;  // latents as every batch entry sees them
  PerceiverWeights weights;
  PerceiverOptions options;
};
PerceiverRequest ReadPerceiver(const RequestReader& reader);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_SET_ATTENTION_REQUEST_H_
