// Gradients of attention cases (attention_case.h) on the device path, in every storage type.
#ifndef HEED_TESTS_CUDA_DEVICE_GRADIENT_CASE_H_
#define HEED_TESTS_CUDA_DEVICE_GRADIENT_CASE_H_

#include "attention_case.h"
#include "gradient_case.h"
#include "heed/dtype.h"

namespace heed::testing {

struct GradientChoices {
  Layout layout = Layout::kDense;    // of q, k, v and d_out where they are 16 bits wide
  bool arrays_on_device = false;     // key_lengths and documents of the case
  DType out_type = DType::kFloat32;  // of the output of forward
  bool on_hopper = false;
  int64_t hopper_blocks = 2;
};

// Rounds q, k, v and what arrives to the type, runs forward on the CPU, then backward on the device
// into buffers full of NaN. Returns the gradients by input, of those that the case has.
Values RunDeviceBackward(AttentionCase& c, Cotangents& cotangents, DType dtype,
                         const GradientChoices& choices = {});

// Compares every element with the float64 oracle: for small cases. `size` is that of the logits.
void ExpectDeviceGradientsMatch(AttentionCase c, DType dtype, const GradientChoices& choices = {},
                                double size = 16);

// Compares every element with the gradient of the CPU and, in float32, the derivative along random
// directions with the oracle.
void ExpectDeviceGradientsMatchCpu(AttentionCase c, DType dtype,
                                   const GradientChoices& choices = {}, double size = 16);

// Compares which vectors of the gradients of q, k and v hold something that is not finite with
// those of the CPU.
void ExpectPoisonReachesAsOnCpu(AttentionCase c, Cotangents cotangents, DType dtype,
                                const GradientChoices& choices = {});

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_DEVICE_GRADIENT_CASE_H_
