// The exact family behind heed::Run: from names to typed options. Every
// row is a preset of the same options.
#ifndef HEED_SRC_EXACT_REQUEST_H_
#define HEED_SRC_EXACT_REQUEST_H_

#include <optional>
#include <span>
#include <vector>

#include "heed/attention.h"
#include "heed/request.h"
#include "heed/thread_pool.h"
#include "src/exact/problem.h"
#include "src/request_reader.h"

namespace heed {

// A call of Attention() read from a request, with the memory that its options point to.
struct AttentionRequest {
  StoredTensor q, k, v;
  AttentionOptions options;
  bool return_lse = false;
  bool return_weights = false;
  std::optional<ScoreStage> return_scores;
  std::vector<float> width, temperature;
  bool return_tiles = false;
  std::optional<int64_t> tiles_of_query;
};

// Reads a request of any row of the exact family; nothing for the rows of other families. The
// request must outlive it. (In run.cc, which lists them.)
std::optional<AttentionRequest> ReadExactRequest(const Request& request);

// Reads whatever options the mechanism's row lists, on top of what `preset` fixes.
AttentionRequest ReadExact(const RequestReader& reader, AttentionOptions preset);

// A number, one per batch entry, or "end".
QueryOffset ReadQueryOffset(const RequestReader& reader);

// The options alone, for layers: r.q, r.k and r.v have their shapes, their data is not read.
void ReadExactOptions(const RequestReader& reader, AttentionRequest& r);

// The options with views of what the request owns, which must outlive them.
AttentionOptions OptionsOf(const AttentionRequest& request);

// What the rows fix.
AttentionOptions UnscaledPreset();  // luong_dot, luong_location
AttentionOptions BilinearPreset();  // luong_general
AttentionOptions AdditivePreset();  // additive, luong_concat
AttentionOptions ForgettingPreset();
AttentionOptions DisentangledPreset();
AttentionOptions CosinePreset();
AttentionOptions GaussianPreset();
AttentionOptions KernelRegressionPreset();
template <Normalize kNormalize>
AttentionOptions NormalizePreset() {
  AttentionOptions options;
  options.normalize = kNormalize;
  return options;
}

// The row `sink`: softmax whose sinks may not be left out.
AttentionRequest ReadSink(const RequestReader& reader, AttentionOptions preset);
// The row `flash`: softmax with its lse and, on request, the statistics of its tiles.
AttentionRequest ReadFlash(const RequestReader& reader, AttentionOptions preset);
AttentionOptions LongformerPreset();
AttentionOptions BigBirdPreset();
AttentionOptions SwinWindowPreset();
AttentionOptions NeighborhoodPreset();

// Validates and lists the outputs: output, then lse, weights, scores as asked for.
std::vector<OutputSpec> PlanAttention(const AttentionRequest& request);
// Both halves of it, and where the outputs then are. The problem, which is filled in, points into
// the request.
void ValidateRequest(const AttentionRequest& request, AttentionProblem& p);
std::vector<OutputSpec> ListOutputs(const AttentionRequest& request, const AttentionProblem& p);
AttentionOutputs FindOutputs(const AttentionRequest& request, std::span<const NamedTensor> outputs);
void RunAttentionRequest(const AttentionRequest& request, std::span<const NamedTensor> outputs,
                         ThreadPool* pool);
// Explain() for a request; the picture must have its shape.
void ExplainRequest(const AttentionRequest& request, const TensorView<uint8_t>& picture);

}  // namespace heed

#endif  // HEED_SRC_EXACT_REQUEST_H_
