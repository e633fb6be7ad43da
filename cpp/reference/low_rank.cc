#include "low_rank.h"

#include "exact.h"
#include "inner.h"
#include "softmax.h"

namespace heed::reference {

std::vector<int64_t> ReadBatchLengths(const Request& request, const Qkv& qkv) {
  std::vector<int64_t> lengths(qkv.batch, qkv.kv_len);
  const std::optional<Array> given = ReadIntegers(request, "key_lengths");
  if (!given) return lengths;
  const AnyTensor& tensor = *FindInput(request, "key_lengths");
  if (tensor.rank != 1 || tensor.shape[0] != qkv.batch) {
    throw Error(ErrorCode::kShape, Describe("key_lengths", tensor) + ": expected [batch]");
  }
  for (int64_t b = 0; b < qkv.batch; ++b) {
    lengths[b] = static_cast<int64_t>(given->values[b]);
    if (lengths[b] < 0 || lengths[b] > qkv.kv_len) {
      throw Error(ErrorCode::kRange, "key_lengths has a value outside of 0 to kv_len");
    }
  }
  return lengths;
}

std::vector<Result> AttendTo(const Request& request, const Qkv& made,
                             const std::function<bool(int64_t b, int64_t i, int64_t j)>& sees) {
  // What was said of tokens does not hold for what they have become.
  const InnerRequest inner(request, request.id, {"key_lengths", "causal", "query_offset"});
  const PairScore dot = DotScore(made, ReadScale(request, made));
  const PairScore score = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return sees(b, i, j) ? dot(b, h, i, j) : kMinusInfinity;
  };
  return RunExact(inner.request(), made, score, SoftmaxNormalize(inner.request(), made));
}

}  // namespace heed::reference
