// What stands between the two matrix products of the BLAS peer.
#ifndef HEED_NATIVE_BENCH_PEERS_BLAS_SOFTMAX_H_
#define HEED_NATIVE_BENCH_PEERS_BLAS_SOFTMAX_H_

#include <cstdint>

namespace heed::bench::blas_peer {

struct Range {
  int64_t begin;
  int64_t end;
};

// cap * tanh(score / cap) in place.
void Softcap(float* scores, int64_t count, float cap);

// The softmax of the visible scores of one row, with one more logit in the denominator when `sink`
// is not nullptr; 0 elsewhere.
void SoftmaxRow(float* row, int64_t size, Range visible, const float* sink);

}  // namespace heed::bench::blas_peer

#endif  // HEED_NATIVE_BENCH_PEERS_BLAS_SOFTMAX_H_
