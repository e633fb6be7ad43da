#include "src/cuda/row_plan.h"

#include <algorithm>
#include <cstdlib>

#include "heed/position.h"
#include "src/exact/relative.h"

namespace heed::cuda {
namespace {

// Blocks a multiprocessor, and the most memory of all rows in flight.
constexpr int64_t kSlotsPerProcessor = 8;
constexpr int64_t kMostSlotFloats = int64_t{1} << 26;

// Of a view [1, 1 or heads, rows, cols].
HeadTable TableOf(const TensorView<const float>& view) {
  if (!view.has_value()) return {};
  return {view.data, view.shape[1] == 1 ? 0 : view.strides[1], view.strides[2],
          static_cast<int32_t>(view.shape[2])};
}

// Of a view [1, 1, 1 or heads, cols].
HeadTable VectorsOf(const TensorView<const float>& view) {
  if (!view.has_value()) return {};
  return {view.data, view.shape[2] == 1 ? 0 : view.strides[2], 0,
          static_cast<int32_t>(view.shape[3])};
}

PairOutput PairOutputOf(const TensorView<float>& view) {
  PairOutput pairs{};
  if (view.size() == 0) return pairs;
  pairs.data = view.data;
  std::copy(view.strides.begin(), view.strides.end(), pairs.strides);
  return pairs;
}

// No pair of the call is farther apart, even where lengths on the device say where queries stand.
int64_t Farthest(const AttentionProblem& p) { return FarthestDistance(p) + p.q_len + p.kv_len; }

template <class Row>
std::vector<int32_t> RowsOfDistances(int64_t reach, const Row& row) {
  std::vector<int32_t> rows;
  for (int64_t d = -reach; d <= reach; ++d) rows.push_back(static_cast<int32_t>(row(d)));
  return rows;
}

bool StreamsNormalize(Normalize normalize) {
  switch (normalize) {
    case Normalize::kSoftmax:
    case Normalize::kSoftmax1:
    case Normalize::kSigmoid:
    case Normalize::kRelu:
    case Normalize::kReluSquared:
    case Normalize::kAverage:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool NeedsRows(const DeviceProblem& call) {
  const AttentionProblem& p = call.problem;
  const AttentionOptions& o = p.options;
  const bool terms = HasRelativeScore(o) || o.relative_values.has_value() ||
                     o.distance_bias.has_value() || o.bucket_bias.has_value() ||
                     o.log_gates.has_value();
  const bool results = p.outputs.weights.has_value() || p.outputs.scores.has_value();
  const bool types = p.k.dtype != p.q.dtype || p.v.dtype != p.q.dtype;
  // Weights without a bound overflow float16.
  const bool unbounded = o.normalize == Normalize::kRelu || o.normalize == Normalize::kReluSquared;
  // Weights times scales of values lie below what float16 resolves: 1e-4 is a scale of values to
  // 0.01.
  const bool scaled = call.v_scales.has_value() && p.q.dtype == DType::kFloat16;
  return scaled || o.score != Score::kDot || !StreamsNormalize(o.normalize) || terms || results ||
         types || std::max(p.head_dim, p.head_dim_v) > kMaxTileDim ||
         (unbounded && p.q.dtype == DType::kFloat16);
}

RowPlan::RowPlan(const DeviceProblem& call, int64_t processors) : shared_(call, 1, 1) {
  const AttentionProblem& p = call.problem;
  params_.num_rows =
      shared_.IsEmpty() && !p.outputs.weights.has_value() && !p.outputs.scores.has_value()
          ? 0
          : p.batch * p.num_heads * p.q_len;
  const int64_t fitting = kMostSlotFloats / std::max<int64_t>(1, p.kv_len);
  params_.num_slots =
      std::min({params_.num_rows, kSlotsPerProcessor * processors, std::max<int64_t>(1, fitting)});
  SetScore(p);
  SetDistances(p);
  SetOutputs(p);
}

void RowPlan::SetScore(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  params_.score = o.score;
  params_.kernel = o.kernel;
  params_.top_k = o.top_k;
  params_.head_dim = static_cast<int32_t>(p.head_dim);
  const int64_t depth = o.score == Score::kAdditive   ? p.hidden_dim
                        : o.score == Score::kBilinear ? p.head_dim_k
                                                      : p.head_dim;
  params_.depth = static_cast<int32_t>(depth);
  params_.score_matrix = TableOf(o.score_matrix);
  params_.query_weight = TableOf(o.query_weight);
  params_.key_weight = TableOf(o.key_weight);
  params_.score_vector = VectorsOf(o.score_vector);
  params_.relative_keys = TableOf(o.relative_keys);
  params_.relative_queries = TableOf(o.relative_queries);
  params_.relative_values = TableOf(o.relative_values);
  params_.content_bias = TableOf(o.content_bias);
  params_.position_bias = TableOf(o.position_bias);
  params_.cope_table = TableOf(o.cope_table);
  width_ = arrays_.Add(std::span<const float>(p.inverse_width));
  head_scale_ = arrays_.Add(std::span<const float>(p.head_scale));
  score_bias_ = arrays_.Add(o.score_bias);
}

void RowPlan::SetDistances(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  params_.distance_bias = VectorsOf(o.distance_bias);
  params_.bucket_bias = TableOf(o.bucket_bias);
  if (o.log_gates.has_value()) {
    params_.log_gates.data = o.log_gates.data;
    std::copy(o.log_gates.strides.begin(), o.log_gates.strides.end(), params_.log_gates.strides);
  }
  if (p.relative_table_rows > 0) {
    const int64_t last = o.relative_rows == RelativeRows::kLogSpan ? o.relative_max_distance
                                                                   : p.relative_table_rows / 2;
    params_.relative_rows.reach = std::min(last, Farthest(p));
    const std::vector<int32_t> rows =
        RowsOfDistances(params_.relative_rows.reach, [&](int64_t distance) {
          return RelativeRow(o.relative_rows, p.relative_table_rows, o.relative_max_distance,
                             distance);
        });
    relative_ = arrays_.Add(std::span<const int32_t>(rows));
  }
  if (o.bucket_bias.has_value()) {
    params_.buckets.reach = std::min(o.bucket_max_distance, Farthest(p));
    const std::vector<int32_t> rows = RowsOfDistances(params_.buckets.reach, [&](int64_t distance) {
      return T5Bucket(distance, o.bucket_direction, o.bucket_bias.shape[2], o.bucket_max_distance);
    });
    buckets_ = arrays_.Add(std::span<const int32_t>(rows));
  }
}

void RowPlan::SetOutputs(const AttentionProblem& p) {
  if (p.outputs.weights.has_value()) params_.weights = PairOutputOf(p.outputs.weights);
  if (p.outputs.scores.has_value()) params_.scores = PairOutputOf(p.outputs.scores);
  params_.score_stage = p.outputs.score_stage;
}

int64_t RowPlan::num_projections() const {
  const AttentionParams base = shared_.Params(nullptr, nullptr, nullptr, nullptr);
  if (params_.key_weight.data == nullptr) return 0;
  return static_cast<int64_t>(base.batch) * base.num_kv_heads * base.kv_len;
}

int64_t RowPlan::scratch_floats() const {
  const AttentionParams base = shared_.Params(nullptr, nullptr, nullptr, nullptr);
  return num_projections() * params_.depth + params_.num_slots * base.kv_len;
}

RowParams RowPlan::Params(const char* shared_arrays, const char* row_arrays, float* scratch,
                          Fault* fault) const {
  RowParams params = params_;
  params.base = shared_.Params(shared_arrays, nullptr, nullptr, fault);
  params.inverse_width = ArrayAt<float>(row_arrays, width_);
  params.head_scale = ArrayAt<float>(row_arrays, head_scale_);
  params.score_bias = ArrayAt<float>(row_arrays, score_bias_);
  params.relative_rows.rows = ArrayAt<int32_t>(row_arrays, relative_);
  params.buckets.rows = ArrayAt<int32_t>(row_arrays, buckets_);
  params.slots = scratch;
  if (params.key_weight.data == nullptr) return params;
  params.slots = scratch + num_projections() * params.depth;
  params.projected_keys = scratch;
  params.key_source = params.base.k;
  const int64_t row = int64_t{4} * params.depth;
  params.base.k = {};
  params.base.k.data = reinterpret_cast<const char*>(scratch);
  params.base.k.width = params.depth;
  params.base.k.strides[2] = row;
  params.base.k.strides[1] = row * params.base.kv_len;
  params.base.k.strides[0] = row * params.base.kv_len * params.base.num_kv_heads;
  return params;
}

}  // namespace heed::cuda
