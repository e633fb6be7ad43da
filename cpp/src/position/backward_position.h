// The way back of positions, by name. Inputs are float32; d_results holds what arrives at "output".
#ifndef HEED_SRC_POSITION_BACKWARD_POSITION_H_
#define HEED_SRC_POSITION_BACKWARD_POSITION_H_

#include <span>

#include "src/gradient/backward_places.h"
#include "src/position/problem.h"
#include "src/request_reader.h"

namespace heed {

// The same rotation the other way round, with the factors of forward, of other rows.
RotationProblem TurnedBack(RotationProblem problem, const TensorView<const float>& rows);

// Rotations are linear: d_x is d_output turned back by the same angles, with the factors of
// forward. Given tables: the gradient of a row is the sum over the rows of x that stand there.
void RopeBackward(const RequestReader& reader, std::span<const NamedTensor> d_results,
                  const GradientPlaces& places, ThreadPool& pool);
void XposBackward(const RequestReader& reader, std::span<const NamedTensor> d_results,
                  const GradientPlaces& places, ThreadPool& pool);

// Sums: d_x is d_output, and a row of a learned table gets what arrives where it was added.
void SinusoidalBackward(const RequestReader& reader, std::span<const NamedTensor> d_results,
                        const GradientPlaces& places, ThreadPool& pool);
void LearnedPositionBackward(const RequestReader& reader, std::span<const NamedTensor> d_results,
                             const GradientPlaces& places, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_POSITION_BACKWARD_POSITION_H_
