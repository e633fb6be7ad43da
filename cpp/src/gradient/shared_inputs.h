// Inputs of requests that are two tensors of a call at once, or one for all batch entries: their
// gradients are put together from those of the call.
#ifndef HEED_SRC_GRADIENT_SHARED_INPUTS_H_
#define HEED_SRC_GRADIENT_SHARED_INPUTS_H_

#include <span>
#include <vector>

#include "heed/gradient.h"
#include "src/exact/request.h"

namespace heed {

// concat_weight is W_q and W_k side by side; location_weight is k.
inline constexpr const char* kSharedInputs[] = {"concat_weight", "location_weight"};

class SharedGradients {
 public:
  // Gives the call places for those gradients that are wanted.
  SharedGradients(const AttentionRequest& r, std::span<const NamedTensor> gradients,
                  AttentionGradients& to);

  // Takes them from there, after the call.
  void Write() const;

 private:
  void WriteConcat() const;
  void WriteLocation() const;

  const AnyTensor* concat_;
  const AnyTensor* location_;
  Extents location_shape_{};  // of k
  std::vector<float> first_, second_;
};

}  // namespace heed

#endif  // HEED_SRC_GRADIENT_SHARED_INPUTS_H_
