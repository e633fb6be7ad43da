// Streaming attention: the window and the sinks of a cache, over a whole sequence.
#include "src/compose/compose_problem.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/selective/selective_problem.h"

namespace heed {

AttentionOptions ValidateStreaming(const StreamingOptions& o, int64_t batch) {
  CheckCount("recent_tokens", o.recent_tokens);
  if (o.sink_tokens < 0) {
    Fail(ErrorCode::kRange, "sink_tokens = {}; it must be at least 0", {o.sink_tokens});
  }
  CheckChoosable(o.attention, batch);
  AttentionOptions options = o.attention;
  options.causal = true;
  options.window = Window::LastN(o.recent_tokens);
  return options;
}

void StreamingAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const StreamingOptions& options,
                        const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("streaming attention", [&] {
    AttentionProblem p = ValidateComposed(q, k, v, ValidateStreaming(options, q.shape[0]), outputs);
    p.sink_keys = options.sink_tokens;
    RunProblem(p, pool);
  });
}

}  // namespace heed
