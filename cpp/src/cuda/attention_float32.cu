#include "src/cuda/launch.h"

template void heed::cuda::LaunchAttention<float>(const AttentionPlan&, const AttentionParams&,
                                                 const Device&, Stream);
