// The tensors of one case, and the request that describes them to heed and to the oracle.
#ifndef HEED_NATIVE_BENCH_PROBLEM_H_
#define HEED_NATIVE_BENCH_PROBLEM_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heed/cost.h"
#include "heed/request.h"
#include "heed/tensor.h"
#include "native_bench/cases.h"
#include "native_bench/draw.h"

namespace heed::bench {

// Inputs are drawn by a seeded generator as inputs.inc and examples.inc say: the same numbers for
// every peer and run of one binary. All tensors are contiguous and on cache lines.
class Problem {
 public:
  // Throws heed::Error for a case that the mechanism refuses, std::bad_alloc when memory is short.
  Problem(const Case& c, uint64_t seed);

  const Case& shape() const { return shape_; }
  const Request& request() const { return request_; }
  // The same with every number as float32, which is what the oracle reads: of two-byte storage, the
  // numbers that it holds.
  const Request& widened() const { return widened_; }
  // The input as float32, or nullptr when the mechanism's example has none of that name.
  const OwnedTensor* input(std::string_view name) const;

  // What peers other than heed compute with; only for mechanisms that take q, k and v. Float32
  // whatever the storage.
  TensorView<const float> q() const { return View("q"); }  // [batch, num_heads, q_len, head_dim]
  TensorView<const float> k() const {
    return View("k");
  }  // [batch, num_kv_heads, kv_len, head_dim]
  TensorView<const float> v() const {
    return View("v");
  }  // [batch, num_kv_heads, kv_len, head_dim]

  // The input as the case stores it: q, k and v may be float16 or bfloat16.
  const AnyTensor& stored(std::string_view name) const;

  // [batch, num_heads, q_len, head_dim_v]; of results of lower rank, with leading extents of 1.
  // Only for an output of float32.
  TensorView<float> output() const;
  // The output as it is stored, and one number of it.
  const OwnedTensor& stored_output() const { return outputs_.front(); }
  float OutputAt(int64_t index) const;
  // All results that the request produces, for heed::Run; "output" is the first.
  std::span<const NamedTensor> results() const { return results_; }

  // What heed::EstimateCost says of the request on the case's threads.
  Cost EstimateCost() const { return heed::EstimateCost(request_, shape_.threads); }

  // Position of query 0 among the keys.
  int64_t query_offset() const { return shape_.lengths.kv_len - shape_.lengths.q_len; }
  // The keys that query i sees: from the first to the one after the last.
  std::pair<int64_t, int64_t> VisibleKeys(int64_t i) const;
  // The sink of a query head, nullptr without sinks.
  const float* sink(int64_t head) const;
  // The parameter of mechanisms that measure distances; 1 when there is none.
  double width() const;

  // Makes a stale result unmistakable.
  void FillOutputWithNan();

 private:
  TensorView<const float> View(std::string_view name) const;
  void AddInput(std::string_view name, const Extent& extents, uint64_t seed);
  void DescribeParams(const Extent& extents);

  Case shape_;
  std::vector<OwnedTensor> inputs_;
  std::vector<OwnedTensor> halves_;  // q, k and v of two-byte storage
  Request request_;
  Request widened_;
  std::vector<OwnedTensor> outputs_;
  std::vector<NamedTensor> results_;  // the same, as the registry takes them
};

// A rank-4 float32 view as the registry takes it.
AnyTensor AsAnyTensor(TensorView<const float> view);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_PROBLEM_H_
