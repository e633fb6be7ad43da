// Attention composed of an optimised BLAS: two matrix products around a softmax, for 128 queries of
// a head at a time, so that the scores stay in the cache and causal blocks skip the keys beyond
// them. What a careful programmer writes without a kernel of their own.
#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "native_bench/peer.h"
#include "native_bench/peers/blas/softmax.h"

namespace heed::bench {
namespace {

constexpr int64_t kBlock = 128;  // queries

std::string Details() { return openblas_get_config(); }

std::string Refuse(const Case& c) {
  if (c.mechanism != "scaled_dot_product") return "computes only scaled_dot_product";
  return c.dtype == DType::kFloat32 ? "" : "computes float32 only";
}

// Queries [begin, end) of one head and the keys that any of them sees.
struct Block {
  int64_t batch, head, kv_head;
  int64_t begin, end;
  int64_t first_key, last_key;
};

Block BlockOf(const Problem& problem, int64_t batch, int64_t head, int64_t index) {
  const Case& c = problem.shape();
  const int64_t begin = index * kBlock;
  const int64_t end = std::min(begin + kBlock, c.lengths.q_len);
  return {batch,
          head,
          head / (c.heads.num_heads / c.heads.num_kv_heads),
          begin,
          end,
          problem.VisibleKeys(begin).first,
          problem.VisibleKeys(end - 1).second};
}

void Attend(Problem& problem, const Block& block, float* scores) {
  const Case& c = problem.shape();
  const int rows = static_cast<int>(block.end - block.begin);
  const int keys = static_cast<int>(block.last_key - block.first_key);
  const int depth = static_cast<int>(c.head_dim), width = static_cast<int>(c.ValueDim());
  float* output = &problem.output()(block.batch, block.head, block.begin, 0);
  if (keys <= 0) {
    std::fill_n(output, rows * width, 0.0f);
    return;
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, keys, depth,
              1 / std::sqrt(static_cast<float>(depth)),
              &problem.q()(block.batch, block.head, block.begin, 0), depth,
              &problem.k()(block.batch, block.kv_head, block.first_key, 0), depth, 0, scores, keys);
  if (c.softcap) blas_peer::Softcap(scores, rows * keys, static_cast<float>(*c.softcap));
  for (int64_t i = block.begin; i < block.end; ++i) {
    const auto [first, last] = problem.VisibleKeys(i);
    blas_peer::SoftmaxRow(scores + (i - block.begin) * keys, keys,
                          {first - block.first_key, last - block.first_key},
                          problem.sink(block.head));
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, width, keys, 1, scores, keys,
              &problem.v()(block.batch, block.kv_head, block.first_key, 0), width, 0, output,
              width);
}

std::function<void()> Prepare(Problem& problem, ThreadPool& pool) {
  openblas_set_num_threads(1);  // the pool's workers call it, each for a block of its own
  const Case& c = problem.shape();
  const size_t size = static_cast<size_t>(std::min(kBlock, c.lengths.q_len) * c.lengths.kv_len);
  auto scores = std::make_shared<std::vector<std::vector<float>>>(
      static_cast<size_t>(pool.NumThreads()), std::vector<float>(size));
  return [&problem, &pool, scores] {
    const Case& shape = problem.shape();
    const int64_t heads = shape.batch * shape.heads.num_heads;
    const int64_t blocks = (shape.lengths.q_len + kBlock - 1) / kBlock;
    // Last blocks first: with a causal mask they are the longest.
    pool.Run(heads * blocks, [&](int64_t task, int worker) {
      const int64_t head = task % heads;
      const Block block = BlockOf(problem, head / shape.heads.num_heads,
                                  head % shape.heads.num_heads, blocks - 1 - task / heads);
      Attend(problem, block, (*scores)[static_cast<size_t>(worker)].data());
    });
  };
}

}  // namespace

Peer BlasPeer() {
  return {.id = "blas",
          .summary = "OpenBLAS: sgemm, softmax, sgemm for 128 queries of a head at a time",
          .details = Details,
          .refuse = Refuse,
          .prepare = Prepare};
}

}  // namespace heed::bench
