// Compiled with -mavx2 -mfma: nothing here may run before xsimd.cc has asked the processor.
#include "native_bench/peers/xsimd/flash_kernel.h"

namespace heed::bench::xsimd_peer {

Kernel Avx2Kernel() { return MakeKernel<xsimd::fma3<xsimd::avx2>>(); }

}  // namespace heed::bench::xsimd_peer
