// Operations by name: what heed does around its mechanisms (analysis, merging), in the form of
// requests. What JavaScript speaks; C++ callers have the typed functions.
#ifndef HEED_OPERATIONS_H_
#define HEED_OPERATIONS_H_

#include <span>
#include <string_view>
#include <vector>

#include "heed/request.h"
#include "heed/thread_pool.h"

namespace heed {

// A request whose id names an operation instead of a mechanism. The first seven also take every
// input and parameter of the mechanism `attention` that does not ask for results; only erasure and
// attribution look at v, whose head_dim_v may be 0 elsewhere. A number a row is of rank 3, [batch,
// num_heads, q_len]; so are rows of a rollout or flow, [batch, rows, len].
//
//   id               inputs        parameters -> results (each as asked for)
//   analyze          lse?          entropy max expected_distance column_sums return_lse (bool),
//                                  top_weights (a count) -> entropy max_weight max_index
//                                  top_weights top_indices expected_distance column_sums lse
//   weights_tile     lse?          q_begin q_end k_begin k_end -> weights
//   head_similarity                cosine frobenius jensen_shannon (bool) -> the same
//   rollout_layer    rows          residual -> rows
//   multi_hop        x             hops -> output
//   erasure                        q_begin q_end change without (bool) -> change without
//   attribution      d_out         q_begin q_end k_begin k_end, positive column_sums pairs (bool)
//                                  -> column_sums pairs
//   attention_flow   maps          sources (numbers) -> flow
//   head_importance  output w_o?   -> importance
//   prune_heads      importance    num_kept -> keep (uint8)
//   linear           x weight bias?  -> output
//   bmm              a b           transpose_b (bool) -> output
//   softmax          x             axis -> output, of rank 1 to 4 like x
//   log_softmax      x             axis -> output
//   masked_softmax   x lengths? keep?  -> output; x [batch, dim], [batch, rows, dim] or [batch,
//                                  heads, rows, dim], lengths [batch] or [batch, rows], keep
//                                  broadcasts to x
//   layer_norm       x weight? bias?  axis epsilon return_statistics (bool) -> output mean
//                                  inverse_deviation; over all axes from `axis` on, weight and bias
//                                  have these extents
//   rms_norm         x weight?     axis epsilon -> output
//   merge            output_0 lse_0 output_1 lse_1 ... -> output lse
//
// Validates the request and returns what it produces. Throws Error.
std::vector<OutputSpec> PlanOperation(const Request& request);

// Validates the request and runs it into contiguous tensors, one for each entry of
// PlanOperation(request), by name. Throws Error.
void RunOperation(const Request& request, std::span<const NamedTensor> outputs,
                  ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_OPERATIONS_H_
