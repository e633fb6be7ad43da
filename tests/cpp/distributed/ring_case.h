// Calls of attention over ranks, each beside the call of the whole.
#ifndef HEED_TESTS_DISTRIBUTED_RING_CASE_H_
#define HEED_TESTS_DISTRIBUTED_RING_CASE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "buffer.h"
#include "distributed/shards.h"
#include "heed/distributed.h"

namespace heed::testing {

// Everything of the whole. Options point into what the case owns.
struct RingCase {
  RingCase() = default;
  RingCase(const RingCase&) = delete;

  std::string name;
  int64_t batch = 2, num_heads = 4, num_kv_heads = 2, head_dim = 8, head_dim_v = 12;
  distributed::Sharding sharding = {.q_len = 53, .kv_len = 53};
  AttentionOptions options;

  // Tensors that options point at: those of the whole.
  Buffer<float> q, k, v, bias;
  std::vector<Buffer<float>> tables;  // with room for all, so that they stay where they are
  Buffer<uint8_t> keep;
  std::vector<float> numbers, more_numbers;
  std::vector<int32_t> lengths, query_documents, key_documents;

  int64_t head_dim_k = 0;  // 0: head_dim

  void DrawTensors();
  // A table of ~ N(0, 1/4), for an option.
  TensorView<const float> Table(const Extents& shape);
};

// The options of a rank: what counts queries has its queries. Owns their memory.
struct RankOptions {
  RankOptions(const RingCase& c, int rank, int size);
  RankOptions(const RankOptions&) = delete;
  AttentionOptions options;

 private:
  Buffer<float> bias_;
  Buffer<uint8_t> keep_;
  std::vector<int32_t> lengths_, documents_;
};

struct RingResults {
  Buffer<float> output, lse;
};

RingResults RunWhole(const RingCase& c);
RingResults RunOverRanks(const RingCase& c, int size, int num_threads = 1);

struct RingGradients {
  Buffer<float> d_q, d_k, d_v;
  std::vector<Buffer<float>> d_tables;      // of each option that is a tensor
  std::vector<std::vector<float>> d_lists;  // of each that is a list
};

// `forward` is that of the whole.
RingGradients RunWholeBackward(const RingCase& c, const RingResults& forward,
                               const Buffer<float>& d_out, const Buffer<float>& d_lse);
RingGradients RunBackwardOverRanks(const RingCase& c, const RingResults& forward,
                                   const Buffer<float>& d_out, const Buffer<float>& d_lse, int size,
                                   int num_threads = 1);

// One of each option that attention over ranks takes, by name.
struct RingVariant {
  const char* name;
  void (*apply)(RingCase& c);
};
std::span<const RingVariant> RingVariants();

// The largest difference relative to the largest element of `expected`. -inf equals -inf.
double LargestError(const Buffer<float>& got, const Buffer<float>& expected);
double LargestError(const std::vector<float>& got, const std::vector<float>& expected);

}  // namespace heed::testing

#endif  // HEED_TESTS_DISTRIBUTED_RING_CASE_H_
