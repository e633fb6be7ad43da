// Hopfield retrieval: attention whose keys are its values, repeated on its own output.
#include "src/compose/hopfield.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "src/compose/compose_problem.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr int64_t kMaxSteps = 1000000;

// Takes one row of the newest states over. Returns whether it moved farther than the tolerance; a
// row lost to NaN does not move any more.
bool TakeRow(const float* newest, int64_t width, double tolerance, float* state) {
  double moved = 0;
  for (int64_t d = 0; d < width; ++d) {
    const double step = static_cast<double>(newest[d]) - state[d];
    moved += step * step;
    state[d] = newest[d];
  }
  return std::sqrt(moved) > tolerance;
}

}  // namespace

bool UpdateStates(const TensorView<const float>& k, const HopfieldOptions& options,
                  const TensorView<float>& lse, const OwnedTensor& states,
                  const OwnedTensor& newest, ScratchVector<uint8_t>& resting, ThreadPool& pool) {
  AttentionOutputs outputs;
  outputs.output = newest.view();
  outputs.lse = lse;
  Attention(states.view(), k, k, UpdateOptions(options), outputs, &pool);
  const Extents& shape = states.view().shape;
  std::atomic<bool> moving = false;
  ForEachRow(shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    const size_t row = static_cast<size_t>((b * shape[1] + h) * shape[2] + i);
    if (resting[row] != 0) return;
    const bool moves = TakeRow(&newest.view()(b, h, i, 0), shape[3], options.tolerance,
                               &states.view()(b, h, i, 0));
    resting[row] = moves ? 0 : 1;
    if (moves) moving.store(true, std::memory_order_relaxed);
  });
  return moving.load();
}

AttentionOptions UpdateOptions(const HopfieldOptions& options) {
  AttentionOptions attention = options.attention;
  attention.relative_values = {};  // they belong to v
  return attention;
}

void CopyRows(const TensorView<const float>& from, const TensorView<float>& to, ThreadPool& pool) {
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    std::copy_n(&from(b, h, i, 0), to.shape[3], &to(b, h, i, 0));
  });
}

void ValidateHopfield(const HopfieldOptions& o, const AttentionOutputs& outputs, int64_t head_dim,
                      int64_t head_dim_k) {
  if (o.steps < 1 || o.steps > kMaxSteps) {
    Fail(ErrorCode::kRange, "steps = {}; expected 1 to {} updates, the last of which reads v",
         {o.steps, kMaxSteps});
  }
  if (o.steps > 1 && head_dim_k != head_dim) {
    Fail(ErrorCode::kShape,
         "k has head_dim {} and q {}; with steps > 1 they must be the same: states become means of "
         "keys",
         {head_dim_k, head_dim});
  }
  if (!(o.tolerance >= 0) || !std::isfinite(o.tolerance)) {
    Fail(ErrorCode::kRange, "tolerance = {}; it must be finite and not negative", {o.tolerance});
  }
  if (outputs.scores.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "scores belong to one step; a Hopfield retrieval has several. Ask for weights");
  }
}

void HopfieldRetrieval(TensorView<const float> q, TensorView<const float> k,
                       TensorView<const float> v, const HopfieldOptions& options,
                       const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("a Hopfield retrieval", [&] {
    ValidateHopfield(options, outputs, q.shape[3], k.shape[3]);
    ValidateComposed(q, k, v, options.attention, outputs);
    ThreadPool& threads = PoolOrDefault(pool);
    if (options.steps == 1 || q.size() == 0) {
      Attention(q, k, v, options.attention, outputs, pool);
      return;
    }
    const OwnedTensor states(q.shape);
    const OwnedTensor newest(q.shape);
    ScratchVector<uint8_t> resting;
    resting.resize(static_cast<size_t>(q.shape[0] * q.shape[1] * q.shape[2]));
    CopyRows(q, states.view(), threads);
    // Only the data know how many updates there are: dry runs count all.
    if (DryRun* dry = DryRun::Current()) {
      dry->Repeat(options.steps - 1,
                  [&] { UpdateStates(k, options, {}, states, newest, resting, threads); });
    }
    for (int64_t step = 1; step < options.steps && DryRun::Current() == nullptr; ++step) {
      if (!UpdateStates(k, options, {}, states, newest, resting, threads)) break;
    }
    Attention(states.view(), k, v, options.attention, outputs, pool);
  });
}

}  // namespace heed
