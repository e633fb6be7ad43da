// Attention over several processes, on one machine or many: each has a part of the tokens, and none
// ever has all keys.
//
//   mpirun -n 4 ring_attention          tests itself with 1000 tokens
//   mpirun -n 4 ring_attention 16384    and says how long that many take
//
// Every rank also computes the whole of the small case by itself, and compares.
#include <heed/heed.h>
#include <heed/mpi.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

namespace {

using heed::distributed::MpiCommunicator;

constexpr int64_t kHeads = 8, kKvHeads = 2, kDim = 64;

// Any number of the sequence, which every rank can make for its own tokens.
float NumberOf(int64_t token, int64_t head, int64_t d, int64_t which) {
  return static_cast<float>(
      std::sin(0.37 * static_cast<double>(token * 7 + head * 3 + d * 11 + which)));
}

// q, k and v of some tokens, and the output for them.
struct Tensors {
  explicit Tensors(const std::vector<heed::distributed::TokenSpan>& spans) {
    for (const auto& span : spans) len += span.len;
    q.resize(static_cast<size_t>(kHeads * len * kDim));
    k.resize(static_cast<size_t>(kKvHeads * len * kDim));
    v = k;
    output.assign(q.size(), std::numeric_limits<float>::quiet_NaN());
    int64_t row = 0;
    for (const auto& span : spans) {
      for (int64_t token = span.begin; token < span.begin + span.len; ++token, ++row) {
        for (int64_t d = 0; d < kDim; ++d) {
          for (int64_t h = 0; h < kHeads; ++h) Queries(q)(0, h, row, d) = NumberOf(token, h, d, 1);
          for (int64_t h = 0; h < kKvHeads; ++h) {
            Keys(k)(0, h, row, d) = NumberOf(token, h, d, 2);
            Keys(v)(0, h, row, d) = NumberOf(token, h, d, 3);
          }
        }
      }
    }
  }
  heed::TensorView<float> Queries(std::vector<float>& x) const {
    return heed::Contiguous(x.data(), 1, kHeads, len, kDim);
  }
  heed::TensorView<float> Keys(std::vector<float>& x) const {
    return heed::Contiguous(x.data(), 1, kKvHeads, len, kDim);
  }

  int64_t len = 0;
  std::vector<float> q, k, v, output;
};

heed::AttentionOptions Causal() {
  heed::AttentionOptions options;
  options.causal = true;
  return options;
}

// This rank's part of the call; returns its seconds.
double Run(Tensors& own, int64_t len, MpiCommunicator& communicator) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  heed::distributed::Attention(own.Queries(own.q), own.Keys(own.k), own.Keys(own.v), Causal(),
                               {.output = own.Queries(own.output)}, {.q_len = len, .kv_len = len},
                               communicator);
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Wtime() - start;
}

// The largest difference from the call of the whole, by this process alone.
double Difference(Tensors& own, const std::vector<heed::distributed::TokenSpan>& spans,
                  int64_t len) {
  Tensors whole({{0, len}});
  heed::Attention(whole.Queries(whole.q), whole.Keys(whole.k), whole.Keys(whole.v), Causal(),
                  {.output = whole.Queries(whole.output)});
  double difference = 0;
  int64_t row = 0;
  for (const auto& span : spans) {
    for (int64_t n = 0; n < span.len; ++n, ++row) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t d = 0; d < kDim; ++d) {
          const float of_rank = own.Queries(own.output)(0, h, row, d);
          const float expected = whole.Queries(whole.output)(0, h, span.begin + n, d);
          const double off = std::fabs(static_cast<double>(of_rank - expected));
          if (!(off <= difference) && !std::isnan(difference)) difference = off;
        }
      }
    }
  }
  return difference;
}

int RunAll(int64_t timed_len) {
  MpiCommunicator communicator(MPI_COMM_WORLD);
  const int rank = communicator.Rank(), size = communicator.Size();
  const auto spans_of = [&](int64_t len) {
    return heed::distributed::TokensOf(len, rank, size, heed::distributed::TokenOrder::kZigzag);
  };

  Tensors small(spans_of(1000));
  Run(small, 1000, communicator);
  const double difference = Difference(small, spans_of(1000), 1000);
  if (!(difference < 1e-5)) {
    std::printf("rank %d: its rows differ by %g from those of one process\n", rank, difference);
    return 1;
  }
  if (rank == 0) std::printf("%d ranks compute what one does, within %.1e\n", size, difference);
  if (timed_len <= 0) return 0;

  Tensors large(spans_of(timed_len));
  Run(large, timed_len, communicator);
  double best = Run(large, timed_len, communicator);
  for (int n = 0; n < 4; ++n) best = std::fmin(best, Run(large, timed_len, communicator));
  // Two products, of half of all pairs.
  const double flops =
      2.0 * kHeads * kDim * static_cast<double>(timed_len) * static_cast<double>(timed_len + 1);
  if (rank == 0) {
    std::printf("%lld tokens, causal, %d ranks: %.1f ms, %.1f GFLOP/s\n",
                static_cast<long long>(timed_len), size, 1e3 * best, flops / best / 1e9);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int status = RunAll(argc > 1 ? std::atoll(argv[1]) : 0);
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}
