#include "src/selective/request.h"

#include "src/compose/composed_request.h"
#include "src/selective/selective_problem.h"

namespace heed {

// Mixture of block attention.

namespace {

BlockMixtureOptions ReadBlockMixture(const RequestReader& reader, const ComposedRequest& r) {
  BlockMixtureOptions o;
  o.attention = OptionsOf(r.rest);
  o.key_block = reader.Count("key_block").value_or(o.key_block);
  o.top_blocks = reader.Count("top_blocks").value_or(o.top_blocks);
  return o;
}

}  // namespace

std::vector<OutputSpec> PlanBlockMixture(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  ValidateBlockMixture(ReadBlockMixture(reader, r), r.q.shape[0]);
  return PlanAttention(r.rest);
}

void RunBlockMixture(const RequestReader& reader, std::span<const NamedTensor> outputs,
                     ThreadPool* pool) {
  const ComposedRequest r = ReadComposed(reader);
  BlockMixtureAttention(r.q, r.k, r.v, ReadBlockMixture(reader, r), FloatOutputs(r, outputs), pool);
}

}  // namespace heed
