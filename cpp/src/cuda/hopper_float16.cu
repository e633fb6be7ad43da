#include "src/cuda/hopper_launch.h"

template void heed::cuda::LaunchHopper<heed::Float16>(const HopperPlan&, const AttentionParams&,
                                                      const Device&, Stream);
