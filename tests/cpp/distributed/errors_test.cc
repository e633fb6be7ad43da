// What one rank finds wrong all ranks are told, and none waits for one that has given up.
#include <string>
#include <vector>

#include "allocations.h"
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
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A small call, right as it stands; `change` makes it wrong.
struct Call {
  AttentionOptions options;
  distributed::Sharding sharding = {.q_len = 16, .kv_len = 16};
  AttentionOutputs outputs;
  AttentionGradients gradients;
  Buffer<float> q, k, v, output, lse, d_q, d_k, d_v;
  Buffer<float> big = Buffer<float>({1, 2, 16, 16}, Layout::kDense, 0);

  explicit Call(int size) {
    const int64_t tokens = 16 / size;
    q = NormalBuffer({1, 2, tokens, 4}, 1);
    k = NormalBuffer({1, 2, tokens, 4}, 2);
    v = NormalBuffer({1, 2, tokens, 4}, 3);
    output = Buffer<float>({1, 2, tokens, 4}, Layout::kDense, -7);
    lse = Buffer<float>({1, 2, tokens, 1}, Layout::kDense, -7);
    d_q = d_k = d_v = output;
    outputs = {.output = output.view(), .lse = lse.view()};
    gradients.d_q = d_q.view();
    gradients.d_k = d_k.view();
    gradients.d_v = d_v.view();
  }
  void Run(Communicator& communicator, ThreadPool* pool = nullptr) {
    distributed::Attention(q.view(), k.view(), v.view(), options, outputs, sharding, communicator,
                           pool);
  }
  void RunBackward(Communicator& communicator, ThreadPool* pool = nullptr) {
    distributed::AttentionBackward(q.view(), k.view(), v.view(), output.view(), lse.view(),
                                   q.view(), options, gradients, sharding, communicator, pool);
  }
};

struct Wrong {
  const char* code;
  const char* word;  // of the text
  void (*change)(Call& call);
};

const Wrong kWrong[] = {
    {"unsupported", "normalize over ranks",
     [](Call& c) { c.options.normalize = Normalize::kSparsemax; }},
    {"unsupported", "log_gates over ranks",
     [](Call& c) {
       c.options.causal = true;
       c.options.log_gates = c.big.view();
     }},
    {"unsupported", "prob_mod over ranks",
     [](Call& c) { c.options.prob_mod = [](const PairTile&) {}; }},
    {"unsupported", "patterns over ranks", [](Call& c) { c.options.patterns = {BigBird{}}; }},
    {"unsupported", "weights", [](Call& c) { c.outputs.weights = c.big.view(); }},
    {"unsupported", "running_sum", [](Call& c) { c.outputs.running_sum = c.big.view(); }},
    {"shape", "output", [](Call& c) { c.outputs.output = {}; }},
    {"range", "softcap", [](Call& c) { c.options.softcap = -1; }},
    {"range", "sharding.kv_len", [](Call& c) { c.sharding.kv_len = -1; }},
    {"shape", "k has", [](Call& c) { c.sharding.kv_len = 40; }},
    {"shape", "q has", [](Call& c) { c.sharding.q_len = 40; }},
    {"option", "order", [](Call& c) { c.sharding.order = static_cast<TokenOrder>(7); }},
    {"shape", "output", [](Call& c) { c.outputs.output.shape[3] = 3; }},
    {"shape", "v", [](Call& c) { c.outputs.output = c.v.view(); }},
};

TEST(ErrorsOfRanks, AllAreToldWhatOneFindsWrong) {
  for (const Wrong& wrong : kWrong) {
    SCOPED_TRACE(wrong.word);
    const auto errors = RunRanks(2, [&](Communicator& communicator) {
      Call call(2);
      if (communicator.Rank() == 1) wrong.change(call);
      try {
        call.Run(communicator);
      } catch (const Error&) {
        EXPECT_EQ(call.output(0, 0, 0, 0), -7.0f) << "written before the error";
        throw;
      }
    });
    EXPECT_EQ(ErrorOf(errors[1]).code, wrong.code);
    EXPECT_THAT(ErrorOf(errors[1]).text, HasSubstr(wrong.word));
    EXPECT_EQ(ErrorOf(errors[0]).code, wrong.code);
    EXPECT_THAT(ErrorOf(errors[0]).text, AllOf(StartsWith("rank 1: "), HasSubstr(wrong.word)));
  }
}

TEST(ErrorsOfRanks, AllAreToldWhatTheyDisagreeIn) {
  const Wrong other[] = {
      {"option", "causal", [](Call& c) { c.options.causal = true; }},
      {"option", "window",
       [](Call& c) {
         c.options.window = Window{1, 0};
       }},
      {"option", "softcap", [](Call& c) { c.options.softcap = 3; }},
      {"option", "scale", [](Call& c) { c.options.scale = 3; }},
      {"option", "score", [](Call& c) { c.options.score = Score::kCosine; }},
      {"option", "dropout.seed",
       [](Call& c) {
         c.options.dropout = {0, 4};
       }},
      {"option", "query_offset", [](Call& c) { c.options.query_offset = QueryOffset::At(3); }},
      {"option", "value of an option", [](Call& c) { c.options.relative_max_distance = 7; }},
      {"option", "sharding.order", [](Call& c) { c.sharding.order = TokenOrder::kContiguous; }},
  };
  for (const Wrong& wrong : other) {
    SCOPED_TRACE(wrong.word);
    const auto errors = RunRanks(4, [&](Communicator& communicator) {
      Call call(4);
      if (communicator.Rank() == 2) wrong.change(call);
      call.Run(communicator);
    });
    for (const auto& error : errors) {
      EXPECT_EQ(ErrorOf(error).code, "option");
      EXPECT_THAT(ErrorOf(error).text,
                  AllOf(HasSubstr(std::string("another ") + wrong.word), HasSubstr("rank 2")));
    }
  }
}

TEST(ErrorsOfRanks, GradientsSayWhatTheyCannotGive) {
  const auto errors = RunRanks(2, [](Communicator& communicator) {
    Call call(2);
    call.options.bias = call.big.view();
    call.options.bias.shape[2] = 8;
    call.gradients.d_bias = {call.big.view().data, call.options.bias.shape,
                             call.options.bias.strides};
    call.RunBackward(communicator);
  });
  EXPECT_EQ(ErrorOf(errors[0]).code, "unsupported");
  EXPECT_THAT(ErrorOf(errors[0]).text, HasSubstr("d_bias over ranks"));
  const auto lists = RunRanks(2, [](Communicator& communicator) {
    Call call(2);
    if (communicator.Rank() == 0) call.gradients.d_k = {};
    call.RunBackward(communicator);
  });
  EXPECT_THAT(ErrorOf(lists[1]).text, HasSubstr("list of gradients"));
}

TEST(ErrorsOfRanks, GradientsOfOtherSizesAreRefused) {
  const auto errors = RunRanks(2, [](Communicator& communicator) {
    Call call(2);
    const std::vector<float> temperature(communicator.Rank() == 0 ? 1 : 2, 1.0f);
    std::vector<float> d_temperature = temperature;
    call.options.score = Score::kCosine;
    call.options.temperature = temperature;
    call.gradients.d_temperature = d_temperature;
    call.RunBackward(communicator);
  });
  for (const auto& error : errors) EXPECT_EQ(ErrorOf(error).code, "option");
}

TEST(ErrorsOfRanks, RecurrencesAreCompared) {
  struct Other {
    const char* word;
    void (*change)(RecurrentOptions& options);
  };
  static const std::vector<float> skip = {2};
  const Other others[] = {
      {"delta", [](RecurrentOptions& o) { o.delta = true; }},
      {"chunk_len", [](RecurrentOptions& o) { o.chunk_len = 8; }},
      {"value of an option", [](RecurrentOptions& o) { o.scale = 8; }},
      {"value of an option", [](RecurrentOptions& o) { o.skip = skip; }},
      {"columns of the state",
       [](RecurrentOptions& o) {
         o.normalize = true;
         o.scale = 1;
       }},
  };
  for (const Other& other : others) {
    SCOPED_TRACE(other.word);
    const auto errors = RunRanks(2, [&](Communicator& communicator) {
      Buffer<float> x({1, 1, 8, 4}, Layout::kDense, 0.5f), output(x.shape(), Layout::kDense, 0);
      RecurrentOptions options;
      options.scale = 1;
      if (communicator.Rank() == 1) other.change(options);
      distributed::RecurrentAttention(
          x.view(), x.view(), x.view(), options, {.output = output.view()},
          {.q_len = 16, .kv_len = 16, .order = TokenOrder::kContiguous}, communicator);
    });
    for (const auto& error : errors) EXPECT_THAT(ErrorOf(error).text, HasSubstr(other.word));
  }
}

TEST(ErrorsOfRanks, LibraryIsUsableAfterwards) {
  RunRanksWell(2, [](Communicator& communicator) {
    Call call(2);
    call.options.softcap = -1;
    EXPECT_THROW(call.Run(communicator), Error);
    call.options.softcap = {};
    EXPECT_NO_THROW(call.Run(communicator));
    EXPECT_NE(call.output(0, 0, 0, 0), -7.0f);
  });
}

class BadCommunicator final : public Communicator {
 public:
  BadCommunicator(int rank, int size) : rank_(rank), size_(size) {}
  int Rank() const override { return rank_; }
  int Size() const override { return size_; }
  void BeginSend(int, std::span<const std::byte>) override { FAIL(); }
  void BeginReceive(int, std::span<std::byte>) override { FAIL(); }
  void Finish() override {}

 private:
  int rank_, size_;
};

TEST(ErrorsOfRanks, RanksOutsideOfTheirNumberAreRefused) {
  for (const auto& [rank, size] : {std::pair{0, 0}, {2, 2}, {-1, 2}}) {
    BadCommunicator communicator(rank, size);
    Call call(1);
    EXPECT_THROW(call.Run(communicator), Error);
  }
  BadCommunicator alone(0, 1);
  EXPECT_NO_THROW(Call(1).Run(alone)) << "one rank sends nothing";
}

// Fails one allocation of rank 1 after the other: every rank hears of it, or of none.
template <typename Run>
void ExpectMemoryErrorsOnAllRanks(const Run& run) {
  int failures = 0;
  for (int64_t n = 1; n < 4000; ++n) {
    bool failed = false;
    const auto errors = RunRanks(3, [&](Communicator& communicator) {
      const auto pool = MakeThreadPool(1);
      Call call(1);
      call.sharding = {.q_len = 48, .kv_len = 48};
      call.big = call.output;
      run(call, communicator, pool.get(), communicator.Rank() == 1 ? n : 0, failed);
    });
    if (!failed) break;
    if (errors[1] == nullptr) continue;  // the library went on without
    ++failures;
    ASSERT_EQ(ErrorOf(errors[1]).code, "memory") << ErrorOf(errors[1]).text << ", allocation " << n;
    // What fails after the ranks have agreed, as results are written, is one rank's own matter.
    if (errors[0] == nullptr) continue;
    ASSERT_EQ(ErrorOf(errors[0]).code, "memory") << ErrorOf(errors[0]).text << ", allocation " << n;
    ASSERT_THAT(ErrorOf(errors[2]).text, StartsWith("rank 1: ")) << "allocation " << n;
  }
  EXPECT_GT(failures, 20);
}

// Calls body(), with its n-th allocation failing if n > 0.
template <typename Body>
void FailIn(int64_t n, bool& failed, const Body& body) {
  if (n == 0) return body();
  const FailingAllocation failing(n);
  try {
    body();
  } catch (...) {
    failed = failing.failed();
    throw;
  }
  failed = failing.failed();
}

TEST(ErrorsOfRanks, NoRankWaitsForOneThatHasNoMemory) {
  ExpectMemoryErrorsOnAllRanks(
      [](Call& call, Communicator& communicator, ThreadPool* pool, int64_t n, bool& failed) {
        FailIn(n, failed, [&] { call.Run(communicator, pool); });
      });
}

TEST(ErrorsOfRanks, NoRankWaitsForGradientsOfOneThatHasNoMemory) {
  ExpectMemoryErrorsOnAllRanks(
      [](Call& call, Communicator& communicator, ThreadPool* pool, int64_t n, bool& failed) {
        FailIn(n, failed, [&] { call.RunBackward(communicator, pool); });
      });
}

}  // namespace
}  // namespace heed::testing
