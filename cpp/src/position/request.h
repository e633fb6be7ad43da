// The position functions by name.
#ifndef HEED_SRC_POSITION_REQUEST_H_
#define HEED_SRC_POSITION_REQUEST_H_

#include <span>
#include <vector>

#include "src/position/problem.h"
#include "src/request_reader.h"

namespace heed {

RotationProblem ReadRope(const RequestReader& reader);
RotationProblem ReadXpos(const RequestReader& reader);
AdditionProblem ReadSinusoidal(const RequestReader& reader);
AdditionProblem ReadLearnedPosition(const RequestReader& reader);

// One output of the shape of x.
std::vector<OutputSpec> PlanLikeX(const RequestReader& reader);
TensorView<float> OutputLikeX(std::span<const NamedTensor> outputs);

}  // namespace heed

#endif  // HEED_SRC_POSITION_REQUEST_H_
