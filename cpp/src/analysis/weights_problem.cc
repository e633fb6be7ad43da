#include "src/analysis/weights_problem.h"

#include <algorithm>

#include "src/exact/attention_spans.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// Copies the tiles of a pass into a rectangle of pairs.
class CopyWeights final : public WeightVisitor {
 public:
  CopyWeights(const WeightsRange& range, TensorView<float> weights)
      : range_(range), weights_(weights) {}

  void Visit(const ScoreTile& tile, int64_t) override {
    const int64_t begin =
        std::max(range_.k_begin, tile.key_begin + static_cast<int64_t>(tile.first));
    const int64_t end = std::min(
        range_.k_end, tile.key_begin + static_cast<int64_t>(std::min(tile.last, tile.num_keys)));
    if (begin >= end) return;
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const Row& row = tile.rows[r];
      const float* from = tile.row_scores(r) + (begin - tile.key_begin);
      std::copy(
          from, from + (end - begin),
          &weights_(tile.batch, row.head, row.query - range_.q_begin, begin - range_.k_begin));
    }
  }

 private:
  WeightsRange range_;
  TensorView<float> weights_;
};

template <typename T>
void ConvertRow(const void* from, int64_t count, float* to) {
  const T* elements = static_cast<const T*>(from);
  for (int64_t d = 0; d < count; ++d) to[d] = ToFloat(elements[d]);
}

}  // namespace

AttentionProblem ValidateWeights(const StoredTensor& q, const StoredTensor& k,
                                 const AttentionOptions& options, bool wants_lse) {
  static const float kNothing = 0;
  CheckStored("k", k);
  const TensorView<const float> v = {
      &kNothing, {k.shape[0], k.shape[1], k.shape[2], 0}, {0, 0, 0, 1}};
  AttentionOptions of_weights = options;
  of_weights.relative_values = {};  // they change no weight
  return ValidateAttentionInputs(q, k, StoredTensor(v), of_weights, wants_lse);
}

void CheckGivenLse(const AttentionProblem& p, TensorView<const float> lse) {
  if (!lse.has_value()) return;
  CheckInput("lse", lse);
  CheckShape("lse", lse.shape, {p.batch, p.num_heads, p.q_len, 1}, "[batch, num_heads, q_len, 1]");
}

void CheckAnalysisOutput(std::string_view name, TensorView<float> output, const Extents& expected,
                         std::string_view meaning) {
  if (output.has_value()) CheckOutput(name, output, expected, meaning);
}

void CheckApart(const OutputSpans& outputs, const AttentionProblem& p) {
  outputs.ApartFrom("q", p.q).ApartFrom("k", p.k).ApartFrom("v", p.v).ApartFrom(p.options);
}

TensorView<float> AsFloats(const TensorView<int32_t>& view) {
  // Only looked at for its addresses.
  return {reinterpret_cast<float*>(view.data), view.shape, view.strides};
}

void CheckSquare(const AttentionProblem& p, std::string_view what) {
  if (p.q_len == p.kv_len) return;
  Fail(ErrorCode::kShape,
       "q_len = {} and kv_len = {} differ; {} needs queries and keys of the same tokens",
       {p.q_len, p.kv_len, what});
}

int64_t NumParts(const AttentionProblem& p) {
  constexpr int64_t kParts = 32;
  const int64_t units = std::max<int64_t>(1, p.batch * p.num_kv_heads);
  return (kParts + units - 1) / units;
}

void Clear(const TensorView<float>& view) {
  if (view.size() == 0) return;
  for (int64_t b = 0; b < view.shape[0]; ++b) {
    for (int64_t h = 0; h < view.shape[1]; ++h) {
      for (int64_t i = 0; i < view.shape[2]; ++i) {
        std::fill_n(&view(b, h, i, 0), view.shape[3], 0.0f);
      }
    }
  }
}

void WriteWeights(const AttentionProblem& p, const WeightsRange& range, TensorView<const float> lse,
                  TensorView<float> weights, ThreadPool* pool) {
  Clear(weights);
  if (weights.size() == 0) return;
  CopyWeights copy(range, weights);
  WeightVisit visit;
  visit.visitor = &copy;
  visit.queries = {range.q_begin, range.q_end};
  visit.keys = {range.k_begin, range.k_end};
  visit.lse = lse;
  visit.parts = NumParts(p);
  VisitWeights(p, visit, pool);
}

void CheckRange(const AttentionProblem& p, const WeightsRange& r) {
  const auto check = [](const char* what, int64_t begin, int64_t end, int64_t len) {
    if (begin >= 0 && begin <= end && end <= len) return;
    Fail(ErrorCode::kRange, "{} = [{}, {}); expected a range within [0, {})",
         {what, begin, end, len});
  };
  check("queries", r.q_begin, r.q_end, p.q_len);
  check("keys", r.k_begin, r.k_end, p.kv_len);
}

TensorView<float> Allocate(std::vector<float>& memory, const Extents& shape) {
  memory.resize(static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  return Contiguous(memory.data(), shape[0], shape[1], shape[2], shape[3]);
}

TensorView<const float> FloatValues(const StoredTensor& v, std::vector<float>& memory) {
  if (v.dtype == DType::kFloat32) return {static_cast<const float*>(v.data), v.shape, v.strides};
  const TensorView<float> copy = Allocate(memory, v.shape);
  for (int64_t b = 0; b < v.shape[0] && v.size() > 0; ++b) {
    for (int64_t h = 0; h < v.shape[1]; ++h) {
      for (int64_t j = 0; j < v.shape[2]; ++j) {
        if (v.dtype == DType::kFloat16) {
          ConvertRow<Float16>(v.Row(b, h, j), v.shape[3], &copy(b, h, j, 0));
        } else {
          ConvertRow<BFloat16>(v.Row(b, h, j), v.shape[3], &copy(b, h, j, 0));
        }
      }
    }
  }
  return copy;
}

ThreadPool& PoolOrDefault(ThreadPool* pool) {
  return pool != nullptr ? *pool : DefaultThreadPool();
}

}  // namespace heed
