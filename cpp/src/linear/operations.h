// linear and bmm as operations (heed/operations.h).
#ifndef HEED_SRC_LINEAR_OPERATIONS_H_
#define HEED_SRC_LINEAR_OPERATIONS_H_

#include <span>
#include <vector>

#include "heed/request.h"
#include "heed/thread_pool.h"
#include "src/request_reader.h"

namespace heed {

std::vector<OutputSpec> PlanLinear(const RequestReader& reader);
void RunLinear(const RequestReader& reader, std::span<const NamedTensor> outputs, ThreadPool* pool);
std::vector<OutputSpec> PlanBmm(const RequestReader& reader);
void RunBmm(const RequestReader& reader, std::span<const NamedTensor> outputs, ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_LINEAR_OPERATIONS_H_
