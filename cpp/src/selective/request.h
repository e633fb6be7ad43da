// Selective mechanisms behind heed::Run: the two verbs of each.
#ifndef HEED_SRC_SELECTIVE_REQUEST_H_
#define HEED_SRC_SELECTIVE_REQUEST_H_

#include <span>
#include <vector>

#include "heed/cache_policy.h"
#include "heed/request.h"
#include "heed/selective.h"
#include "heed/thread_pool.h"
#include "src/compose/composed_request.h"
#include "src/request_reader.h"

namespace heed {

// Plan<Name> validates and lists the outputs, Run<Name> computes them.
#define HEED_SELECTIVE(Name)                                                        \
  std::vector<OutputSpec> Plan##Name(const RequestReader& reader);                  \
  void Run##Name(const RequestReader& reader, std::span<const NamedTensor> outputs, \
                 ThreadPool* pool);

HEED_SELECTIVE(BlockMixture)
HEED_SELECTIVE(Reformer)
HEED_SELECTIVE(NativeSparse)
HEED_SELECTIVE(Streaming)
HEED_SELECTIVE(Quest)
HEED_SELECTIVE(Indexed)
HEED_SELECTIVE(HeavyHitter)
HEED_SELECTIVE(Routing)
HEED_SELECTIVE(Sinkhorn)

#undef HEED_SELECTIVE

// A request whose queries see nothing that comes later.
ComposedRequest ReadCausal(const RequestReader& reader);

// What rows add to the options of attention, which are those of `r`.
BlockMixtureOptions ReadBlockMixture(const RequestReader& reader, const ComposedRequest& r);
StreamingOptions ReadStreaming(const RequestReader& reader, const ComposedRequest& r);
QuestOptions ReadQuest(const RequestReader& reader, const ComposedRequest& r);
IndexedOptions ReadIndexed(const RequestReader& reader, const ComposedRequest& r);
IndexTensors ReadIndex(const RequestReader& reader);
HeavyHitterOptions ReadHeavyHitter(const RequestReader& reader, const ComposedRequest& r);

// Requests of the other rows.
struct ReformerRequest {
  TensorView<const float> q, v;
  ReformerOptions options;
};
ReformerRequest ReadReformer(const RequestReader& reader);

struct RoutingRequest {
  TensorView<const float> q, k, v;
  RoutingOptions options;
};
RoutingRequest ReadRouting(const RequestReader& reader);

struct NativeSparseRequest {
  TensorView<const float> q, k, v, gates;
  NativeSparseOptions options;
};
NativeSparseRequest ReadNativeSparse(const RequestReader& reader);

struct SinkhornRequest {
  TensorView<const float> q, k, v;
  SinkhornOptions options;
};
SinkhornRequest ReadSinkhorn(const RequestReader& reader);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_REQUEST_H_
