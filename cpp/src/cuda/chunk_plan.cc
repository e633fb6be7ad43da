#include "src/cuda/chunk_plan.h"

#include <algorithm>

#include "src/cuda/grid.h"
#include "src/cuda/recurrent_plan.h"
#include "src/recurrent/results.h"
#include "src/view_checks.h"

namespace heed::cuda {
namespace {

constexpr int kTensors = 4;  // q, k, v and the output
constexpr int kOutput = 3;

// How often a GPU should have blocks for the places that it has for them, at most: blocks behind
// the last full turn would be a turn of their own.
constexpr int64_t kTurns = 2;
// A span of so many chunks writes and reads less of states than of tokens.
constexpr int64_t kLeastSpan = 4;

Extents DenseStrides(const Extents& shape) {
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

// A view for checks of shapes, of a tensor that has another type.
TensorView<const float> ShapeOnly(const StoredTensor& t) {
  return {static_cast<const float*>(t.data), t.shape, DenseStrides(t.shape)};
}

bool IsPointwise(FeatureMap map) {
  return map == FeatureMap::kIdentity || map == FeatureMap::kEluPlusOne || map == FeatureMap::kRelu;
}

ConvertParams Conversion(const StoredTensor& from, const StoredOutput& to) {
  ConvertParams params{};
  params.from = RowsOf(from);
  params.to = OutputOf(to);
  params.heads = static_cast<int32_t>(from.shape[1]);
  params.len = static_cast<int32_t>(from.shape[2]);
  params.numbers = from.size();
  return params;
}

}  // namespace

StoredRecurrentProblem ValidateStoredRecurrentForDevice(const StoredTensor& q,
                                                        const StoredTensor& k,
                                                        const StoredTensor& v,
                                                        const RecurrentOptions& options,
                                                        const StoredRecurrentOutputs& outputs) {
  CheckStored("q", q);
  CheckStored("k", k);
  CheckStored("v", v);
  StoredRecurrentProblem call;
  call.q = q, call.k = k, call.v = v;
  call.output = outputs.output;
  call.problem = ValidateInputsForDevice(ShapeOnly(q), ShapeOnly(k), ShapeOnly(v), options);
  CheckRecurrentResults(call.problem, {SpanOf(q), SpanOf(k), SpanOf(v)}, outputs.output,
                        outputs.final_state);
  call.problem.outputs.final_state = outputs.final_state;
  return call;
}

bool TakesChunks(const StoredRecurrentProblem& call) {
  const RecurrentProblem& p = call.problem;
  const DType dtype = call.q.dtype;
  const bool of_one_type = call.k.dtype == dtype && call.v.dtype == dtype;
  const bool decays_whole = !p.decays_channels || p.feature_dim == 1;
  const bool is_product = p.options.causal && IsPointwise(p.options.feature_map) && decays_whole &&
                          !p.erases() && !p.reads_first() && !p.has_levels() && !p.learns();
  const bool fits = p.kv_len >= kLeastChunkedTokens && p.head_dim >= 1 && p.head_dim_v >= 1 &&
                    p.head_dim <= kMaxChunkedFeatures && p.batch * p.num_heads >= 1;
  return of_one_type && dtype != DType::kFloat32 && is_product && fits;
}

ChunkPlan::ChunkPlan(const StoredRecurrentProblem& call, int64_t processors) {
  const RecurrentProblem& p = call.problem;
  const RecurrentOptions& o = p.options;
  params_.q = RowsOf(call.q);
  params_.k = RowsOf(call.k);
  params_.v = RowsOf(call.v);
  params_.output = OutputOf(call.output);
  params_.initial_state = RowsOf(o.initial_state);
  params_.final_state = RowsOf(p.outputs.final_state);
  params_.log_decay = NumbersOf(o.log_decay);
  params_.beta = NumbersOf(o.beta);
  params_.num_kv_heads = static_cast<int32_t>(p.num_kv_heads);
  params_.group = static_cast<int32_t>(p.group);
  params_.len = static_cast<int32_t>(p.kv_len);
  params_.features = static_cast<int32_t>(p.head_dim);
  params_.width = static_cast<int32_t>(p.head_dim_v);
  params_.cols = static_cast<int32_t>(p.state_cols);
  params_.units = static_cast<int32_t>(p.batch * p.num_kv_heads);
  params_.slices = static_cast<int32_t>(CeilDiv(p.head_dim_v, kSliceCols));
  params_.feature_map = o.feature_map;
  params_.scale = p.scale;
  params_.normalize = o.normalize;
  SetSpans(processors);
  skip_ = arrays_.Add(o.skip);
  lengths_ = arrays_.Add(o.key_lengths);
}

void ChunkPlan::SetSpans(int64_t processors) {
  const int64_t chunks = CeilDiv(params_.len, kChunkTokens);
  const int64_t resident = features() == 64 ? kResidentReads<64> : kResidentReads<128>;
  const int64_t wanted = kTurns * resident * processors / columns();
  const int64_t spans = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(chunks / kLeastSpan, 1));
  const int64_t span_chunks = CeilDiv(chunks, spans);
  params_.chunks = static_cast<int32_t>(chunks);
  params_.span_chunks = static_cast<int32_t>(span_chunks);
  params_.spans = static_cast<int32_t>(CeilDiv(chunks, span_chunks));
}

int64_t ChunkPlan::num_scan_blocks() const {
  return params_.units * CeilDiv(int64_t{params_.features} * params_.cols, kBlockThreads);
}

int64_t ChunkPlan::scratch_floats() const {
  const int64_t states = int64_t{params_.units} * params_.spans;
  return states * (int64_t{params_.features} * params_.cols + 1);
}

ChunkParams ChunkPlan::Params(const char* arrays, float* scratch) const {
  ChunkParams params = params_;
  params.skip = ArrayAt<float>(arrays, skip_);
  params.key_lengths = ArrayAt<int32_t>(arrays, lengths_);
  params.factors = scratch;
  params.states = scratch + int64_t{params_.units} * params_.spans;
  return params;
}

StoredTensor WideCall::TensorAt(int tensor) const {
  if (tensor == 0) return call_.q;
  if (tensor == 1) return call_.k;
  if (tensor == 2) return call_.v;
  const StoredOutput& o = call_.output;
  return {o.data, o.dtype, o.shape, o.strides};
}

TensorView<float> WideCall::CopyOf(int tensor, float* scratch) const {
  for (int before = 0; before < tensor; ++before) {
    const StoredTensor t = TensorAt(before);
    if (t.dtype != DType::kFloat32) scratch += t.size();
  }
  const StoredTensor t = TensorAt(tensor);
  return {scratch, t.shape, DenseStrides(t.shape)};
}

int64_t WideCall::scratch_floats() const {
  int64_t floats = 0;
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    const StoredTensor t = TensorAt(tensor);
    if (t.dtype != DType::kFloat32) floats += t.size();
  }
  return floats;
}

RecurrentProblem WideCall::On(float* scratch) const {
  const auto view = [&](int tensor) -> TensorView<const float> {
    const StoredTensor t = TensorAt(tensor);
    if (t.dtype != DType::kFloat32) return CopyOf(tensor, scratch);
    return {static_cast<const float*>(t.data), t.shape, t.strides};
  };
  RecurrentProblem p = call_.problem;
  p.q = view(0), p.k = view(1), p.v = view(2);
  const StoredOutput& o = call_.output;
  p.outputs.output = {static_cast<float*>(o.data), o.shape, o.strides};
  if (o.dtype != DType::kFloat32) p.outputs.output = CopyOf(kOutput, scratch);
  return p;
}

std::vector<ConvertParams> WideCall::Before(float* scratch) const {
  std::vector<ConvertParams> conversions;
  for (int tensor = 0; tensor < kOutput; ++tensor) {
    const StoredTensor t = TensorAt(tensor);
    if (t.dtype == DType::kFloat32 || t.size() == 0) continue;
    conversions.push_back(Conversion(t, CopyOf(tensor, scratch)));
  }
  return conversions;
}

std::vector<ConvertParams> WideCall::After(float* scratch) const {
  if (call_.output.dtype == DType::kFloat32 || call_.output.size() == 0) return {};
  return {Conversion(StoredTensor(CopyOf(kOutput, scratch)), call_.output)};
}

}  // namespace heed::cuda
