#include "src/cuda/hopper_launch.h"

template void heed::cuda::LaunchHopper<heed::Float8E4M3>(const HopperPlan&, const HopperParams&,
                                                         const Device&, Stream);
