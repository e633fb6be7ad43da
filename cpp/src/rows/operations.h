// The functions of rows as operations (heed/operations.h).
#ifndef HEED_SRC_ROWS_OPERATIONS_H_
#define HEED_SRC_ROWS_OPERATIONS_H_

#include <span>
#include <vector>

#include "heed/request.h"
#include "heed/thread_pool.h"
#include "src/request_reader.h"

namespace heed {

using NamedTensors = std::span<const NamedTensor>;

std::vector<OutputSpec> PlanSoftmax(const RequestReader& reader);
void RunSoftmax(const RequestReader& reader, NamedTensors outputs, ThreadPool* pool);
void RunLogSoftmax(const RequestReader& reader, NamedTensors outputs, ThreadPool* pool);
std::vector<OutputSpec> PlanMaskedSoftmax(const RequestReader& reader);
void RunMaskedSoftmax(const RequestReader& reader, NamedTensors outputs, ThreadPool* pool);
std::vector<OutputSpec> PlanLayerNorm(const RequestReader& reader);
void RunLayerNorm(const RequestReader& reader, NamedTensors outputs, ThreadPool* pool);
std::vector<OutputSpec> PlanRmsNorm(const RequestReader& reader);
void RunRmsNorm(const RequestReader& reader, NamedTensors outputs, ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_ROWS_OPERATIONS_H_
