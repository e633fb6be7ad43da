// The low-rank family behind heed::Run: Plan<Name> validates and lists the outputs, Run<Name>
// computes them.
#ifndef HEED_SRC_LOW_RANK_REQUEST_H_
#define HEED_SRC_LOW_RANK_REQUEST_H_

#include <span>
#include <vector>

#include "heed/low_rank.h"
#include "heed/request.h"
#include "heed/thread_pool.h"
#include "src/request_reader.h"

namespace heed {

#define HEED_LOW_RANK(Name)                                                         \
  std::vector<OutputSpec> Plan##Name(const RequestReader& reader);                  \
  void Run##Name(const RequestReader& reader, std::span<const NamedTensor> outputs, \
                 ThreadPool* pool);

HEED_LOW_RANK(Linformer)
HEED_LOW_RANK(Efficient)
HEED_LOW_RANK(Nystrom)
HEED_LOW_RANK(MemoryCompressed)

#undef HEED_LOW_RANK

// What all rows of the family take, and what each adds.
struct LowRankRequest {
  TensorView<const float> q, k, v;
  std::span<const int32_t> key_lengths;
  bool return_weights, return_lse;
};
LowRankRequest ReadLowRank(const RequestReader& reader);
// Where results go: all of those that there may be, absent where they are not asked for.
AttentionOutputs FindLowRankOutputs(std::span<const NamedTensor> outputs);
NystromOutputs FindNystromOutputs(std::span<const NamedTensor> outputs);
LinformerOptions ReadLinformer(const RequestReader& reader, const LowRankRequest& r);
NystromOptions ReadNystrom(const RequestReader& reader, const LowRankRequest& r);
MemoryCompressedOptions ReadMemoryCompressed(const RequestReader& reader, const LowRankRequest& r);

}  // namespace heed

#endif  // HEED_SRC_LOW_RANK_REQUEST_H_
