// Attention pooling: learned queries, seen by every batch entry through a stride of 0.
#include <string>

#include "src/compose/compose_problem.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {

TensorView<const float> QueriesOfBatch(TensorView<const float> queries, int64_t batch) {
  if (queries.shape[0] != 1) {
    Fail(ErrorCode::kShape,
         "queries have a batch of {}; expected 1: every batch entry is pooled by the same queries",
         {queries.shape[0]});
  }
  queries.shape[0] = batch;
  queries.strides[0] = 0;
  return queries;
}

void AttentionPooling(TensorView<const float> queries, TensorView<const float> k,
                      TensorView<const float> v, const AttentionOptions& options,
                      const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("attention pooling", [&] {
    Attention(QueriesOfBatch(queries, k.shape[0]), k, v, options, outputs, pool);
  });
}

}  // namespace heed
