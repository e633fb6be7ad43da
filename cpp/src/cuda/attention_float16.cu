#include "src/cuda/launch.h"

template void heed::cuda::LaunchAttention<heed::Float16>(const AttentionPlan&,
                                                         const AttentionParams&, const Device&,
                                                         Stream);
