// The plan of a recurrent call of stored tensors on the device, made on the host: in chunks, or
// token by token on copies in float32. No CUDA here.
#ifndef HEED_SRC_CUDA_CHUNK_PLAN_H_
#define HEED_SRC_CUDA_CHUNK_PLAN_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "heed/cuda.h"
#include "src/cuda/chunk_params.h"
#include "src/cuda/plan.h"
#include "src/recurrent/problem.h"

namespace heed::cuda {

// A checked call.
struct StoredRecurrentProblem {
  StoredTensor q, k, v;
  StoredOutput output;
  RecurrentProblem problem;  // its q, k, v and output have shapes, and nothing behind them
};

// Refuses what the device path lacks, then validates everything but what the numbers of tensors
// are: they lie on the device. Throws Error.
StoredRecurrentProblem ValidateStoredRecurrentForDevice(const StoredTensor& q,
                                                        const StoredTensor& k,
                                                        const StoredTensor& v,
                                                        const RecurrentOptions& options,
                                                        const StoredRecurrentOutputs& outputs);

// Fewer tokens are a part of one chunk.
inline constexpr int64_t kLeastChunkedTokens = kChunkTokens;
// Features that a block has registers for.
inline constexpr int64_t kMaxChunkedFeatures = 128;

// Is the call computed in chunks?
bool TakesChunks(const StoredRecurrentProblem& call);

class ChunkPlan {
 public:
  // For a GPU of so many multiprocessors.
  ChunkPlan(const StoredRecurrentProblem& call, int64_t processors);

  DType dtype() const { return params_.q.dtype; }
  int features() const { return params_.features <= 64 ? 64 : 128; }  // the kernel's argument
  int64_t spans() const { return params_.spans; }

  // Blocks of ChunkSums, ScanSpans and ChunkReads, which run in this order.
  int64_t num_sum_blocks() const { return columns() * (params_.spans - 1); }
  int64_t num_scan_blocks() const;
  int64_t num_read_blocks() const { return columns() * params_.spans; }

  // States before all spans, and what spans multiply them by.
  int64_t scratch_floats() const;
  const std::vector<char>& host_arrays() const { return arrays_.bytes(); }

  // The parameters, given where copies of host_arrays() and scratch_floats() floats lie.
  ChunkParams Params(const char* arrays, float* scratch) const;

 private:
  int64_t columns() const { return int64_t{params_.units} * params_.slices; }
  void SetSpans(int64_t processors);

  ChunkParams params_{};
  HostArrays arrays_;
  int64_t skip_ = -1, lengths_ = -1;  // offsets in arrays_; -1: absent
};

// Calls body(std::type_identity<Element>(), std::integral_constant<int, features>()).
template <class Body>
void WithChunks(const ChunkPlan& plan, const Body& body) {
  const auto with = [&](auto element) {
    if (plan.features() == 64) return body(element, std::integral_constant<int, 64>());
    body(element, std::integral_constant<int, 128>());
  };
  if (plan.dtype() == DType::kFloat16) return with(std::type_identity<Float16>());
  with(std::type_identity<BFloat16>());
}

// Any other call: q, k and v become float32 first, and the output its own type at the end.
class WideCall {
 public:
  explicit WideCall(const StoredRecurrentProblem& call) : call_(call) {}

  int64_t scratch_floats() const;
  // The call in float32, and the conversions before and after it.
  RecurrentProblem On(float* scratch) const;
  std::vector<ConvertParams> Before(float* scratch) const;
  std::vector<ConvertParams> After(float* scratch) const;

 private:
  // The copies of q, k, v and the output.
  TensorView<float> CopyOf(int tensor, float* scratch) const;
  StoredTensor TensorAt(int tensor) const;

  const StoredRecurrentProblem& call_;
};

inline int64_t NumBlocks(const ConvertParams& p) {
  return (p.numbers + kConvertNumbers - 1) / kConvertNumbers;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHUNK_PLAN_H_
