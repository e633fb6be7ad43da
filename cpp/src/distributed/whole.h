// One rank's view of a call over all ranks, after validation, and the calls that it is made of: a
// span of this rank's queries against a span of some rank's keys.
#ifndef HEED_SRC_DISTRIBUTED_WHOLE_H_
#define HEED_SRC_DISTRIBUTED_WHOLE_H_

#include <cstdint>
#include <vector>

#include "heed/distributed.h"
#include "src/distributed/agreement.h"
#include "src/exact/problem.h"

namespace heed::distributed {

// Rows [begin, begin + tokens.len) of a rank's tensors hold these tokens.
struct Rows {
  int64_t begin = 0;
  TokenSpan tokens;
};

// The spans of tokens that a rank has, without empty ones.
std::vector<Rows> RowsOf(int64_t len, int rank, int size, TokenOrder order);
int64_t CountRows(const std::vector<Rows>& spans);

struct Whole {
  AttentionProblem attention;  // this rank's queries and all keys; k and v have shapes alone
  StoredTensor k, v;           // this rank's
  AttentionOptions options;    // as they were given
  Sharding sharding;
  int rank = 0;
  int size = 1;
  std::vector<Rows> queries;  // of this rank

  std::vector<Rows> KeysOf(int other) const {
    return RowsOf(sharding.kv_len, other, size, sharding.order);
  }
  // How many keys each rank has.
  std::vector<int64_t> KeyCounts() const;
};

// Throws Error for what Attention() of a whole would refuse, and for what cannot be split by keys.
Whole ValidateWhole(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                    const AttentionOptions& options, bool wants_lse, const Sharding& sharding,
                    const Communicator& communicator);

// Where one rank has everything: the options of the call by itself.
AttentionOptions OneRankOptions(const Whole& whole);

// What ranks must have given alike; of a problem that is not valid, zeros.
Terms TermsOf(const Whole& whole);

// Does any of these queries see any of these keys, by causal, window and lengths alone?
bool Sees(const Whole& whole, const TokenSpan& queries, const TokenSpan& keys);

// Calls visit(queries, keys) for the spans of this rank's queries, and of the keys of `owner`, that
// may see each other.
template <typename Visit>
void ForEachPart(const Whole& whole, int owner, const Visit& visit) {
  for (const Rows& keys : whole.KeysOf(owner)) {
    for (const Rows& queries : whole.queries) {
      if (Sees(whole, queries.tokens, keys.tokens)) visit(queries, keys);
    }
  }
}

// The options of a call of some queries and some keys. Softmax without sinks: these join when all
// keys have been seen. Owns what the options point at.
class PartOptions {
 public:
  PartOptions(const Whole& whole, const Rows& queries, const TokenSpan& keys);
  const AttentionOptions& get() const { return options_; }

 private:
  void SetLengths(const Whole& whole, const Rows& queries, const TokenSpan& keys);
  void SetDocuments(const Whole& whole, const Rows& queries, const TokenSpan& keys);

  AttentionOptions options_;
  std::vector<int32_t> key_lengths_, prefix_lengths_, query_documents_, key_documents_;
};

// A function of a part, as one that is shown the places of the whole.
TileFunction Shifted(const TileFunction& function, int64_t first_query, int64_t first_key);

// Rows [begin, begin + len) of every head.
StoredTensor RowsOf(const StoredTensor& tensor, int64_t begin, int64_t len);
template <typename T>
TensorView<T> RowsOf(const TensorView<T>& view, int64_t begin, int64_t len) {
  return {view.data == nullptr ? nullptr : view.data + begin * view.strides[2],
          {view.shape[0], view.shape[1], len, view.shape[3]},
          view.strides};
}

}  // namespace heed::distributed

#endif  // HEED_SRC_DISTRIBUTED_WHOLE_H_
