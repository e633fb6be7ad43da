// Which calls the kernel of decode_kernel.h takes, and its sizes. No CUDA here.
#ifndef HEED_SRC_CUDA_DECODE_PLAN_H_
#define HEED_SRC_CUDA_DECODE_PLAN_H_

#include <cstdint>
#include <type_traits>

namespace heed::cuda {

struct DeviceProblem;

inline constexpr int kDecodeHeads = 8;      // of a group, at most
inline constexpr int kDecodeStepKeys = 16;  // of a warp
inline constexpr int kDecodeTileKeys = 64;  // of the four of a block

// Blocks that share a multiprocessor: as many as keep enough keys and values on their way. Of 64
// columns each has half as many bytes.
constexpr int DecodeResidentOf(int columns) { return columns == 64 ? 3 : 2; }

// Calls with one query a head: float16 or bfloat16, 64 or 128 columns of keys and as many of
// values, up to 8 query heads a KV head, softmax with or without sinks, and keys hidden by lengths,
// causal, windows and prefixes alone; tensors in which every row begins at 16 bytes, or pages of
// such, of 16, 32, 64, ... tokens. `call` is one that does not need rows (row_plan.h).
bool TakesDecoding(const DeviceProblem& call);

// Calls body(integral constant of the columns, of whether keys lie in pages).
template <class Body>
void WithDecodeShape(int columns, bool paged, const Body& body) {
  const auto with_columns = [&](auto constant) {
    if (paged) return body(constant, std::true_type());
    body(constant, std::false_type());
  };
  if (columns == 64) return with_columns(std::integral_constant<int, 64>());
  with_columns(std::integral_constant<int, 128>());
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_DECODE_PLAN_H_
