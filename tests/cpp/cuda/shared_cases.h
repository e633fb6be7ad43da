// Cases that every kernel of attention has to get right; those of what a row sees are handed to
// `expect` one by one.
#ifndef HEED_TESTS_CPP_CUDA_SHARED_CASES_H_
#define HEED_TESTS_CPP_CUDA_SHARED_CASES_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "attention_case.h"

namespace heed::testing {

using ExpectCase = std::function<void(const AttentionCase&)>;

inline AttentionCase OneHeadCase(int64_t q_len, int64_t kv_len, int64_t head_dim,
                                 int64_t head_dim_v) {
  return MakeCase({.num_heads = 1,
                   .num_kv_heads = 1,
                   .q_len = q_len,
                   .kv_len = kv_len,
                   .head_dim = head_dim,
                   .head_dim_v = head_dim_v});
}

// Causal attention of sizes but for these lengths; the queries are the last tokens.
inline AttentionCase CausalCase(Sizes sizes, int64_t q_len, int64_t kv_len) {
  sizes.q_len = q_len;
  sizes.kv_len = kv_len;
  AttentionCase c = MakeCase(sizes, 3);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  return c;
}

// `sizes` has two batch entries.
inline void ForCausalOffsets(const Sizes& sizes, const ExpectCase& expect) {
  const int64_t kv_len = sizes.kv_len;
  expect(CausalCase(sizes, kv_len, kv_len));
  expect(CausalCase(sizes, 20, kv_len));
  expect(CausalCase(sizes, kv_len, 20));  // the first rows are empty
  AttentionCase c = CausalCase(sizes, sizes.q_len, kv_len);
  c.scalars.query_offset = QueryOffset::PerBatch({2 * kv_len / 3, -7});
  expect(c);
}

inline void ForWindowsOfEverySide(const Sizes& sizes, const ExpectCase& expect) {
  for (const Window& window : {Window{0, 0}, Window{5, sizes.kv_len / 2 - 5},
                               Window{std::nullopt, 3}, Window{66, std::nullopt}, Window{0, 500}}) {
    AttentionCase c = MakeCase(sizes);
    c.scalars.window = window;
    c.scalars.query_offset = QueryOffset::At(sizes.kv_len / 2 - 15);
    expect(c);
  }
}

// Lengths of two batch entries, then, causal and not, of each of their queries. Returns the last
// case.
inline AttentionCase ForLengths(const Sizes& sizes, const ExpectCase& expect) {
  AttentionCase c = MakeCase(sizes);
  c.key_lengths = {0, 129};
  expect(c);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  expect(c);
  c.scalars.query_offset = QueryOffset::At(3);
  Random random(4);
  c.key_lengths.clear();
  for (int64_t n = 0; n < 2 * sizes.q_len; ++n) {
    c.key_lengths.push_back(
        static_cast<int32_t>(random.Integer(0, static_cast<int>(sizes.kv_len))));
  }
  expect(c);
  return c;
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CPP_CUDA_SHARED_CASES_H_
