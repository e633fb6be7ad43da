#include "src/cuda/hopper_gradient_launch.h"

template void heed::cuda::LaunchHopperGradients<heed::BFloat16>(const HopperGradientPlan&,
                                                                const GradientParams&,
                                                                const Device&, Stream);
