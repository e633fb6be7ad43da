// What one writes first: three loops and a score matrix, left to the compiler at -O3. The floor
// that every other peer is measured from, and the reading aid for what they compute.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "native_bench/peer.h"

namespace heed::bench {
namespace {

std::string Details() { return ""; }

std::string Refuse(const Case& c) {
  const bool known = c.mechanism == "scaled_dot_product" || c.mechanism == "kernel_regression";
  if (!known) return "has no loops for this mechanism";
  return c.dtype == DType::kFloat32 ? "" : "computes float32 only";
}

// One head: contiguous q [q_len, head_dim], k [kv_len, head_dim], v [kv_len, head_dim_v], output
// [q_len, head_dim_v].
struct Head {
  const float* q;
  const float* k;
  const float* v;
  float* output;
  const float* sink;  // nullptr without one
};

void DotScores(const Head& head, const Problem& problem, float* scores) {
  const auto [q_len, kv_len] = problem.shape().lengths;
  const int64_t head_dim = problem.shape().head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  for (int64_t i = 0; i < q_len; ++i) {
    for (int64_t j = 0; j < kv_len; ++j) {
      float sum = 0;
      for (int64_t d = 0; d < head_dim; ++d) {
        sum += head.q[i * head_dim + d] * head.k[j * head_dim + d];
      }
      scores[i * kv_len + j] = scale * sum;
    }
  }
}

void Softcap(const Problem& problem, float* scores) {
  const auto [q_len, kv_len] = problem.shape().lengths;
  const float cap = static_cast<float>(*problem.shape().softcap);
  for (int64_t n = 0; n < q_len * kv_len; ++n) scores[n] = cap * std::tanh(scores[n] / cap);
}

// The logarithm of the gaussian kernel, so that softmax normalises it.
void DistanceScores(const Head& head, const Problem& problem, float* scores) {
  const auto [q_len, kv_len] = problem.shape().lengths;
  const int64_t head_dim = problem.shape().head_dim;
  const float factor = static_cast<float>(-0.5 / (problem.width() * problem.width()));
  for (int64_t i = 0; i < q_len; ++i) {
    for (int64_t j = 0; j < kv_len; ++j) {
      float sum = 0;
      for (int64_t d = 0; d < head_dim; ++d) {
        const float difference = head.q[i * head_dim + d] - head.k[j * head_dim + d];
        sum += difference * difference;
      }
      scores[i * kv_len + j] = factor * sum;
    }
  }
}

void Softmax(const Head& head, const Problem& problem, float* scores) {
  const auto [q_len, kv_len] = problem.shape().lengths;
  for (int64_t i = 0; i < q_len; ++i) {
    float* row = scores + i * kv_len;
    const auto [begin, end] = problem.VisibleKeys(i);
    std::fill(row, row + begin, 0.0f);
    std::fill(row + end, row + kv_len, 0.0f);
    if (begin == end) continue;
    float row_max = *std::max_element(row + begin, row + end);
    if (head.sink != nullptr) row_max = std::max(row_max, *head.sink);
    float row_sum = head.sink != nullptr ? std::exp(*head.sink - row_max) : 0;
    for (int64_t j = begin; j < end; ++j) {
      row[j] = std::exp(row[j] - row_max);
      row_sum += row[j];
    }
    for (int64_t j = begin; j < end; ++j) row[j] /= row_sum;
  }
}

void WeightValues(const Head& head, const Problem& problem, const float* weights) {
  const auto [q_len, kv_len] = problem.shape().lengths;
  const int64_t head_dim = problem.shape().ValueDim();
  for (int64_t i = 0; i < q_len; ++i) {
    float* output = head.output + i * head_dim;
    std::fill_n(output, head_dim, 0.0f);
    for (int64_t j = 0; j < kv_len; ++j) {
      for (int64_t d = 0; d < head_dim; ++d) {
        output[d] += weights[i * kv_len + j] * head.v[j * head_dim + d];
      }
    }
  }
}

void AttendHead(const Problem& problem, int64_t batch, int64_t h, float* scores) {
  const Heads& heads = problem.shape().heads;
  const int64_t kv_head = h / (heads.num_heads / heads.num_kv_heads);
  const Head head = {&problem.q()(batch, h, 0, 0), &problem.k()(batch, kv_head, 0, 0),
                     &problem.v()(batch, kv_head, 0, 0), &problem.output()(batch, h, 0, 0),
                     problem.sink(h)};
  if (problem.shape().mechanism == "kernel_regression") {
    DistanceScores(head, problem, scores);
  } else {
    DotScores(head, problem, scores);
  }
  if (problem.shape().softcap.has_value()) Softcap(problem, scores);
  Softmax(head, problem, scores);
  WeightValues(head, problem, scores);
}

std::function<void()> Prepare(Problem& problem, ThreadPool& pool) {
  const Case& c = problem.shape();
  const size_t scores_size = static_cast<size_t>(c.lengths.q_len * c.lengths.kv_len);
  auto scores = std::make_shared<std::vector<std::vector<float>>>(
      static_cast<size_t>(pool.NumThreads()), std::vector<float>(scores_size));
  return [&problem, &pool, scores] {
    const int64_t num_heads = problem.shape().heads.num_heads;
    pool.Run(problem.shape().batch * num_heads, [&](int64_t task, int worker) {
      AttendHead(problem, task / num_heads, task % num_heads,
                 (*scores)[static_cast<size_t>(worker)].data());
    });
  };
}

}  // namespace

Peer PlainLoopsPeer() {
  return {.id = "plain_loops",
          .summary = "three loops that materialise the scores, -O3 without -march, one head a task",
          .details = Details,
          .refuse = Refuse,
          .prepare = Prepare};
}

}  // namespace heed::bench
