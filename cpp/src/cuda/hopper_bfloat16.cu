#include "src/cuda/hopper_launch.h"

template void heed::cuda::LaunchHopper<heed::BFloat16>(const HopperPlan&, const HopperParams&,
                                                       const Device&, Stream);
