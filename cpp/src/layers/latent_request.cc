// multi_head_latent by name.
#include "src/choice.h"
#include "src/exact/request.h"
#include "src/layers/latent.h"
#include "src/layers/multi_head_request.h"
#include "src/layers/request.h"
#include "src/position/request.h"

namespace heed {

LatentRequest ReadLatent(const RequestReader& reader) {
  LatentRequest r;
  r.x = ReadRows(reader, "x");
  LatentWeights& w = r.weights;
  w.w_dq = ReadWeight(reader, "w_dq", 2);
  w.w_uq = ReadRequiredWeight(reader, "w_uq", 3);
  w.w_qr = ReadRequiredWeight(reader, "w_qr", 3);
  w.w_dkv = ReadRequiredWeight(reader, "w_dkv", 2);
  w.w_kr = ReadRequiredWeight(reader, "w_kr", 2);
  w.w_uk = ReadRequiredWeight(reader, "w_uk", 3);
  w.w_uv = ReadRequiredWeight(reader, "w_uv", 3);
  w.w_o = ReadRequiredWeight(reader, "w_o", 3);
  w.norm_q_weight = reader.Floats("norm_q_weight");
  w.norm_kv_weight = reader.Floats("norm_kv_weight");
  AttentionRequest heads;
  const Extents& x = r.x.shape;
  heads.q.shape = {x[0], w.w_uq.shape[1], x[2], w.w_uq.shape[2] + w.w_qr.shape[2]};
  heads.k.shape = heads.q.shape;
  heads.v.shape = {x[0], w.w_uq.shape[1], x[2], w.w_uv.shape[2]};
  ReadExactOptions(reader, heads);
  r.options.latent.attention = heads.options;
  r.options.latent.form =
      ReadChoice<LatentForm>(reader, "form",
                             {{"naive", LatentForm::kNaive}, {"absorbed", LatentForm::kAbsorbed}})
          .value_or(LatentForm::kNaive);
  r.options.rope =
      ReadChoice<std::optional<RopePairing>>(reader, "rope",
                                             {{"none", std::nullopt},
                                              {"half", RopePairing::kHalf},
                                              {"interleaved", RopePairing::kInterleaved}})
          .value_or(std::nullopt);
  r.options.rope_base = reader.Number("rope_base").value_or(r.options.rope_base);
  r.options.rope_scaling = ReadScaling(reader);
  r.options.epsilon = reader.Number("epsilon").value_or(r.options.epsilon);
  r.return_lse = heads.return_lse;
  r.return_weights = heads.return_weights;
  return r;
}

std::vector<OutputSpec> PlanMultiHeadLatent(const RequestReader& reader) {
  const LatentRequest r = ReadLatent(reader);
  const LatentShape s = ValidateMultiHeadLatent(r.x, r.weights, r.options, r.return_lse);
  std::vector<OutputSpec> specs;
  specs.push_back({"output", 3, {s.batch, s.len, s.out_dim, 0}});
  if (r.return_lse) specs.push_back({"lse", 3, {s.batch, s.num_heads, s.len, 0}});
  if (r.return_weights) specs.push_back({"weights", 4, {s.batch, s.num_heads, s.len, s.len}});
  return specs;
}

void RunMultiHeadLatent(const RequestReader& reader, std::span<const NamedTensor> outputs,
                        ThreadPool* pool) {
  const LatentRequest r = ReadLatent(reader);
  MultiHeadLatentOutputs out;
  out.output = RowsOutput(outputs, "output");
  if (r.return_lse) out.lse = OutputView(outputs, "lse");
  if (r.return_weights) out.weights = OutputView(outputs, "weights");
  MultiHeadLatent(r.x, r.weights, r.options, out, pool);
}

}  // namespace heed
