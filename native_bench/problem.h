// The tensors of one case, and the request that describes them to heed and to the oracle.
#ifndef HEED_NATIVE_BENCH_PROBLEM_H_
#define HEED_NATIVE_BENCH_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "heed/request.h"
#include "heed/tensor.h"
#include "native_bench/cases.h"

namespace heed::bench {

// Inputs are drawn from N(0, 1) by a seeded generator: the same numbers for every peer and run of
// one binary. All tensors are contiguous [batch, heads, len, dim] on cache lines.
class Problem {
 public:
  // Throws heed::Error(kUnsupported) when the mechanism requires an input that the benchmark cannot
  // make, std::bad_alloc when memory is short.
  Problem(const Case& c, uint64_t seed);

  const Case& shape() const { return shape_; }
  const Request& request() const { return request_; }
  TensorView<const float> q() const;  // [batch, num_heads, q_len, head_dim]
  TensorView<const float> k() const;  // [batch, num_kv_heads, kv_len, head_dim]
  TensorView<const float> v() const;  // [batch, num_kv_heads, kv_len, head_dim]
  TensorView<float> output() const;   // [batch, num_heads, q_len, head_dim]
  NamedTensor output_tensor() const;  // the same, for heed::Run

  // Position of query 0 among the keys.
  int64_t query_offset() const { return shape_.lengths.kv_len - shape_.lengths.q_len; }
  // Width of mechanisms that measure distances: sqrt(head_dim), which keeps typical distances of
  // N(0, 1) vectors near sqrt(2) widths whatever head_dim is.
  double width() const { return width_; }

  // Makes a stale result unmistakable.
  void FillOutputWithNan();

 private:
  struct Release {
    void operator()(float* data) const { ::operator delete[](data, std::align_val_t{64}); }
  };
  using Buffer = std::unique_ptr<float[], Release>;

  static Buffer Allocate(int64_t count);
  static Buffer RandomNormal(int64_t count, uint64_t seed);
  void DescribeInputs();
  void DescribeParams();

  Case shape_;
  double width_ = 1;
  Buffer q_, k_, v_, output_;
  Request request_;
};

// A rank-4 float32 view as the registry takes it.
AnyTensor AsAnyTensor(TensorView<const float> view);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_PROBLEM_H_
