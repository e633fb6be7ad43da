// Cases that every kernel of attention has to get right; those of what a row sees are handed to
// `expect` one by one.
#ifndef HEED_TESTS_CPP_CUDA_SHARED_CASES_H_
#define HEED_TESTS_CPP_CUDA_SHARED_CASES_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

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

// More rows and keys than a block takes, tails of both.
inline Sizes SeveralSizes() {
  return {.batch = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .q_len = 41,
          .kv_len = 150,
          .head_dim = 24,
          .head_dim_v = 20};
}

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

// Of queries and keys, around tiles of 64.
inline void ForLengthsAroundTiles(
    const ExpectCase& expect,
    const Pairs& lengths = {{1, 1}, {3, 3}, {63, 63}, {65, 65}, {1, 200}, {130, 3}, {64, 128}}) {
  for (const auto& [q_len, kv_len] : lengths) expect(OneHeadCase(q_len, kv_len, 16, 16));
}

// Of keys and values, to the widest tiles.
inline void ForEveryHeadDim(const ExpectCase& expect) {
  for (const auto& [dim, dim_v] :
       Pairs{{1, 1}, {40, 33}, {64, 64}, {5, 80}, {96, 7}, {128, 128}, {192, 128}, {256, 256}}) {
    expect(OneHeadCase(20, 70, dim, dim_v));
  }
}

inline void ForSharedKvHeads(const ExpectCase& expect, Sizes sizes,
                             const Pairs& heads = {{6, 1}, {6, 3}, {3, 3}}) {
  for (const auto& [num_heads, num_kv_heads] : heads) {
    sizes.num_heads = num_heads;
    sizes.num_kv_heads = num_kv_heads;
    expect(MakeCase(sizes));
  }
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

// Of the tensors and of the output; `expect` gets that of q, k and v besides.
inline void ForLayoutsOfAscendingStrides(
    const Sizes& sizes, const std::function<void(const AttentionCase&, Layout)>& expect) {
  for (const Layout layout : {Layout::kDense, Layout::kBlhd}) {
    AttentionCase c = MakeCase(sizes, 5, layout);
    for (const Layout output : {layout, Layout::kPadded, Layout::kReversed}) {
      c.output_layout = output;
      expect(c, layout);
    }
  }
}

// Softcap, ALiBi, sinks and softmax1 in `c`, which has four heads, together and alone.
inline void ForModifiers(AttentionCase c, const ExpectCase& expect) {
  c.scalars.softcap = 3.0;
  expect(c);
  c.alibi_slopes = AlibiSlopes(4);
  c.sinks = {0, -std::numeric_limits<float>::infinity(), 2, 30};
  expect(c);
  c.scalars.softcap.reset();
  c.scalars.scale = 0.9;
  expect(c);
  c.alibi_slopes.clear();
  expect(c);
  c.sinks.clear();
  c.scalars.normalize = Normalize::kSoftmax1;
  expect(c);
}

// Lengths of two batch entries, then, causal and not, of each of their queries, then with a prefix.
inline void ForLengths(const Sizes& sizes, const ExpectCase& expect) {
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
  c.prefix_lengths = {140, 0};
  expect(c);
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CPP_CUDA_SHARED_CASES_H_
