#include "src/cuda/gradient_launch.h"

template void heed::cuda::LaunchGradients<heed::Float16>(const GradientPlan&, const GradientParams&,
                                                         Stream);
