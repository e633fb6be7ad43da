// heed/mpi.h with a real MPI: every rank runs every test, all in the same order.
//   mpirun -n 3 heed_mpi_tests
#include "heed/mpi.h"

#include <algorithm>
#include <string>
#include <vector>

#include "distributed/shards.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/heed.h"

namespace heed::testing {
namespace {

using distributed::MpiCommunicator;
using distributed::TokenOrder;

class Mpi : public ::testing::Test {
 protected:
  MpiCommunicator communicator{MPI_COMM_WORLD};
  const int rank = communicator.Rank(), size = communicator.Size();
  const TokenOrder order = TokenOrder::kZigzag;

  Buffer<float> Own(const Buffer<float>& whole) const { return PartOf(whole, rank, size, order); }
};

// What all ranks say is what MPI says.
TEST_F(Mpi, RanksAreThoseOfTheCommunicator) {
  int mpi_rank = -1, mpi_size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &mpi_size);
  EXPECT_EQ(rank, mpi_rank);
  EXPECT_EQ(size, mpi_size);
}

TEST_F(Mpi, AttentionAndItsGradientsAreThoseOfTheWhole) {
  const int64_t len = 301;
  const auto q = NormalBuffer({1, 4, len, 32}, 1), k = NormalBuffer({1, 2, len, 32}, 2);
  const auto v = NormalBuffer({1, 2, len, 32}, 3), d_out = NormalBuffer({1, 4, len, 32}, 4);
  AttentionOptions options;
  options.causal = true;
  Buffer<float> output(q.shape(), Layout::kDense, 0), lse({1, 4, len, 1}, Layout::kDense, 0);
  Buffer<float> d_q(q.shape(), Layout::kDense, 0), d_k(k.shape(), Layout::kDense, 0), d_v = d_k;
  Attention(q.view(), k.view(), v.view(), options, {.output = output.view(), .lse = lse.view()});
  AttentionBackward(q.view(), k.view(), v.view(), output.view(), lse.view(), d_out.view(), options,
                    {.d_q = d_q.view(), .d_k = d_k.view(), .d_v = d_v.view()});

  auto own_output = Own(output), own_lse = Own(lse);
  auto own_d_q = Own(d_q), own_d_k = Own(d_k), own_d_v = Own(d_v);
  const auto own_q = Own(q), own_k = Own(k), own_v = Own(v), own_d_out = Own(d_out);
  const distributed::Sharding sharding = {.q_len = len, .kv_len = len, .order = order};
  own_output.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = -7; });
  distributed::Attention(own_q.view(), own_k.view(), own_v.view(), options,
                         {.output = own_output.view(), .lse = own_lse.view()}, sharding,
                         communicator);
  distributed::AttentionBackward(
      own_q.view(), own_k.view(), own_v.view(), own_output.view(), own_lse.view(), own_d_out.view(),
      options, {.d_q = own_d_q.view(), .d_k = own_d_k.view(), .d_v = own_d_v.view()}, sharding,
      communicator);
  const auto expect_near = [&](Buffer<float>& got, const Buffer<float>& expected, double bound) {
    const Buffer<float> part = Own(expected);
    got.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
      EXPECT_NEAR(x, part(b, h, i, d), bound);
    });
  };
  expect_near(own_output, output, 1e-5);
  expect_near(own_d_q, d_q, 5e-5);
  expect_near(own_d_k, d_k, 5e-5);
  expect_near(own_d_v, d_v, 5e-5);
}

TEST_F(Mpi, StatesPassFromRankToRank) {
  const int64_t len = 200;
  const auto rows = NormalBuffer({2, 4, len, 16}, 5);
  Buffer<float> whole(rows.shape(), Layout::kDense, 0);
  RecurrentAttention(rows.view(), rows.view(), rows.view(), {}, {.output = whole.view()});
  const auto own = PartOf(rows, rank, size, TokenOrder::kContiguous);
  Buffer<float> output(own.shape(), Layout::kDense, 0);
  distributed::RecurrentAttention(own.view(), own.view(), own.view(), {}, {.output = output.view()},
                                  {.q_len = len, .kv_len = len, .order = TokenOrder::kContiguous},
                                  communicator);
  const auto expected = PartOf(whole, rank, size, TokenOrder::kContiguous);
  output.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
    EXPECT_NEAR(x, expected(b, h, i, d), 1e-3);
  });
}

TEST_F(Mpi, TokensBecomeHeadsAndTokensAgain) {
  const auto whole = NormalBuffer({1, 2 * size, 37, 8}, 6);
  const auto own = Own(whole);
  Buffer<float> by_head({1, distributed::HeadsOf(2 * size, rank, size).len, 37, 8}, Layout::kDense,
                        0);
  Buffer<float> back(own.shape(), Layout::kDense, 0);
  distributed::SequenceToHeads(StoredTensor(own.view()), by_head.view(), 37, order, communicator);
  distributed::HeadsToSequence(StoredTensor(by_head.view()), back.view(), 37, order, communicator);
  EXPECT_EQ(back.Elements(), own.Elements());
}

// Messages longer than what MPI sends at once go in parts, and messages of nothing arrive.
TEST_F(Mpi, MessagesOfAnyLengthArrive) {
  if (size == 1) return;
  MpiCommunicator in_parts(MPI_COMM_WORLD, 1000);
  for (const size_t count : {0, 1, 999, 1000, 1001, 3000000}) {
    std::vector<std::byte> sent(count, static_cast<std::byte>(rank + 1)), received(count);
    in_parts.BeginReceive((rank + size - 1) % size, received);
    in_parts.BeginSend((rank + 1) % size, sent);
    in_parts.Progress();
    in_parts.Finish();
    const auto expected = static_cast<std::byte>((rank + size - 1) % size + 1);
    EXPECT_TRUE(std::all_of(received.begin(), received.end(),
                            [&](std::byte byte) { return byte == expected; }));
  }
}

TEST_F(Mpi, AnErrorOfOneRankIsToldToAll) {
  const int64_t len = 12;
  const auto whole = NormalBuffer({1, 2, len, 4}, 7);
  const auto own = Own(whole);
  Buffer<float> output(own.shape(), Layout::kDense, 0);
  AttentionOptions options;
  if (rank == size - 1) options.softcap = -1;
  try {
    distributed::Attention(own.view(), own.view(), own.view(), options, {.output = output.view()},
                           {.q_len = len, .kv_len = len, .order = order}, communicator);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRange);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("softcap = -1"));
  }
}

TEST(MpiError, SaysWhatMpiSays) {
  const distributed::MpiError error("MPI_Isend", MPI_ERR_RANK);
  EXPECT_EQ(error.code(), MPI_ERR_RANK);
  EXPECT_THAT(error.what(), ::testing::StartsWith("MPI_Isend: "));
}

}  // namespace
}  // namespace heed::testing

// The worst status of all ranks; rank 0 alone says more than a summary and writes the report.
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  ::testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) {
    GTEST_FLAG_SET(brief, true);
    GTEST_FLAG_SET(output, "");
  }
  const int mine = RUN_ALL_TESTS();
  int worst = 0;
  MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return worst;
}
