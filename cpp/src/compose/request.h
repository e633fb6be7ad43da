// Composed mechanisms behind heed::Run: the two verbs of each.
#ifndef HEED_SRC_COMPOSE_REQUEST_H_
#define HEED_SRC_COMPOSE_REQUEST_H_

#include <span>
#include <vector>

#include "heed/request.h"
#include "heed/thread_pool.h"
#include "src/request_reader.h"

namespace heed {

// Plan<Name> validates and lists the outputs, Run<Name> computes them.
#define HEED_COMPOSED(Name)                                                         \
  std::vector<OutputSpec> Plan##Name(const RequestReader& reader);                  \
  void Run##Name(const RequestReader& reader, std::span<const NamedTensor> outputs, \
                 ThreadPool* pool);

HEED_COMPOSED(Differential)
HEED_COMPOSED(TalkingHeads)
HEED_COMPOSED(Hopfield)
HEED_COMPOSED(Gated)
HEED_COMPOSED(AttentionPooling)
HEED_COMPOSED(Graph)
HEED_COMPOSED(External)
HEED_COMPOSED(Synthesizer)
HEED_COMPOSED(AttentionFree)
HEED_COMPOSED(InducedSet)
HEED_COMPOSED(Perceiver)

#undef HEED_COMPOSED

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_REQUEST_H_
