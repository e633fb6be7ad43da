// An attention kernel written with xsimd, independent of heed's: what xsimd.cc asks of one
// instruction set.
#ifndef HEED_NATIVE_BENCH_PEERS_XSIMD_FLASH_H_
#define HEED_NATIVE_BENCH_PEERS_XSIMD_FLASH_H_

#include <cstdint>

namespace heed::bench::xsimd_peer {

// One head: contiguous rows of head_dim floats.
struct Head {
  const float* q;  // [q_len, head_dim]
  const float* k;  // [kv_len, head_dim]
  const float* v;  // [kv_len, head_dim]
  float* output;   // [q_len, head_dim]
  int64_t q_len;
  int64_t kv_len;
  int64_t head_dim;  // a multiple of `lanes`
  bool causal;
  int64_t query_offset;  // position of query 0 among the keys
};

// The kernel of one instruction set. Both functions want their buffers on a cache line.
struct Kernel {
  const char* name;
  int64_t lanes;
  int64_t block;  // queries of one call of `attend`

  int64_t (*packed_size)(int64_t kv_len, int64_t head_dim);  // floats
  void (*pack)(const Head& head, float* packed);             // packed <- k, transposed in panels

  int64_t (*scratch_size)(int64_t head_dim);  // floats
  // Rows first_query .. first_query + block - 1 (or the last one) of the output.
  void (*attend)(const Head& head, const float* packed, int64_t first_query, float* scratch);
};

Kernel BaselineKernel();  // what the compiler's default flags allow: SSE2, NEON, ...
#if defined(HEED_BENCH_XSIMD_X86)
Kernel Avx2Kernel();
Kernel Avx512Kernel();
#endif

}  // namespace heed::bench::xsimd_peer

#endif  // HEED_NATIVE_BENCH_PEERS_XSIMD_FLASH_H_
