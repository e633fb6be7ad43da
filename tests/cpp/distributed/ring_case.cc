#include "distributed/ring_case.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "distributed/local_ranks.h"
#include "heed/thread_pool.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Values of the queries of a rank, of each batch entry or of all; those of batch entries alone
// stay.
std::vector<int32_t> OfQueries(std::span<const int32_t> values, const RingCase& c, int rank,
                               int size) {
  const int64_t len = c.sharding.q_len;
  std::vector<int32_t> part;
  for (int64_t first = 0; first < static_cast<int64_t>(values.size()); first += len) {
    ForEachToken(len, rank, size, c.sharding.order, [&](int64_t, int64_t token) {
      part.push_back(values[static_cast<size_t>(first + token)]);
    });
  }
  return part;
}

struct TensorPair {
  TensorView<const float> AttentionOptions::*option;
  TensorView<float> AttentionGradients::*gradient;
};
constexpr TensorPair kTensors[] = {
    {&AttentionOptions::distance_bias, &AttentionGradients::d_distance_bias},
    {&AttentionOptions::bucket_bias, &AttentionGradients::d_bucket_bias},
    {&AttentionOptions::score_matrix, &AttentionGradients::d_score_matrix},
    {&AttentionOptions::query_weight, &AttentionGradients::d_query_weight},
    {&AttentionOptions::key_weight, &AttentionGradients::d_key_weight},
    {&AttentionOptions::score_vector, &AttentionGradients::d_score_vector},
    {&AttentionOptions::relative_keys, &AttentionGradients::d_relative_keys},
    {&AttentionOptions::relative_queries, &AttentionGradients::d_relative_queries},
    {&AttentionOptions::relative_values, &AttentionGradients::d_relative_values},
    {&AttentionOptions::content_bias, &AttentionGradients::d_content_bias},
    {&AttentionOptions::position_bias, &AttentionGradients::d_position_bias}};

struct ListPair {
  std::span<const float> AttentionOptions::*option;
  std::span<float> AttentionGradients::*gradient;
};
constexpr ListPair kLists[] = {
    {&AttentionOptions::alibi_slopes, &AttentionGradients::d_alibi_slopes},
    {&AttentionOptions::sinks, &AttentionGradients::d_sinks},
    {&AttentionOptions::width, &AttentionGradients::d_width},
    {&AttentionOptions::temperature, &AttentionGradients::d_temperature},
    {&AttentionOptions::score_bias, &AttentionGradients::d_score_bias}};

// Places for the gradients of all that the case's options have.
AttentionGradients PlacesOf(const RingCase& c, RingGradients& g) {
  AttentionGradients to;
  g.d_tables.reserve(std::size(kTensors));
  g.d_lists.reserve(std::size(kLists));
  for (const TensorPair& pair : kTensors) {
    const TensorView<const float>& option = c.options.*pair.option;
    if (!option.has_value()) continue;
    to.*pair.gradient = g.d_tables.emplace_back(option.shape, Layout::kPadded, kNan).view();
  }
  for (const ListPair& pair : kLists) {
    const size_t count = (c.options.*pair.option).size();
    if (count > 0) to.*pair.gradient = g.d_lists.emplace_back(count, kNan);
  }
  if (c.options.score_mod) {
    to.score_mod_slope = [](const PairTile& tile) {
      for (size_t r = 0; r < tile.num_rows; ++r) {
        std::fill_n(tile.values + r * tile.row_stride, tile.num_keys, 0.5f);
      }
    };
  }
  return to;
}

}  // namespace

void RingCase::DrawTensors() {
  q = NormalBuffer({batch, num_heads, sharding.q_len, head_dim}, 1);
  const int64_t width = head_dim_k > 0 ? head_dim_k : head_dim;
  k = NormalBuffer({batch, num_kv_heads, sharding.kv_len, width}, 2);
  v = NormalBuffer({batch, num_kv_heads, sharding.kv_len, head_dim_v}, 3);
}

TensorView<const float> RingCase::Table(const Extents& shape) {
  tables.reserve(8);
  return tables.emplace_back(NormalBuffer(shape, 73 + tables.size(), 0.5f)).view();
}

RankOptions::RankOptions(const RingCase& c, int rank, int size) : options(c.options) {
  const distributed::TokenOrder order = c.sharding.order;
  if (options.bias.has_value() && options.bias.shape[2] != 1) {
    bias_ = PartOf(c.bias, rank, size, order);
    options.bias = bias_.view();
  }
  if (options.keep.has_value() && options.keep.shape[2] != 1) {
    keep_ = PartOf(c.keep, rank, size, order);
    options.keep = keep_.view();
  }
  if (options.key_lengths.size() > static_cast<size_t>(c.batch)) {
    lengths_ = OfQueries(options.key_lengths, c, rank, size);
    options.key_lengths = lengths_;
  }
  documents_ = OfQueries(options.query_documents, c, rank, size);
  options.query_documents = documents_;
}

RingResults RunWhole(const RingCase& c) {
  RingResults r = {
      Buffer<float>({c.batch, c.num_heads, c.sharding.q_len, c.head_dim_v}, Layout::kDense, kNan),
      Buffer<float>({c.batch, c.num_heads, c.sharding.q_len, 1}, Layout::kDense, kNan)};
  Attention(c.q.view(), c.k.view(), c.v.view(), c.options,
            {.output = r.output.view(), .lse = r.lse.view()});
  return r;
}

RingResults RunOverRanks(const RingCase& c, int size, int num_threads) {
  RingResults whole = {
      Buffer<float>({c.batch, c.num_heads, c.sharding.q_len, c.head_dim_v}, Layout::kDense, kNan),
      Buffer<float>({c.batch, c.num_heads, c.sharding.q_len, 1}, Layout::kDense, kNan)};
  RunRanksWell(size, [&](distributed::Communicator& communicator) {
    const int rank = communicator.Rank();
    const distributed::TokenOrder order = c.sharding.order;
    const auto pool = MakeThreadPool(num_threads);
    const RankOptions options(c, rank, size);
    const auto q = PartOf(c.q, rank, size, order, Layout::kBlhd);
    const auto k = PartOf(c.k, rank, size, order), v = PartOf(c.v, rank, size, order);
    auto output = PartOf(whole.output, rank, size, order);
    auto lse = PartOf(whole.lse, rank, size, order);
    distributed::Attention(q.view(), k.view(), v.view(), options.options,
                           {.output = output.view(), .lse = lse.view()}, c.sharding, communicator,
                           pool.get());
    PutPart(output, whole.output, rank, size, order);
    PutPart(lse, whole.lse, rank, size, order);
  });
  return whole;
}

RingGradients RunWholeBackward(const RingCase& c, const RingResults& forward,
                               const Buffer<float>& d_out, const Buffer<float>& d_lse) {
  RingGradients g = {Buffer<float>(c.q.shape(), Layout::kDense, kNan),
                     Buffer<float>(c.k.shape(), Layout::kDense, kNan),
                     Buffer<float>(c.v.shape(), Layout::kDense, kNan),
                     {},
                     {}};
  AttentionGradients to = PlacesOf(c, g);
  to.d_lse = d_lse.view();
  to.d_q = g.d_q.view();
  to.d_k = g.d_k.view();
  to.d_v = g.d_v.view();
  AttentionBackward(c.q.view(), c.k.view(), c.v.view(), forward.output.view(), forward.lse.view(),
                    d_out.view(), c.options, to);
  return g;
}

RingGradients RunBackwardOverRanks(const RingCase& c, const RingResults& forward,
                                   const Buffer<float>& d_out, const Buffer<float>& d_lse, int size,
                                   int num_threads) {
  RingGradients whole = {Buffer<float>(c.q.shape(), Layout::kDense, kNan),
                         Buffer<float>(c.k.shape(), Layout::kDense, kNan),
                         Buffer<float>(c.v.shape(), Layout::kDense, kNan),
                         {},
                         {}};
  std::vector<RingGradients> all(static_cast<size_t>(size));
  RunRanksWell(size, [&](distributed::Communicator& communicator) {
    const int rank = communicator.Rank();
    const distributed::TokenOrder order = c.sharding.order;
    const auto pool = MakeThreadPool(num_threads);
    const RankOptions options(c, rank, size);
    const auto q = PartOf(c.q, rank, size, order), k = PartOf(c.k, rank, size, order);
    const auto v = PartOf(c.v, rank, size, order, Layout::kBlhd);
    const auto out = PartOf(forward.output, rank, size, order);
    const auto lse = PartOf(forward.lse, rank, size, order);
    const auto arriving = PartOf(d_out, rank, size, order);
    const auto at_lse = PartOf(d_lse, rank, size, order);
    auto d_q = PartOf(whole.d_q, rank, size, order), d_k = PartOf(whole.d_k, rank, size, order);
    auto d_v = PartOf(whole.d_v, rank, size, order);
    RingGradients& mine = all[static_cast<size_t>(rank)];
    AttentionGradients to = PlacesOf(c, mine);
    to.d_lse = at_lse.view();
    to.d_q = d_q.view();
    to.d_k = d_k.view();
    to.d_v = d_v.view();
    distributed::AttentionBackward(q.view(), k.view(), v.view(), out.view(), lse.view(),
                                   arriving.view(), options.options, to, c.sharding, communicator,
                                   pool.get());
    PutPart(d_q, whole.d_q, rank, size, order);
    PutPart(d_k, whole.d_k, rank, size, order);
    PutPart(d_v, whole.d_v, rank, size, order);
  });
  // Every rank has the same sums: those of the last one are compared with the whole's.
  whole.d_tables = std::move(all.back().d_tables);
  whole.d_lists = std::move(all.back().d_lists);
  return whole;
}

double LargestError(const std::vector<float>& got, const std::vector<float>& expected) {
  if (got.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double size = 0, error = 0;
  for (size_t n = 0; n < got.size(); ++n) {
    if (got[n] == expected[n]) continue;
    const double difference =
        std::abs(static_cast<double>(got[n]) - static_cast<double>(expected[n]));
    error = difference <= error ? error : difference;  // NaN stays
  }
  for (const float x : expected) {
    if (std::isfinite(x)) size = std::max(size, std::abs(static_cast<double>(x)));
  }
  return error == 0 ? 0 : error / std::max(size, 1e-30);
}

double LargestError(const Buffer<float>& got, const Buffer<float>& expected) {
  return LargestError(got.Elements(), expected.Elements());
}

}  // namespace heed::testing
