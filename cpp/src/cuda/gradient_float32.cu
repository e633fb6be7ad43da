#include "src/cuda/gradient_launch.h"

template void heed::cuda::LaunchGradients<float>(const GradientPlan&, const GradientParams&,
                                                 Stream);
