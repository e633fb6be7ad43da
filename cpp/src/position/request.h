// The position functions by name.
#ifndef HEED_SRC_POSITION_REQUEST_H_
#define HEED_SRC_POSITION_REQUEST_H_

#include <span>
#include <string_view>
#include <vector>

#include "src/position/problem.h"
#include "src/request_reader.h"

namespace heed {

// scaling and its numbers.
RopeScaling ReadScaling(const RequestReader& reader);

RotationProblem ReadRope(const RequestReader& reader);
RotationProblem ReadXpos(const RequestReader& reader);
AdditionProblem ReadSinusoidal(const RequestReader& reader);
AdditionProblem ReadLearnedPosition(const RequestReader& reader);

// One output of the shape of x.
std::vector<OutputSpec> PlanLikeX(const RequestReader& reader);
// The tensor of this name, shaped as x, as [batch, num_heads, len, dim]; absent if there is none.
TensorView<float> TensorLikeX(std::span<const NamedTensor> tensors, std::string_view name);

// The verbs of a position: kRead is one of the functions above, kRun what runs its problem.
template <auto kRead>
std::vector<OutputSpec> PlanPosition(const RequestReader& reader) {
  kRead(reader);
  return PlanLikeX(reader);
}
template <auto kRead, auto kRun>
void RunPosition(const RequestReader& reader, std::span<const NamedTensor> outputs,
                 ThreadPool* pool) {
  kRun(kRead(reader), TensorLikeX(outputs, "output"), pool);
}

}  // namespace heed

#endif  // HEED_SRC_POSITION_REQUEST_H_
