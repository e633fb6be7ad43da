// Which tokens and heads a rank has.
#include <algorithm>

#include "heed/distributed.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed::distributed {
namespace {

// Tiles of the loop and words of dropout begin at multiples of 4 keys.
constexpr int64_t kTokensTogether = 4;

void CheckRank(int rank, int size) {
  if (size < 1) Fail(ErrorCode::kRange, "size = {}; there is at least 1 rank", {size});
  if (rank < 0 || rank >= size) {
    Fail(ErrorCode::kRange, "rank = {}; ranks lie in [0, size = {})", {rank, size});
  }
}

// Run `part` of `parts` of the tokens: whole fours, as evenly as they go.
TokenSpan Run(int64_t len, int64_t part, int64_t parts) {
  const int64_t fours = len / kTokensTogether + (len % kTokensTogether != 0 ? 1 : 0);
  const int64_t each = fours / parts, more = fours % parts;
  const auto begin = [&](int64_t n) {
    const int64_t first = n * each + std::min(n, more);
    return first == fours ? len : kTokensTogether * first;
  };
  return {begin(part), begin(part + 1) - begin(part)};
}

}  // namespace

std::vector<TokenSpan> TokensOf(int64_t len, int rank, int size, TokenOrder order) {
  return WithMemoryErrors("spans of tokens", [&]() -> std::vector<TokenSpan> {
    if (len < 0) Fail(ErrorCode::kRange, "len = {}; it counts tokens, >= 0", {len});
    CheckRank(rank, size);
    CheckEnum("order", order, TokenOrder::kZigzag);
    if (order == TokenOrder::kContiguous) return {Run(len, rank, size)};
    const int64_t parts = 2 * static_cast<int64_t>(size);
    return {Run(len, rank, parts), Run(len, parts - 1 - rank, parts)};
  });
}

TokenSpan HeadsOf(int64_t num_heads, int rank, int size) {
  if (num_heads < 1) Fail(ErrorCode::kRange, "num_heads = {}; it is at least 1", {num_heads});
  CheckRank(rank, size);
  if (num_heads % size == 0) {
    const int64_t each = num_heads / size;
    return {rank * each, each};
  }
  if (size % num_heads == 0) return {rank / (size / num_heads), 1};
  Fail(ErrorCode::kRange, "{} heads for {} ranks; one must be a multiple of the other",
       {num_heads, size});
}

}  // namespace heed::distributed
