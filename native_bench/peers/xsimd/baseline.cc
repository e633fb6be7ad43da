#include "native_bench/peers/xsimd/flash_kernel.h"

namespace heed::bench::xsimd_peer {

Kernel BaselineKernel() { return MakeKernel<xsimd::default_arch>(); }

}  // namespace heed::bench::xsimd_peer
