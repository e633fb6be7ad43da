// Steps as calls with tensors: what most mechanisms composed on the device are made of. No CUDA
// here.
#ifndef HEED_SRC_CUDA_STEP_CALLS_H_
#define HEED_SRC_CUDA_STEP_CALLS_H_

#include <cstdint>
#include <span>

#include "src/cuda/composed_steps.h"
#include "src/exact/problem.h"
#include "src/low_rank/problem.h"

namespace heed::cuda {

// An extent as kernels have it. Throws Error(kUnsupported) where it is beyond 32 bits.
int32_t Narrow(int64_t extent);

// The extents of `shape` in the parameters of a kernel.
template <class Params>
void SetHeads(const Extents& shape, Params& params) {
  params.batch = Narrow(shape[0]);
  params.heads = Narrow(shape[1]);
}

// Columns [first, first + count).
template <class T>
TensorView<T> ColumnsOf(TensorView<T> view, int64_t first, int64_t count) {
  view.data += first * view.strides[3];
  view.shape[3] = count;
  return view;
}

// Rows without columns, where attention is asked for its weights or its lse alone.
inline TensorView<float> NoColumns(const TensorView<float>& memory, const Extents& rows) {
  return Contiguous(memory.data, rows[0], rows[1], rows[2], 0);
}

// A list of the device as a row that all rows share.
inline TensorView<const float> RowView(const float* values, int64_t count) {
  return {values, {1, 1, 1, count}, {0, 0, 0, 1}};
}

// out = a b. Extents of 1 for batch and heads of a and b broadcast.
MultiplyParams ProductOf(const TensorView<const float>& a, const TensorView<const float>& b,
                         const TensorView<float>& out);

// out = op(x, y, z), where extents of 1 broadcast; absent ones are not read.
struct MapInputs {
  TensorView<const float> x{}, y{}, z{};
  float factor = 0;
};
MapParams MapOf(MapOp op, const MapInputs& inputs, const TensorView<float>& out);

// to = from, of any strides of `from`; an extent of 1 broadcasts.
void Copy(ComposedSteps& steps, const TensorView<const float>& from, const TensorView<float>& to);
void Fill(ComposedSteps& steps, float value, const TensorView<float>& to);

// to[b, 0, i] = weight x[b, 0, i] + bias, as Linear(): weight [1, 1, out, in], bias a list of the
// host, empty for none.
void Linear(ComposedSteps& steps, const TensorView<const float>& x,
            const TensorView<const float>& weight, std::span<const float> bias,
            const TensorView<float>& to);

// Rows of x, normalised into `to`, which may be x; `norm` says how.
void Normalise(ComposedSteps& steps, NormParams norm, const TensorView<const float>& x,
               const TensorView<float>& to);

// to = weights v, without the keys whose scores are -infinity for every head.
void SumValues(ComposedSteps& steps, const TensorView<const float>& weights,
               const TensorView<const float>& scores, const TensorView<const float>& v,
               const TensorView<float>& to);

// Rows of [batch, lists, len, kv_len] that a step is to write; each keeps keys of at most so many
// words, and `heads` query heads share the lists. Takes 12 bytes a word, 16 a row and 4 a query of
// each head.
KeptRows NewKeptRows(ComposedSteps& steps, const Extents& lists, int64_t heads, int64_t most_words);

// Lengths and positions of a call, sent.
TokenRules SendRules(ComposedSteps& steps, const AttentionProblem& p);

// Normal numbers by a seed, as the CPU draws them, on the device.
TensorView<const float> DrawNormals(ComposedSteps& steps, uint64_t seed, const Extents& shape);

// Scores of every pair before the biases, q scaled times k, whatever is kept.
TensorView<float> RawScores(ComposedSteps& steps, const TensorView<const float>& q,
                            const TensorView<const float>& k, const AttentionOptions& options);

// Values or keys of KV heads, once more for every query head.
TensorView<const float> Repeated(ComposedSteps& steps, const TensorView<const float>& rows,
                                 int64_t num_heads);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_STEP_CALLS_H_
