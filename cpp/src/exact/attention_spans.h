// The memory that calls of attention read and write, by the names of the public headers.
#ifndef HEED_SRC_EXACT_ATTENTION_SPANS_H_
#define HEED_SRC_EXACT_ATTENTION_SPANS_H_

#include <variant>

#include "src/exact/validate_score.h"
#include "src/output_spans.h"

namespace heed {

template <class Visit>
void ForEachView(const BlockList& blocks, const Visit& visit) {
  visit("BlockList.keep", blocks.keep);
  visit("BlockList.indptr", blocks.indptr);
  visit("BlockList.indices", blocks.indices);
}

// Calls visit(name, view) for all that the options have the kernels read.
template <class Visit>
void ForEachView(const AttentionOptions& o, const Visit& visit) {
  visit("bias", o.bias);
  visit("keep", o.keep);
  visit("cope_table", o.cope_table);
  for (const NamedView& tensor : ScoreTensors(o)) visit(tensor.name, *tensor.view);
  visit("width", o.width);
  visit("temperature", o.temperature);
  visit("score_bias", o.score_bias);
  visit("alibi_slopes", o.alibi_slopes);
  visit("sinks", o.sinks);
  visit("key_lengths", o.key_lengths);
  visit("prefix_lengths", o.prefix_lengths);
  visit("query_documents", o.query_documents);
  visit("key_documents", o.key_documents);
  for (const KeepPattern& pattern : o.patterns) {
    if (const auto* blocks = std::get_if<BlockList>(&pattern)) ForEachView(*blocks, visit);
    if (const auto* list = std::get_if<PairList>(&pattern)) visit("PairList.pairs", list->pairs);
  }
}

inline OutputSpans SpansOf(const AttentionOutputs& out) {
  return OutputSpans({{"output", out.output},
                      {"stored_output", out.stored_output},
                      {"lse", out.lse},
                      {"weights", out.weights},
                      {"scores", out.scores},
                      {"running_max", out.running_max},
                      {"running_sum", out.running_sum},
                      {"rescale", out.rescale}});
}

}  // namespace heed

#endif  // HEED_SRC_EXACT_ATTENTION_SPANS_H_
