// Recurrent attention over ranks: states pass from one to the next.
#include "heed/recurrent.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "distributed/local_ranks.h"
#include "distributed/shards.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/distributed.h"
#include "heed/thread_pool.h"

namespace heed::testing {
namespace {

using distributed::Communicator;
using distributed::TokenOrder;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The whole of a call. Options point into what the case owns.
struct PipelineCase {
  PipelineCase() = default;
  PipelineCase(const PipelineCase&) = delete;

  int64_t len = 150;
  RecurrentOptions options;
  Buffer<float> q, k, v;                                         // 2 entries, 6 and 3 heads of 8
  Buffer<float> log_decay, beta, erase_key, erase_rate, levels;  // that count tokens
  Buffer<float> bonus, initial, projection;
  std::vector<float> skip, norm_weight, rates;
  std::vector<int32_t> lengths;
  std::vector<int64_t> offsets;

  void Draw() {
    q = NormalBuffer({2, 6, len, 8}, 1);
    k = NormalBuffer({2, 3, len, 8}, 2);
    v = NormalBuffer({2, 3, len, 8}, 3);
  }
  Buffer<float> Gates(const Extents& shape) const {
    Buffer<float> gates = NormalBuffer(shape, 11);
    gates.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = -0.1f * x * x; });
    return gates;
  }
  Buffer<float> Strengths(const Extents& shape) const {
    Buffer<float> strengths = NormalBuffer(shape, 12);
    strengths.ForEach(
        [](int64_t, int64_t, int64_t, int64_t, float& x) { x = 1 / (1 + std::exp(-x)); });
    return strengths;
  }
};

struct PipelineVariant {
  const char* name;
  void (*apply)(PipelineCase& c);
};

const std::vector<PipelineVariant>& Variants() {
  static const std::vector<PipelineVariant> variants = {
      {"linear", [](PipelineCase&) {}},
      {"decay_of_heads",
       [](PipelineCase& c) {
         c.log_decay = c.Gates({1, 3, 1, 1});
         c.options.log_decay = c.log_decay.view();
       }},
      {"decay_of_channels",
       [](PipelineCase& c) {
         c.log_decay = c.Gates({2, 1, c.len, 8});
         c.options.log_decay = c.log_decay.view();
         c.skip = {1, 2, 3, 4, 5, 6};
         c.options.skip = c.skip;
       }},
      {"delta",
       [](PipelineCase& c) {
         c.beta = c.Strengths({2, 3, c.len, 1});
         c.options.beta = c.beta.view();
         c.options.delta = true;
         c.options.feature_map = FeatureMap::kUnit;
       }},
      {"normalize",
       [](PipelineCase& c) {
         c.options.feature_map = FeatureMap::kEluPlusOne;
         c.options.normalize = true;
         c.lengths = {150, 70};
         c.options.key_lengths = c.lengths;
       }},
      {"bonus",
       [](PipelineCase& c) {
         c.bonus = NormalBuffer({1, 6, 1, 8}, 13);
         c.log_decay = c.Gates({2, 3, c.len, 8});
         c.options.bonus = c.bonus.view();
         c.options.log_decay = c.log_decay.view();
       }},
      {"erase",
       [](PipelineCase& c) {
         c.erase_key = NormalBuffer({2, 3, c.len, 8}, 14);
         c.erase_rate = c.Strengths({2, 3, c.len, 8});
         c.log_decay = c.Gates({2, 3, c.len, 8});
         c.options.erase_key = c.erase_key.view();
         c.options.erase_rate = c.erase_rate.view();
         c.options.log_decay = c.log_decay.view();
       }},
      {"levels",
       [](PipelineCase& c) {
         c.levels = c.Strengths({2, 6, c.len, 10});
         c.options.level_weights = c.levels.view();
         c.offsets = {0};
         c.options.position_offset = c.offsets;
       }},
      {"full_levels",
       [](PipelineCase& c) {
         c.len = 512;
         c.levels = c.Strengths({2, 6, c.len, 10});
         c.options.level_weights = c.levels.view();
       }},
      {"cosine",
       [](PipelineCase& c) {
         c.options.feature_map = FeatureMap::kCosine;
         c.options.period = 400;
         c.offsets = {7, 30};
         c.options.position_offset = c.offsets;
       }},
      {"random_features",
       [](PipelineCase& c) {
         c.projection = Buffer<float>({1, 1, 24, 8}, Layout::kDense, 0);
         DrawRandomFeatures(5, c.projection.view());
         c.options.feature_map = FeatureMap::kRandom;
         c.options.projection = c.projection.view();
         c.options.normalize = true;
       }},
      {"learns",
       [](PipelineCase& c) {
         c.beta = c.Strengths({2, 3, c.len, 1});
         c.beta.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 0.1f; });
         c.options.beta = c.beta.view();
         c.options.mini_batch = 16;
         for (int n = 0; n < 24; ++n) c.norm_weight.push_back(1 + 0.01f * static_cast<float>(n));
         c.options.norm_weight = c.norm_weight;
       }},
      {"learns_in_part",
       [](PipelineCase& c) {
         c.beta = c.Strengths({2, 3, c.len, 1});
         c.beta.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 0.1f; });
         c.options.beta = c.beta.view();
         c.options.mini_batch = 16;
         for (int n = 0; n < 16; ++n) c.rates.push_back(1 / static_cast<float>(n + 1));
         c.options.position_rate = c.rates;
       }},
      {"initial_state",
       [](PipelineCase& c) {
         c.initial = NormalBuffer({2, 3, 8, 8}, 15);
         c.options.initial_state = c.initial.view();
       }},
      {"few_tokens", [](PipelineCase& c) { c.len = 5; }},
      {"no_tokens", [](PipelineCase& c) { c.len = 0; }},
  };
  return variants;
}

struct PipelineResults {
  Buffer<float> output, state;
};

PipelineResults RunWhole(const PipelineCase& c) {
  PipelineResults r = {Buffer<float>({2, 6, c.len, 8}, Layout::kDense, kNan), {}};
  RecurrentOutputs to = {.output = r.output.view()};
  // As heed/recurrent.h says, 8 features unless an option has more.
  const int64_t rows = c.options.mini_batch > 0                       ? 18
                       : c.options.level_weights.has_value()          ? 8 * 9
                       : c.options.feature_map == FeatureMap::kCosine ? 16
                       : c.options.feature_map == FeatureMap::kRandom ? 24
                                                                      : 8;
  const int64_t more = c.options.feature_map == FeatureMap::kRandom ? 2 : c.options.normalize;
  r.state = Buffer<float>({2, 3, rows, 8 + more}, Layout::kDense, kNan);
  to.final_state = r.state.view();
  RecurrentAttention(c.q.view(), c.k.view(), c.v.view(), c.options, to);
  return r;
}

// What of a rank's options counts tokens.
struct RankRecurrence {
  RankRecurrence(const PipelineCase& c, int rank, int size) : options(c.options) {
    const auto take = [&](const Buffer<float>& whole, Buffer<float>& part,
                          TensorView<const float>& option) {
      if (!option.has_value() || whole.shape()[2] != c.len) return;
      part = PartOf(whole, rank, size, TokenOrder::kContiguous);
      option = part.view();
    };
    take(c.log_decay, log_decay, options.log_decay);
    take(c.beta, beta, options.beta);
    take(c.erase_key, erase_key, options.erase_key);
    take(c.erase_rate, erase_rate, options.erase_rate);
    take(c.levels, levels, options.level_weights);
  }
  RecurrentOptions options;
  Buffer<float> log_decay, beta, erase_key, erase_rate, levels;
};

PipelineResults RunOverRanks(const PipelineCase& c, const PipelineResults& like, int size,
                             int num_threads) {
  PipelineResults r = {Buffer<float>(like.output.shape(), Layout::kDense, kNan),
                       Buffer<float>(like.state.shape(), Layout::kDense, kNan)};
  RunRanksWell(size, [&](Communicator& communicator) {
    const int rank = communicator.Rank();
    const TokenOrder order = TokenOrder::kContiguous;
    const RankRecurrence own(c, rank, size);
    const auto pool = MakeThreadPool(num_threads);
    const auto q = PartOf(c.q, rank, size, order), k = PartOf(c.k, rank, size, order);
    const auto v = PartOf(c.v, rank, size, order);
    auto output = PartOf(r.output, rank, size, order);
    Buffer<float> state(like.state.shape(), Layout::kPadded, kNan);
    distributed::RecurrentAttention(q.view(), k.view(), v.view(), own.options,
                                    {.output = output.view(), .final_state = state.view()},
                                    {.q_len = c.len, .kv_len = c.len, .order = order}, communicator,
                                    pool.get());
    PutPart(output, r.output, rank, size, order);
    if (rank + 1 == size) r.state = state;
  });
  return r;
}

double LargestDifference(const Buffer<float>& got, const Buffer<float>& expected) {
  const std::vector<float> a = got.Elements(), b = expected.Elements();
  double error = 0, size = 1e-30;
  for (size_t n = 0; n < a.size(); ++n) {
    const double difference = std::abs(static_cast<double>(a[n]) - static_cast<double>(b[n]));
    error = difference <= error ? error : difference;
    size = std::max(size, std::abs(static_cast<double>(b[n])));
  }
  return error / size;
}

class RecurrentPipeline : public ::testing::TestWithParam<PipelineVariant> {};
INSTANTIATE_TEST_SUITE_P(Options, RecurrentPipeline, ::testing::ValuesIn(Variants()),
                         [](const auto& variant) { return std::string(variant.param.name); });

TEST_P(RecurrentPipeline, IsRecurrentAttentionOfTheWhole) {
  PipelineCase c;
  GetParam().apply(c);
  c.Draw();
  const PipelineResults whole = RunWhole(c);
  for (int size = 1; size <= 4; ++size) {
    for (const int num_threads : {1, 2}) {
      SCOPED_TRACE(std::to_string(size) + " ranks");
      const PipelineResults ranks = RunOverRanks(c, whole, size, num_threads);
      EXPECT_LE(LargestDifference(ranks.output, whole.output), 2 * kRecurrentMaxError);
      EXPECT_LE(LargestDifference(ranks.state, whole.state), 2 * kRecurrentMaxError);
    }
  }
}

// Parts of 64 tokens are chunks of the whole.
TEST(RecurrentPipelineEdges, SameBitsWherePartsAreChunks) {
  PipelineCase c;
  c.len = 192;
  c.options.feature_map = FeatureMap::kUnit;
  c.options.delta = true;
  c.Draw();
  const PipelineResults whole = RunWhole(c), ranks = RunOverRanks(c, whole, 3, 2);
  EXPECT_EQ(ranks.output.Elements(), whole.output.Elements());
  EXPECT_EQ(ranks.state.Elements(), whole.state.Elements());
}

TEST(RecurrentPipelineEdges, RefusesWhatItCannotSplit) {
  struct Refused {
    const char* word;
    void (*apply)(RecurrentOptions& options, distributed::Sharding& sharding);
  };
  const Refused refused[] = {
      {"sharding.order",
       [](RecurrentOptions&, distributed::Sharding& sharding) {
         sharding.order = TokenOrder::kZigzag;
       }},
      {"causal", [](RecurrentOptions& options, distributed::Sharding&) { options.causal = false; }},
      {"feature_mod",
       [](RecurrentOptions& options, distributed::Sharding&) {
         options.feature_map = FeatureMap::kUser;
         options.feature_mod = [](const FeatureRows&) {};
       }},
  };
  for (const Refused& one : refused) {
    const auto errors = RunRanks(2, [&](Communicator& communicator) {
      Buffer<float> rows({1, 1, 4, 4}, Layout::kDense, 1), output(rows.shape(), Layout::kDense, 0);
      RecurrentOptions options;
      distributed::Sharding sharding = {.q_len = 8, .kv_len = 8, .order = TokenOrder::kContiguous};
      one.apply(options, sharding);
      distributed::RecurrentAttention(rows.view(), rows.view(), rows.view(), options,
                                      {.output = output.view()}, sharding, communicator);
    });
    for (const auto& error : errors) {
      EXPECT_EQ(ErrorOf(error).code, "unsupported");
      EXPECT_THAT(ErrorOf(error).text, HasSubstr(one.word));
    }
  }
}

}  // namespace
}  // namespace heed::testing
