#include "src/cuda/gated_chunk_plan.h"

#include <algorithm>
#include <iterator>

#include "src/cuda/gated_chunk_kernels.h"
#include "src/cuda/grid.h"

namespace heed::cuda {
namespace {

constexpr int64_t kResident = kResidentGated;
constexpr int64_t kLeastSpan = 4;  // chunks
// With delta a span costs its states and a model before anything is read, more than the reading:
// fewer spans than these would gain nothing.
constexpr int64_t kLeastModels = 4;

bool HasMap(FeatureMap map) {
  return map == FeatureMap::kIdentity || map == FeatureMap::kEluPlusOne ||
         map == FeatureMap::kRelu || map == FeatureMap::kComplement || map == FeatureMap::kUnit;
}

// Do rows consist of aligned pairs of neighbours?
bool HasPairs(const TensorView<const float>& view) {
  const auto is_even = [](int64_t n) { return n % 2 == 0; };
  return view.strides[3] == 1 && is_even(view.shape[3]) &&
         reinterpret_cast<uintptr_t>(view.data) % (2 * sizeof(float)) == 0 &&
         std::all_of(view.strides.begin(), view.strides.begin() + 3, is_even);
}

PreparedChunk PlaceOf(const GatedChunkParams& p, int64_t dim) {
  const int64_t rows = kChunkTokens * dim * 2, matrix = kChunkTokens * kChunkTokens * 2;
  PreparedChunk place{};
  place.write = 0;
  place.decays = rows;
  place.erase = place.decays + dim * 4;
  place.solution = place.erase + (p.delta && !p.erases_apart() ? rows : 0);
  place.reads = place.solution + (p.delta ? matrix : 0);
  place.weights = place.reads + rows;
  place.head = rows + matrix;
  place.bytes = place.reads + p.group * place.head;
  if (p.erases_apart()) place.erase = place.reads;
  return place;
}

}  // namespace

bool TakesGatedChunks(const StoredRecurrentProblem& call) {
  const RecurrentProblem& p = call.problem;
  const bool is_bfloat16 = call.q.dtype == DType::kBFloat16 && call.k.dtype == DType::kBFloat16 &&
                           call.v.dtype == DType::kBFloat16;
  const bool is_product = p.options.causal && HasMap(p.options.feature_map) &&
                          !p.options.normalize && !p.has_levels() && !p.learns();
  const bool fits = p.kv_len >= kLeastChunkedTokens && p.head_dim >= 1 && p.head_dim_v >= 1 &&
                    p.head_dim <= kMaxChunkedFeatures && p.batch * p.num_heads >= 1;
  return is_bfloat16 && is_product && fits && !TakesChunks(call);
}

GatedChunkPlan::GatedChunkPlan(const StoredRecurrentProblem& call, int64_t processors,
                               int64_t max_prepared_bytes)
    : processors_(processors) {
  const RecurrentProblem& p = call.problem;
  const RecurrentOptions& o = p.options;
  params_.q = RowsOf(call.q);
  params_.k = RowsOf(call.k);
  params_.v = RowsOf(call.v);
  params_.output = OutputOf(call.output);
  params_.begin = RowsOf(o.initial_state);
  params_.end = RowsOf(p.outputs.final_state);
  params_.bonus = RowsOf(o.bonus);
  params_.erase_key = RowsOf(o.erase_key);
  params_.erase_rate = RowsOf(o.erase_rate);
  params_.log_decay = NumbersOf(o.log_decay);
  params_.beta = NumbersOf(o.beta);
  params_.num_kv_heads = static_cast<int32_t>(p.num_kv_heads);
  params_.group = static_cast<int32_t>(p.group);
  params_.len = static_cast<int32_t>(p.kv_len);
  params_.features = static_cast<int32_t>(p.head_dim);
  params_.width = static_cast<int32_t>(p.head_dim_v);
  params_.units = static_cast<int32_t>(p.batch * p.num_kv_heads);
  params_.slices = static_cast<int32_t>(CeilDiv(p.head_dim_v, kSliceCols));
  params_.feature_map = o.feature_map;
  params_.scale = p.scale;
  params_.decays_channels = p.decays_channels;
  params_.has_decay_pairs = HasPairs(o.log_decay);
  params_.delta = p.erases();
  params_.model_slices = p.erases() ? static_cast<int32_t>(CeilDiv(p.head_dim, kSliceCols)) : 0;
  params_.place = PlaceOf(params_, features());
  skip_ = arrays_.Add(o.skip);
  lengths_ = arrays_.Add(o.key_lengths);

  chunks_ = CeilDiv(p.kv_len, params_.tokens_of_chunk());
  int64_t most = max_prepared_bytes / (params_.units * params_.place.bytes);
  if (most < chunks_) most /= 2;
  const int64_t fewest = CeilDiv(chunks_, std::clamp<int64_t>(most, 1, chunks_));
  const int64_t chunks = CeilDiv(chunks_, fewest);  // all segments but the last are as long
  segments_ = CeilDiv(chunks_, chunks);
  params_.chunks = static_cast<int32_t>(chunks);
  params_.spans = static_cast<int32_t>(SpansOf(chunks));
}

int64_t GatedChunkPlan::SpansOf(int64_t chunks) const {
  const int64_t slices = params_.slices + params_.model_slices;
  const int64_t wanted = kResident * processors_ / (int64_t{params_.units} * slices);
  const int64_t most = std::max<int64_t>(chunks / kLeastSpan, 1);
  const int64_t spans = CeilDiv(chunks, CeilDiv(chunks, std::clamp<int64_t>(wanted, 1, most)));
  return params_.delta && spans < kLeastModels ? 1 : spans;
}

int64_t GatedChunkPlan::prepared_bytes() const {
  return int64_t{params_.units} * params_.chunks * params_.place.bytes;
}

int64_t GatedChunkPlan::scratch_bytes() const {
  const int64_t model = params_.delta ? int64_t{params_.features} * params_.features : 0;
  const int64_t spans = int64_t{params_.units} * params_.spans * (state_floats() + model);
  const int64_t between = segments_ > 1 ? params_.units * state_floats() : 0;
  return buffers() * prepared_bytes() + (spans + between) * static_cast<int64_t>(sizeof(float));
}

GatedChunkParams GatedChunkPlan::Params(int64_t segment, const char* arrays, char* scratch) const {
  GatedChunkParams params = params_;
  params.skip = ArrayAt<float>(arrays, skip_);
  params.key_lengths = ArrayAt<int32_t>(arrays, lengths_);
  params.first_chunk = static_cast<int32_t>(segment * params_.chunks);
  params.chunks =
      static_cast<int32_t>(std::min<int64_t>(params_.chunks, chunks_ - params.first_chunk));
  params.spans = static_cast<int32_t>(std::min<int64_t>(SpansOf(params.chunks), params_.spans));
  params.span_chunks = static_cast<int32_t>(CeilDiv(params.chunks, params.spans));
  params.spans = static_cast<int32_t>(CeilDiv(params.chunks, params.span_chunks));

  params.prepared = scratch + segment % buffers() * prepared_bytes();
  float* floats = reinterpret_cast<float*>(scratch + buffers() * prepared_bytes());
  const int64_t states = int64_t{params_.units} * params_.spans;
  float* const between = floats;
  if (segments_ > 1) floats += params_.units * state_floats();
  params.states = floats;
  params.models = floats + states * state_floats();
  const FloatRows<float> rows{
      between, {params_.num_kv_heads * state_floats(), state_floats(), params_.width}};
  if (segment > 0) params.begin = {rows.data, {rows.strides[0], rows.strides[1], rows.strides[2]}};
  if (segment + 1 < segments_) params.end = rows;
  // A block reads and writes the same numbers of a state in place, unless others share them.
  const bool in_place = params.begin.data != nullptr && params.begin.data == params.end.data;
  const bool is_shared =
      in_place && !std::equal(std::begin(params.begin.strides), std::end(params.begin.strides),
                              std::begin(params.end.strides));
  params.scans = params.spans > 1 || is_shared;
  return params;
}

int64_t NumTokenBlocks(const GatedChunkParams& p) { return int64_t{p.units} * p.chunks; }
int64_t NumSumBlocks(const GatedChunkParams& p) {
  return int64_t{p.units} * (p.slices + p.model_slices) * (p.spans - 1);
}
int64_t NumScanBlocks(const GatedChunkParams& p) {
  if (!p.scans) return 0;
  if (p.delta) return p.units * CeilDiv(p.width, kScanCols);
  return p.units * CeilDiv(int64_t{p.features} * p.width, kBlockThreads);
}
int64_t NumReadBlocks(const GatedChunkParams& p) { return int64_t{p.units} * p.slices * p.spans; }

}  // namespace heed::cuda
