// The cache as a container: what goes in comes out, whatever is appended, rewound, forked, evicted.
#include <cmath>
#include <limits>
#include <utility>

#include "allocations.h"
#include "buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/cache.h"
#include "random.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8,
                            DType::kFloat8E4M3};

template <typename Body>
std::string MessageOf(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(ErrorCodeName(error.code())) + ": " + error.what();
  }
  return "no error";
}

// One token of one sequence: k then v of every head.
using Token = std::vector<float>;

struct Model {
  KvCacheOptions options;
  std::vector<std::vector<Token>> sequences;
};

// Appends random tokens to the cache and the model, `lengths[b]` of `len` to each sequence.
void Append(Random& random, int64_t len, const std::vector<int32_t>& lengths, KvCache& cache,
            Model& model) {
  const KvCacheOptions& o = cache.options();
  Buffer<float> k({o.batch, o.num_kv_heads, len, o.head_dim}, Layout::kBlhd, NAN);
  Buffer<float> v({o.batch, o.num_kv_heads, len, o.head_dim_v}, Layout::kDense, NAN);
  for (int64_t b = 0; b < o.batch; ++b) {
    for (int64_t i = 0; i < lengths[static_cast<size_t>(b)]; ++i) {
      Token token;
      for (int64_t h = 0; h < o.num_kv_heads; ++h) {
        for (int64_t d = 0; d < o.head_dim; ++d) token.push_back(k(b, h, i, d) = random.Normal());
        for (int64_t d = 0; d < o.head_dim_v; ++d) token.push_back(v(b, h, i, d) = random.Normal());
      }
      model.sequences[static_cast<size_t>(b)].push_back(token);
    }
  }
  cache.Append(k.view(), v.view(), lengths);
}

// What storage may change, from the declared constants.
double StorageError(DType dtype, double x, double largest) {
  switch (dtype) {
    case DType::kFloat16:
      return kFloat16Rounding * std::abs(x) + 0x1p-25;
    case DType::kBFloat16:
      return kBFloat16Rounding * std::abs(x);
    case DType::kInt8:
      return kInt8Rounding * largest * 1.000001;
    case DType::kFloat8E4M3:
      return std::max(kFloat8Rounding * std::abs(x), 0x1p-10 / 448 * largest) * 1.000001;
    default:
      return 0;
  }
}

void ExpectRow(DType dtype, std::span<const float> stored, std::span<const float> given) {
  double largest = 0;
  for (const float x : given) largest = std::max<double>(largest, std::abs(x));
  for (size_t n = 0; n < given.size(); ++n) {
    EXPECT_LE(std::abs(stored[n] - given[n]), StorageError(dtype, given[n], largest))
        << DTypeName(dtype) << " " << given[n];
  }
}

// Every token that is not evicted reads as it was appended.
void ExpectHolds(const KvCache& cache, const Model& model) {
  const KvCacheOptions& o = cache.options();
  for (int64_t b = 0; b < o.batch; ++b) {
    const auto& tokens = model.sequences[static_cast<size_t>(b)];
    const int64_t length = static_cast<int64_t>(tokens.size());
    ASSERT_EQ(cache.length(b), length);
    Buffer<float> k({1, o.num_kv_heads, 1, o.head_dim}, Layout::kDense, NAN);
    Buffer<float> v({1, o.num_kv_heads, 1, o.head_dim_v}, Layout::kDense, NAN);
    for (int64_t j = 0; j < length; ++j) {
      const bool needed = o.recent_tokens == 0 || j < o.sink_tokens || j > length - o.recent_tokens;
      if (!needed) continue;
      cache.Read(b, j, j + 1, k.view(), v.view());
      const Token& token = tokens[static_cast<size_t>(j)];
      const size_t row = static_cast<size_t>(o.head_dim + o.head_dim_v);
      for (int64_t h = 0; h < o.num_kv_heads; ++h) {
        const auto given = std::span(token).subspan(static_cast<size_t>(h) * row, row);
        const size_t dim = static_cast<size_t>(o.head_dim);
        ExpectRow(o.dtype, {&k(0, h, 0, 0), dim}, given.first(dim));
        ExpectRow(o.dtype, {&v(0, h, 0, 0), row - dim}, given.subspan(dim));
      }
    }
  }
}

// A random history: forks are made and dropped along the way, and neither side disturbs the other.
void RunHistory(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  KvCacheOptions o;
  o.batch = random.Integer(1, 3);
  o.num_kv_heads = random.Integer(1, 2);
  o.head_dim = random.Integer(1, 20);
  o.head_dim_v = random.Integer(1, 20);
  o.dtype = kTypes[random.Integer(0, 4)];
  o.block_size = random.Integer(1, 9);
  if (random.Chance(0.4)) o.recent_tokens = random.Integer(1, 12);
  if (o.recent_tokens > 0 && random.Chance(0.5)) o.sink_tokens = random.Integer(1, 6);
  if (o.recent_tokens == 0 && random.Chance(0.3)) o.block_size = o.capacity = 500;
  std::vector<KvCache> caches;
  std::vector<Model> models;
  caches.emplace_back(o);
  models.push_back({o, std::vector<std::vector<Token>>(static_cast<size_t>(o.batch))});
  for (int step = 0; step < 25; ++step) {
    const size_t at =
        static_cast<size_t>(random.Integer(0, static_cast<int64_t>(caches.size()) - 1));
    KvCache& cache = caches[at];
    Model& model = models[at];
    const double dice = random.Uniform();
    if (dice < 0.6) {
      const int64_t len = random.Integer(0, 8);
      std::vector<int32_t> lengths;
      for (int64_t b = 0; b < cache.options().batch; ++b) {
        lengths.push_back(static_cast<int32_t>(random.Integer(0, len)));
      }
      Append(random, len, lengths, cache, model);
    } else if (dice < 0.8) {
      const int64_t b = random.Integer(0, cache.options().batch - 1);
      auto& tokens = model.sequences[static_cast<size_t>(b)];
      const int64_t length = random.Integer(0, static_cast<int64_t>(tokens.size()));
      try {
        cache.Rewind(b, length);
        tokens.resize(static_cast<size_t>(length));
      } catch (const Error& error) {
        EXPECT_GT(o.recent_tokens, 0) << error.what();  // only evicted tokens stop it
      }
    } else {
      std::vector<int64_t> from;
      Model copy = {o, {}};
      for (int64_t n = random.Integer(1, 4); n > 0; --n) {
        from.push_back(random.Integer(0, cache.options().batch - 1));
        copy.sequences.push_back(model.sequences[static_cast<size_t>(from.back())]);
      }
      KvCache fork = cache.Fork(from);
      if (caches.size() < 4) {
        caches.push_back(std::move(fork));
        models.push_back(std::move(copy));
      } else {
        caches[at] = std::move(fork);
        models[at] = std::move(copy);
      }
    }
    for (size_t n = 0; n < caches.size(); ++n) ExpectHolds(caches[n], models[n]);
  }
}

TEST(KvCacheProperties, RandomHistoriesHoldWhatAPlainModelHolds) {
  for (uint64_t seed = 1; seed <= 150; ++seed) RunHistory(seed);
}

TEST(KvCache, QuantisesAKnownRow) {
  KvCache cache({.head_dim = 4, .capacity = 4, .dtype = DType::kInt8});
  const float k[] = {127.0f, -63.5f, 0.4f, 1.0f}, v[] = {0, 0, 0, 0};
  cache.Append(Contiguous(k, 1, 1, 1, 4), Contiguous(v, 1, 1, 1, 4));
  float k_out[4], v_out[4];
  cache.Read(0, 0, 1, Contiguous(k_out, 1, 1, 1, 4), Contiguous(v_out, 1, 1, 1, 4));
  EXPECT_THAT(k_out, ::testing::ElementsAre(127, -64, 0, 1));  // a tie goes to even
  EXPECT_THAT(v_out, ::testing::ElementsAre(0, 0, 0, 0));
  KvCache eight({.head_dim = 4, .capacity = 4, .dtype = DType::kFloat8E4M3});
  const float x[] = {448.0f, 17.0f, 0.0f, -1.1f};
  eight.Append(Contiguous(x, 1, 1, 1, 4), Contiguous(v, 1, 1, 1, 4));
  eight.Read(0, 0, 1, Contiguous(k_out, 1, 1, 1, 4), Contiguous(v_out, 1, 1, 1, 4));
  EXPECT_THAT(k_out, ::testing::ElementsAre(448, 16, 0, -1.125f));
}

TEST(KvCache, QuantisedRowThatIsNotFiniteBecomesNan) {
  for (const DType dtype : {DType::kInt8, DType::kFloat8E4M3}) {
    KvCache cache({.head_dim = 2, .capacity = 4, .dtype = dtype});
    const float k[] = {1, INFINITY}, v[] = {1, 2};
    cache.Append(Contiguous(k, 1, 1, 1, 2), Contiguous(v, 1, 1, 1, 2));
    float k_out[2], v_out[2];
    cache.Read(0, 0, 1, Contiguous(k_out, 1, 1, 1, 2), Contiguous(v_out, 1, 1, 1, 2));
    EXPECT_TRUE(std::isnan(k_out[0]) && std::isnan(k_out[1]));
    EXPECT_EQ(v_out[1], 2.0f);
  }
}

void AppendTokens(KvCache& cache, int64_t len) {
  const KvCacheOptions& o = cache.options();
  const std::vector<float> zeros(
      static_cast<size_t>(o.batch * o.num_kv_heads * len * std::max(o.head_dim, o.head_dim_v)));
  cache.Append(Contiguous(zeros.data(), o.batch, o.num_kv_heads, len, o.head_dim),
               Contiguous(zeros.data(), o.batch, o.num_kv_heads, len, o.head_dim_v));
}

TEST(KvCache, MemoryIsThatOfItsBlocks) {
  KvCache contiguous({.batch = 2, .num_kv_heads = 4, .head_dim = 64, .capacity = 100});
  EXPECT_EQ(contiguous.memory().bytes, 0);
  AppendTokens(contiguous, 1);
  EXPECT_EQ(contiguous.memory().bytes, 2 * 4 * 100 * 64 * 2 * 4);
  KvCache paged({.num_kv_heads = 2, .head_dim = 64, .block_size = 16, .dtype = DType::kInt8});
  AppendTokens(paged, 33);
  EXPECT_EQ(paged.memory().blocks, 3);
  EXPECT_EQ(paged.memory().bytes, 3 * 2 * 16 * (64 * 2 + 4 * 2));
  EXPECT_EQ(paged.memory().shared_bytes, 0);
}

TEST(KvCache, ForksShareUntilTheyWrite) {
  KvCache cache({.head_dim = 8, .block_size = 4});
  AppendTokens(cache, 10);
  const int64_t four[] = {0, 0, 0, 0};
  KvCache fork = cache.Fork(four);
  EXPECT_EQ(fork.memory().bytes, cache.memory().bytes);
  EXPECT_EQ(fork.memory().shared_bytes, cache.memory().bytes);
  AppendTokens(fork, 1);  // copies the last, half-filled block for each sequence
  EXPECT_EQ(fork.memory().blocks, 2 + 4);
  EXPECT_EQ(cache.memory().shared_bytes, 2 * cache.memory().bytes / 3);
}

TEST(KvCache, WindowBoundsMemory) {
  KvCache cache({.head_dim = 8, .block_size = 16, .recent_tokens = 100, .sink_tokens = 4});
  for (int n = 0; n < 2000; ++n) {
    AppendTokens(cache, 1);
    EXPECT_LE(cache.memory().blocks, 1 + 100 / 16 + 2);
  }
  EXPECT_EQ(cache.length(0), 2000);
}

TEST(KvCache, FailedAppendChangesNothing) {
  KvCache cache({.batch = 2, .head_dim = 2, .capacity = 5, .block_size = 2});
  AppendTokens(cache, 4);
  const int64_t blocks = cache.memory().blocks;
  EXPECT_THROW(AppendTokens(cache, 2), Error);
  EXPECT_EQ(cache.length(0), 4);
  EXPECT_EQ(cache.memory().blocks, blocks);
  AppendTokens(cache, 1);
  EXPECT_EQ(cache.length(1), 5);
}

TEST(KvCache, FailedAppendForgetsNothing) {
  KvCache cache({.num_kv_heads = 2, .head_dim = 4, .recent_tokens = 2, .heavy_tokens = 3});
  for (int n = 0; n < 5; ++n) {
    AppendTokens(cache, 2);
    Buffer<float> q({1, 2, 2, 4}, Layout::kDense, 1.0f), output({1, 2, 2, 4}, Layout::kDense, NAN);
    Decode(q.view(), cache, {}, {.output = output.view()});
  }
  const KvCache twin = cache.Fork();
  const auto held = [&] { return std::pair(cache.tokens(0, 0), cache.tokens(0, 1)); };
  const auto before = held();
  const std::vector<float> zeros(4);
  TensorView<const float> many = Contiguous(zeros.data(), 1, 2, 100000, 4);
  many.strides = {0, 0, 0, 1};
  for (const size_t bytes : {size_t{1000}, size_t{20000}, size_t{100000}, size_t{1000000}}) {
    const LargestAllocation largest(bytes);  // of blocks, of their table, of tokens, of sums
    EXPECT_THAT(MessageOf([&] { cache.Append(many, many); }), HasSubstr("memory: "));
  }
  EXPECT_EQ(cache.length(0), 10);
  EXPECT_EQ(held(), before);
  cache.Append(many, many);
  EXPECT_EQ(cache.length(0), 100010);
  EXPECT_EQ(cache.tokens(0, 1).size(), 100004u);  // the last of the window and the heavy ones
  EXPECT_EQ(twin.tokens(0, 0), before.first);
}

TEST(KvCache, WantOfMemoryForSequencesIsAnError) {
  KvCache small({.batch = 2, .head_dim = 4});
  const std::vector<int64_t> many(100000);
  const LargestAllocation largest(1000);
  EXPECT_THAT(MessageOf([&] { KvCache cache({.batch = 100000, .head_dim = 4}); }),
              HasSubstr("memory: "));
  EXPECT_THAT(MessageOf([&] { (void)small.Fork(many); }), HasSubstr("memory: "));
}

TEST(KvCacheErrors, NameTheOption) {
  const auto make = [](KvCacheOptions o) { return MessageOf([&] { KvCache cache(o); }); };
  EXPECT_THAT(make({}), HasSubstr("range: head_dim = 0"));
  EXPECT_THAT(make({.batch = 0, .head_dim = 1}), HasSubstr("range: batch = 0"));
  EXPECT_THAT(make({.head_dim = 1, .block_size = -1}), HasSubstr("range: block_size = -1"));
  EXPECT_THAT(make({.head_dim = 1, .sink_tokens = 4}),
              HasSubstr("option: sink_tokens = 4 needs recent_tokens"));
  EXPECT_THAT(make({.head_dim = 1, .dtype = DType::kInt32}), HasSubstr("dtype: dtype = int32"));
  EXPECT_THAT(make({.head_dim = 1, .dtype = static_cast<DType>(99)}),
              HasSubstr("dtype: dtype = unknown"));
  const int64_t most = std::numeric_limits<int32_t>::max();
  EXPECT_THAT(make({.num_kv_heads = most, .head_dim = most, .block_size = most}),
              HasSubstr("shape: block_size = "));
  for (const int64_t page_size : {0, 48}) {
    EXPECT_THAT(
        make({.num_kv_heads = most, .head_dim = most, .capacity = most, .page_size = page_size}),
        HasSubstr("shape: capacity = 2147483647: a block"));
  }
}

TEST(KvCacheErrors, NameTheArgument) {
  KvCache cache(
      {.batch = 2, .num_kv_heads = 2, .head_dim = 3, .block_size = 2, .recent_tokens = 4});
  AppendTokens(cache, 9);
  AppendTokens(cache, 1);
  const std::vector<float> x(100);
  const auto k = Contiguous(x.data(), 2, 2, 1, 3);
  const auto append = [&](TensorView<const float> a, TensorView<const float> b,
                          std::vector<int32_t> lengths = {}) {
    return MessageOf([&] { cache.Append(a, b, lengths); });
  };
  EXPECT_THAT(append(Contiguous(x.data(), 1, 2, 1, 3), k), HasSubstr("shape: k has shape [1, 2"));
  EXPECT_THAT(append(k, Contiguous(x.data(), 2, 2, 2, 3)), HasSubstr("shape: v has shape"));
  EXPECT_THAT(append(k, k, {1}), HasSubstr("shape: lengths has 1 values"));
  EXPECT_THAT(append(k, k, {0, 2}), HasSubstr("range: lengths holds 2"));
  EXPECT_THAT(append({}, k), HasSubstr("shape: k"));
  EXPECT_THAT(MessageOf([&] { cache.Rewind(2, 0); }), HasSubstr("range: sequence = 2"));
  EXPECT_THAT(MessageOf([&] { cache.Rewind(0, 11); }), HasSubstr("range: length = 11"));
  EXPECT_THAT(MessageOf([&] { cache.Rewind(0, 5); }), HasSubstr("were evicted"));
  EXPECT_THAT(MessageOf([&] { (void)cache.Fork(std::vector<int64_t>{3}); }),
              HasSubstr("range: sequence = 3"));
  EXPECT_THAT(MessageOf([&] { cache.Read(0, 0, 1, {}, {}); }), HasSubstr("were evicted"));
  EXPECT_THAT(MessageOf([&] { cache.Read(0, 9, 12, {}, {}); }), HasSubstr("tokens 9 to 12"));
}

}  // namespace
}  // namespace heed::testing
