// The plan of gated chunks, made on the host. No CUDA here.
#ifndef HEED_SRC_CUDA_GATED_CHUNK_PLAN_H_
#define HEED_SRC_CUDA_GATED_CHUNK_PLAN_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "src/cuda/chunk_plan.h"
#include "src/cuda/gated_chunk_params.h"

namespace heed::cuda {

// Is the call computed in gated chunks? Never one that TakesChunks().
bool TakesGatedChunks(const StoredRecurrentProblem& call);

// What is prepared of a batch at a time, in bytes: longer sequences are taken in segments of half
// as much, but one chunk at least, of which one is prepared while that before it is read.
inline constexpr int64_t kMaxPreparedBytes = int64_t{64} << 20;

class GatedChunkPlan {
 public:
  // For a GPU of so many multiprocessors.
  GatedChunkPlan(const StoredRecurrentProblem& call, int64_t processors,
                 int64_t max_prepared_bytes = kMaxPreparedBytes);

  int features() const { return params_.features <= 64 ? 64 : 128; }  // the kernels' argument
  int64_t num_segments() const { return segments_; }
  // Segments that are prepared at a time: segment n + buffers() replaces segment n.
  int64_t buffers() const { return segments_ > 1 ? 2 : 1; }

  // Prepared chunks, states before spans, models of spans, and the state between segments.
  int64_t scratch_bytes() const;
  const std::vector<char>& host_arrays() const { return arrays_.bytes(); }

  // The parameters of a segment, given where copies of host_arrays() and scratch_bytes() bytes,
  // aligned to 16, lie. Segments are prepared in ascending order, and so they are read.
  GatedChunkParams Params(int64_t segment, const char* arrays, char* scratch) const;

 private:
  int64_t SpansOf(int64_t chunks) const;
  int64_t state_floats() const { return int64_t{params_.features} * params_.width; }
  int64_t prepared_bytes() const;

  GatedChunkParams params_{};  // of the first segment
  int64_t processors_, chunks_, segments_ = 0;
  HostArrays arrays_;
  int64_t skip_ = -1, lengths_ = -1;  // offsets in arrays_; -1: absent
};

// Blocks of GatedChunkTokens, GatedSums, ScanStates or ScanModels, and GatedReads, which run in
// this order.
int64_t NumTokenBlocks(const GatedChunkParams& p);
int64_t NumSumBlocks(const GatedChunkParams& p);
int64_t NumScanBlocks(const GatedChunkParams& p);
int64_t NumReadBlocks(const GatedChunkParams& p);

// Calls body(std::integral_constant<int, features>()).
template <class Body>
void WithGatedChunks(const GatedChunkPlan& plan, const Body& body) {
  if (plan.features() == 64) return body(std::integral_constant<int, 64>());
  body(std::integral_constant<int, 128>());
}
// Calls body(std::bool_constant<decays_channels>(), std::bool_constant<delta>()).
template <class Body>
void WithGatedTokens(const GatedChunkParams& params, const Body& body) {
  const auto with_delta = [&](auto channels) {
    if (params.delta) return body(channels, std::true_type());
    body(channels, std::false_type());
  };
  if (params.decays_channels) return with_delta(std::true_type());
  with_delta(std::false_type());
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHUNK_PLAN_H_
