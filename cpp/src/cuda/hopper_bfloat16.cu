#include "src/cuda/hopper_launch.h"

template void heed::cuda::LaunchHopper<heed::BFloat16>(const HopperPlan&, const AttentionParams&,
                                                       const Device&, Stream);
