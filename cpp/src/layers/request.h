// Layers behind heed::Run: from names to typed calls, two verbs a mechanism.
#ifndef HEED_SRC_LAYERS_REQUEST_H_
#define HEED_SRC_LAYERS_REQUEST_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/layers.h"
#include "heed/request.h"
#include "heed/thread_pool.h"
#include "src/request_reader.h"

namespace heed {

// A required float tensor [batch, len, dim] as [batch, 1, len, dim].
TensorView<const float> ReadRows(const RequestReader& reader, std::string_view name);

// A float tensor of this rank with leading extents of 1; an absent view when it is not given.
TensorView<const float> ReadWeight(const RequestReader& reader, std::string_view name, int rank);

// ReadWeight of one that must be there.
TensorView<const float> ReadRequiredWeight(const RequestReader& reader, std::string_view name,
                                           int rank);

// The parameter `activation`; kGelu when it is not given.
Activation ReadActivation(const RequestReader& reader);

// The output of this name, [batch, len, dim], as [batch, 1, len, dim]; absent if there is none.
TensorView<float> RowsOutput(std::span<const NamedTensor> outputs, std::string_view name);

std::vector<OutputSpec> PlanMultiHead(const RequestReader& reader);
void RunMultiHead(const RequestReader& reader, std::span<const NamedTensor> outputs,
                  ThreadPool* pool);

std::vector<OutputSpec> PlanMultiHeadLatent(const RequestReader& reader);
void RunMultiHeadLatent(const RequestReader& reader, std::span<const NamedTensor> outputs,
                        ThreadPool* pool);
std::vector<OutputSpec> PlanTransformerBlock(const RequestReader& reader);
void RunTransformerBlock(const RequestReader& reader, std::span<const NamedTensor> outputs,
                         ThreadPool* pool);
std::vector<OutputSpec> PlanAttentionClassifier(const RequestReader& reader);
void RunAttentionClassifier(const RequestReader& reader, std::span<const NamedTensor> outputs,
                            ThreadPool* pool);
std::vector<OutputSpec> PlanMultiQuery(const RequestReader& reader);
void RunMultiQuery(const RequestReader& reader, std::span<const NamedTensor> outputs,
                   ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_REQUEST_H_
