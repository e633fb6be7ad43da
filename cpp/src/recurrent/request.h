// The recurrent family behind heed::Run: every row is a preset of the same options.
#ifndef HEED_SRC_RECURRENT_REQUEST_H_
#define HEED_SRC_RECURRENT_REQUEST_H_

#include <optional>
#include <span>
#include <vector>

#include "heed/recurrent.h"
#include "heed/request.h"
#include "src/recurrent/problem.h"
#include "src/request_reader.h"

namespace heed {

// A call of RecurrentAttention() read from a request, with the memory that its options point to.
struct RecurrentRequest {
  TensorView<const float> q, k, v;
  RecurrentOptions options;
  std::vector<float> rates;  // log_decay of each KV head, when it is the same for all tokens
  std::vector<int64_t> offsets;
  std::optional<uint64_t> seed;  // of a projection that is drawn in Run()
  bool return_state = false, return_projection = false;

  RecurrentOptions Options() const;
};

// Reads a request of any row that is a preset of RecurrentOptions; nothing for the others. The
// request must outlive it.
std::optional<RecurrentRequest> ReadRecurrentRequest(const Request& request);

// The outputs of a request whose inputs are validated.
std::vector<OutputSpec> ListOutputs(const RecurrentRequest& request, const RecurrentProblem& p);

// Plan<Name> validates and lists the outputs, Run<Name> computes them.
#define HEED_RECURRENT(Name)                                                        \
  std::vector<OutputSpec> Plan##Name(const RequestReader& reader);                  \
  void Run##Name(const RequestReader& reader, std::span<const NamedTensor> outputs, \
                 ThreadPool* pool);

HEED_RECURRENT(LinearAttention)
HEED_RECURRENT(Retention)
HEED_RECURRENT(GatedLinear)
HEED_RECURRENT(Mamba2)
HEED_RECURRENT(DeltaRule)  // gated_delta_rule and kimi_delta too
HEED_RECURRENT(Performer)
HEED_RECURRENT(Cosformer)
HEED_RECURRENT(Based)
HEED_RECURRENT(Lightning)
HEED_RECURRENT(Hgrn2)
HEED_RECURRENT(Rwkv6)
HEED_RECURRENT(Rwkv7)
HEED_RECURRENT(LogLinear)
HEED_RECURRENT(TttLinear)
HEED_RECURRENT(CausalConv)

#undef HEED_RECURRENT

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_REQUEST_H_
