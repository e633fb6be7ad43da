// AttentionBackward() on a case, and what it is compared with.
#ifndef HEED_TESTS_GRADIENT_CASE_H_
#define HEED_TESTS_GRADIENT_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "attention_case.h"
#include "gradient_oracle.h"
#include "heed/gradient.h"
#include "request_builder.h"

namespace heed::testing {

// Odd sizes, two query heads a KV head.
inline constexpr Sizes kGradientSizes = {.batch = 2,
                                         .num_heads = 4,
                                         .num_kv_heads = 2,
                                         .q_len = 5,
                                         .kv_len = 7,
                                         .head_dim = 3,
                                         .head_dim_v = 5};

// One head of four queries and keys.
inline constexpr Sizes kFourTokens = {
    .num_heads = 1, .num_kv_heads = 1, .q_len = 4, .kv_len = 4, .head_dim = 3, .head_dim_v = 2};

// What arrives at the results of a case.
struct Cotangents {
  Buffer<float> output;  // [batch, num_heads, q_len, head_dim_v]
  Buffer<float> lse;     // [batch, num_heads, q_len, 1]; no value = absent
};

// ~ N(0, 1), and an lse where there is one.
Cotangents MakeCotangents(const AttentionCase& c, uint64_t seed = 7,
                          Layout layout = Layout::kDense);

// Runs forward, then backward into buffers full of NaN, and returns the gradients by input: q, k,
// v, and of bias, alibi_slopes and sinks those that the case has. Checks that gaps stay as they
// were.
Values RunBackward(const AttentionCase& c, const Cotangents& cotangents,
                   ThreadPool* pool = nullptr);

// The oracle of the case with these cotangents.
GradientOracle MakeOracle(const AttentionCase& c, const Cotangents& cotangents);

// Compares every element with the oracle: for small cases. `size` is that of the logits.
void ExpectGradientsMatch(const AttentionCase& c, double size = 16);

// Compares the derivative along `count` random directions of all inputs.
void ExpectDirectionsMatch(const AttentionCase& c, int count = 3, double size = 16);

// The same bits with one, two and three threads.
void ExpectThreadsChangeNoBit(const AttentionCase& c);

// Gradients of 0 where no query sees a key, even where NaN arrives. The case has a batch of 2.
void ExpectEmptyRowsGiveZeros(AttentionCase c);

// NaN in keys and values beyond lengths of 4 and 5 changes no bit. The case has kGradientSizes.
void ExpectMaskedNanDoesNotMatter(AttentionCase c);

// Which vectors of a gradient of `dim` numbers each hold NaN.
std::vector<bool> LostRows(const std::vector<double>& gradient, int64_t dim);

// NaN in a query, or arriving at one, reaches the gradients of that query and of the keys and
// values that it sees, and no other. The case has kFourTokens, and keys in view all have a weight.
void ExpectNanReachesWhatSeesIt(AttentionCase c);

// Bytes that backward takes at one time, with one thread, beside inputs and results: one head of 64
// dims, `len` queries and keys. `gradients` are wanted beside those of q, k and v.
int64_t BackwardScratch(int64_t len, const AttentionOptions& options,
                        AttentionGradients gradients = {});

}  // namespace heed::testing

#endif  // HEED_TESTS_GRADIENT_CASE_H_
