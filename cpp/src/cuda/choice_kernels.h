// Choices of keys: scores in float64, summed in the order of the dimensions as on the CPU, so that
// the same keys are chosen; then ranks. Plain kernels: a block has a row.
#ifndef HEED_SRC_CUDA_CHOICE_KERNELS_H_
#define HEED_SRC_CUDA_CHOICE_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/choice_params.h"
#include "src/cuda/head_place.h"
#include "src/cuda/kept_row_writer.h"
#include "src/cuda/row_block.h"

namespace heed::cuda {

// Products of floats are exact, with a fused multiply-add and without.
HEED_DEVICE double ExactDot(const float* a, const float* b, int width) {
  double sum = 0;
  HEED_NO_UNROLL for (int d = 0; d < width; ++d) {
    sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
  }
  return sum;
}

// A score as it is compared (src/selective/choose.h): below infinity, also when it is NaN.
HEED_DEVICE double ComparableScore(double score) {
  constexpr double kMost = 1.7976931348623157e308;
  return score < kMost ? score : kMost;
}

// How many of `count` candidates are better than c, but at most `most`. Of equal ones the lower.
template <class Score>
HEED_DEVICE int NumBetter(int c, int count, int most, const Score& score) {
  const double own = score(c);
  int better = 0;
  HEED_NO_UNROLL for (int n = 0; n < count && better < most; ++n) {
    const double other = score(n);
    if (other > own || (other == own && n < c)) ++better;
  }
  return better;
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const BoundsParams& p, int64_t index) {
  const HeadPlace place(index, p.pages, p.heads);
  const int64_t begin = int64_t{place.within} * p.page_size;
  const int64_t length = p.lengths[place.b];
  const int64_t end = begin + p.page_size < length ? begin + p.page_size : length;
  block.Each([&](int t) {
    for (int d = t; d < p.width; d += kBlockThreads) {
      float max = -HUGE_VALF, min = HUGE_VALF;
      HEED_NO_UNROLL for (int64_t j = begin; j < end; ++j) {
        const float x = p.keys.Row(place.b, place.h, j)[d];
        const bool nan = x != x;
        if (x > max || nan) max = x;
        if (x < min || nan) min = x;
      }
      float* bounds = p.bounds.Row(place.b, place.h, place.within);
      bounds[d] = max;
      bounds[p.width + d] = min;
    }
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const CompressParams& p, int64_t index) {
  const HeadPlace place(index, p.count, p.heads);
  const int64_t begin = int64_t{place.within} * p.stride;
  const bool exists = begin + p.block <= p.lengths[place.b];
  const bool weighs = p.weights.data != nullptr;
  block.Each([&](int t) {
    for (int d = t; d < p.width; d += kBlockThreads) {
      double sum = 0;
      HEED_NO_UNROLL for (int n = 0; exists && n < p.block; ++n) {
        const double x = static_cast<double>(p.tokens.Row(place.b, place.h, begin + n)[d]);
        sum += weighs ? static_cast<double>(p.weights.At(0, 0, place.h, n)) * x : x;
      }
      if (!weighs) sum /= static_cast<double>(p.block);
      p.out.Row(place.b, place.h, place.within)[d] = static_cast<float>(sum);
    }
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const DotScoreParams& p, int64_t index) {
  const HeadPlace place(index, p.len, p.heads);
  const float* query = p.queries.Row(place.b, place.h, place.within);
  block.Each([&](int t) {
    for (int n = t; n < p.count; n += kBlockThreads) {
      const float* vector = p.vectors.Row(place.b, place.h / p.group, n);
      p.scores[index * p.count + n] = ExactDot(query, vector, p.width);
    }
  });
}

// Products are rounded to float32: then theirs with the weights are exact.
template <class Block>
HEED_DEVICE void RunStep(Block& block, const IndexScoreParams& p, int64_t index) {
  const int b = static_cast<int>(index / p.len), i = static_cast<int>(index % p.len);
  block.Each([&](int t) {
    for (int j = t; j < p.count; j += kBlockThreads) {
      double score = 0;
      HEED_NO_UNROLL for (int h = 0; h < p.index_heads; ++h) {
        const double dot = ExactDot(p.queries.Row(b, h, i), p.keys.Row(b, 0, j), p.width);
        const double product = static_cast<double>(static_cast<float>(dot));
        const double weight = static_cast<double>(*p.weights.Row(b, h, i));
        score += weight * (product < 0 ? 0.0 : product);
      }
      p.scores[index * p.count + j] = score;
    }
  });
}

// Adds the weights of one head to the scores of a row's blocks; `products` become them.
template <class Block>
HEED_DEVICE void AddCompressed(RowBlock<Block>& row, const CompressedScoreParams& p, int visible,
                               const float* query, const HeadPlace& place, double* products,
                               double* scores) {
  const RowKeys keys = {0, visible};
  row.EachKey(keys, [&](int, int j) {
    const double dot = ExactDot(query, p.keys.Row(place.b, place.h, j), p.width);
    products[j] = static_cast<double>(static_cast<float>(dot * static_cast<double>(p.scale)));
  });
  const double largest = row.MaxOf(keys, [&](int, int j) { return products[j]; });
  row.EachKey(keys, [&](int, int j) { products[j] = exp(products[j] - largest); });
  row.EachKey({0, p.count}, [&](int, int n) {
    double sum = 0;  // in the order of the keys, the same in every thread
    HEED_NO_UNROLL for (int j = 0; j < visible; ++j) sum += products[j];
    const int64_t block_begin = int64_t{n} * p.key_block, block_end = block_begin + p.key_block;
    HEED_NO_UNROLL for (int j = 0; j < visible; ++j) {
      const int64_t begin = int64_t{j} * p.compress_stride, end = begin + p.compress_block;
      const int64_t from = begin > block_begin ? begin : block_begin;
      const int64_t to = end < block_end ? end : block_end;
      if (from >= to) continue;
      const double weight = static_cast<double>(static_cast<float>(products[j] / sum));
      scores[n] += weight * static_cast<double>(to - from);
    }
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const CompressedScoreParams& p, int64_t index) {
  const HeadPlace place(index, p.len, p.heads);
  const int visible = p.visible[place.b * p.visible_stride + place.within];
  double* scores = p.scores + index * p.count;
  RowBlock<Block> row(block);
  row.EachKey({0, p.count}, [&](int, int n) { scores[n] = 0; });
  for (int g = 0; g < p.group; ++g) {
    const float* query = p.queries.Row(place.b, place.h * p.group + g, place.within);
    AddCompressed(row, p, visible, query, place, p.products + index * p.compressed, scores);
  }
}

// Candidates of a query: blocks of keys that exist and, if causal, begin at or before it.
HEED_DEVICE int CandidatesOf(const ChooseParams& p, int b, int i) {
  const int64_t length = p.rules.Length(b, i, p.kept.len), position = p.rules.Position(b, i);
  const int64_t blocks = (length + p.kv_block - 1) / p.kv_block;
  if (!p.causal) return static_cast<int>(blocks);
  if (position < 0) return 0;
  const int64_t before = position / p.kv_block + 1;
  return static_cast<int>(before < blocks ? before : blocks);
}

// The last of a row's candidates that is chosen: of the others those are which are better, or equal
// and lower.
template <class Block>
class ChooseKernel {
 public:
  HEED_DEVICE ChooseKernel(Block& block, const ChooseParams& params, int64_t index)
      : block_(block),
        writer_(block, params.kept),
        last_(block.template Allocate<int32_t>(1)),
        p_(params),
        place_(index, params.rows, params.kept.lists),
        query_(params.first + place_.within),
        count_(CandidatesOf(params, place_.b, query_)),
        scores_(params.scores + index * params.count) {}
  static constexpr int kSharedBytes = KeptRowWriter<Block>::kSharedBytes + 16;

  HEED_DEVICE void Run() {
    const int last = count_ > p_.most ? LastChosen() : count_ - 1;
    const double least = count_ > p_.most ? Score(last) : -HUGE_VAL;
    const int64_t all = int64_t{count_} * p_.kv_block;
    const int64_t row = (int64_t{place_.b} * p_.kept.lists + place_.h) * p_.kept.len + query_;
    writer_.Write(row, all < p_.kv_len ? all : p_.kv_len, [&](int64_t j) {
      const int n = static_cast<int>(j / p_.kv_block);
      const double score = Score(n);
      return score > least || (score == least && n <= last);
    });
  }

 private:
  HEED_DEVICE double Score(int n) const {
    const int64_t position = p_.rules.Position(place_.b, query_);
    const int64_t own = position / p_.kv_block;
    const bool local = position >= 0 && n <= own && n > own - p_.local_blocks;
    return n < p_.first_blocks || local ? HUGE_VAL : ComparableScore(scores_[n]);
  }

  // One candidate has most - 1 better ones.
  HEED_DEVICE int LastChosen() {
    block_.Each([&](int t) {
      for (int n = t; n < count_; n += kBlockThreads) {
        const int better = NumBetter(n, count_, p_.most, [&](int c) { return Score(c); });
        if (better == p_.most - 1) last_.Store(t, 0, n);
      }
    });
    block_.Sync();
    return last_.LoadUniform(0);
  }

  Block& block_;
  KeptRowWriter<Block> writer_;
  typename Block::template Shared<int32_t> last_;
  const ChooseParams& p_;
  HeadPlace place_;
  int query_, count_;
  const double* scores_;
};

template <class Block>
HEED_DEVICE void RunStep(Block& block, const ChooseParams& p, int64_t index) {
  ChooseKernel<Block>(block, p, index).Run();
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHOICE_KERNELS_H_
