// Native sparse attention by name, on the device: three calls of attention, summed with gates.
#include <algorithm>
#include <vector>

#include "src/cuda/choice_steps.h"
#include "src/cuda/grid.h"
#include "src/cuda/plan.h"
#include "src/cuda/request_rows.h"
#include "src/selective/native_sparse.h"
#include "src/selective/request.h"

namespace heed::cuda {
namespace {

class NativeSparseSteps {
 public:
  NativeSparseSteps(ComposedSteps& steps, const NativeSparseRequest& request)
      : steps_(steps),
        r_(request),
        o_(request.options),
        p_(ValidateInputsForDevice(StoredTensor(r_.q), StoredTensor(r_.k), StoredTensor(r_.v),
                                   Branch(o_), false)),
        rules_(SendRules(steps, p_)) {
    for (int64_t b = 0; b < p_.batch; ++b) {
      for (int64_t i = 0; i < p_.q_len; ++i) {
        const int64_t end = std::min(p_.KeyLength(b, i), p_.Position(b, i) + 1);
        visible_.push_back(static_cast<int32_t>(NumCompressed(o_, end)));
      }
    }
  }

  void Run(const TensorView<float>& output) {
    const BranchTokens from = OfCompressed(o_, r_.k, r_.v), recent = OfWindow(o_, r_.k, r_.v);
    const TensorView<float> keys = Compressed(from.k, o_.compress_k_weight);
    const TensorView<float> values = Compressed(from.v, o_.compress_v_weight);
    AttentionOptions over_compressed;
    over_compressed.scale = o_.scale;
    over_compressed.key_lengths = visible_;
    const Choice choice = {o_.key_block,    o_.top_blocks, o_.first_blocks, o_.local_blocks,
                           p_.num_kv_heads, p_.num_heads,  keys.shape[2]};
    const int32_t* visible = steps_.SendArray(std::span<const int32_t>(visible_));
    const SeenRules selected = Chosen(
        steps_, p_, choice, [&](const ScoreRows& rows) { ScoreBlocks(keys, visible, rows); });
    TensorView<float> sum;
    AddBranch(0, keys, values, over_compressed, {}, sum, steps_.Allocate(output.shape));
    AddBranch(1, r_.k, r_.v, Branch(o_), selected, sum, steps_.Allocate(output.shape));
    AddBranch(2, recent.k, recent.v, OverWindow(o_), {}, sum, output);
  }

 private:
  TensorView<float> Compressed(const TensorView<const float>& tokens,
                               const TensorView<const float>& weight) {
    CompressParams params{};
    const TensorView<float> out =
        steps_.Allocate({p_.batch, p_.num_kv_heads, NumCompressed(o_, p_.kv_len), tokens.shape[3]});
    params.tokens = RowsOf(tokens);
    // [1, 1, heads, block], one row of which may be that of all heads.
    if (weight.has_value()) params.weights = NumbersOf(PerHead(weight));
    params.out = RowsOf(out);
    params.lengths = rules_.lengths;
    SetHeads(out.shape, params);
    params.count = Narrow(out.shape[2]);
    params.width = Narrow(out.shape[3]);
    params.block = AtMost(o_.compress_block, p_.kv_len);
    params.stride = AtMost(o_.compress_stride, p_.kv_len);
    steps_.Run(params);
    return out;
  }

  void ScoreBlocks(const TensorView<float>& keys, const int32_t* visible, const ScoreRows& rows) {
    CompressedScoreParams params{};
    const int32_t block = AtMost(o_.key_block, p_.kv_len);
    const int64_t compressed = keys.shape[2], count = CeilDiv(p_.kv_len, block);
    params.queries = RowsOf(heed::RowsOf(r_.q, rows.first, rows.count));
    params.keys = RowsOf(TensorView<const float>(keys));
    params.visible = visible + rows.first;
    params.visible_stride = p_.q_len;
    params.products = rows.scratch;
    params.scores = rows.scores;
    params.scale = p_.scale;
    SetHeads(keys.shape, params);
    params.group = Narrow(p_.group);
    params.len = Narrow(rows.count);
    params.compressed = Narrow(compressed);
    params.count = Narrow(count);
    params.width = Narrow(p_.head_dim);
    params.compress_block = AtMost(o_.compress_block, p_.kv_len);
    params.compress_stride = AtMost(o_.compress_stride, p_.kv_len);
    params.key_block = block;
    steps_.Run(params);
  }

  // sum = to = gate * attention + sum.
  void AddBranch(int64_t gate, const TensorView<const float>& k, const TensorView<const float>& v,
                 const AttentionOptions& options, const SeenRules& seen, TensorView<float>& sum,
                 const TensorView<float>& to) {
    steps_.Attend(r_.q, k, v, options, {.output = to}, seen);
    steps_.Run(
        MapOf(MapOp::kAddMasked, {.x = to, .y = ColumnsOf(r_.gates, gate, 1), .z = sum}, to));
    sum = to;
  }

  ComposedSteps& steps_;
  const NativeSparseRequest& r_;
  const NativeSparseOptions& o_;
  AttentionProblem p_;
  TokenRules rules_;
  std::vector<int32_t> visible_;
};

void RunNativeSparseRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                        ComposedSteps& steps) {
  const NativeSparseRequest r = ReadNativeSparse(reader);
  NativeSparseSteps(steps, r).Run(OutputView(outputs, "output"));
}

constexpr DeviceRow kRows[] = {{"native_sparse", PlanNativeSparse, RunNativeSparseRow}};

}  // namespace

std::span<const DeviceRow> NativeSparseRows() { return kRows; }

}  // namespace heed::cuda
