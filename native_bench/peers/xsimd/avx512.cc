// Compiled with -mavx512f and its companions: nothing here may run before xsimd.cc has asked the
// processor.
#include "native_bench/peers/xsimd/flash_kernel.h"

namespace heed::bench::xsimd_peer {

Kernel Avx512Kernel() { return MakeKernel<xsimd::avx512bw>(); }

}  // namespace heed::bench::xsimd_peer
