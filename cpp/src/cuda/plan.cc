#include "src/cuda/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/cuda/decode_plan.h"
#include "src/cuda/fragments.h"
#include "src/cuda/grid.h"
#include "src/cuda/pattern_rows.h"
#include "src/cuda/split_plan.h"

namespace heed::cuda {
namespace {

bool IsMultiple(int64_t value, int64_t of) { return value % of == 0; }

// May every row be read 16 bytes at a time?
bool HasVectors(const StoredTensor& t) {
  const int64_t size = ElementSize(t.dtype);
  bool aligned = IsMultiple(static_cast<int64_t>(reinterpret_cast<uintptr_t>(t.data)), 16) &&
                 IsMultiple(t.shape[3] * size, 16);
  for (int axis = 0; axis < 3; ++axis) {
    aligned = aligned && (t.shape[axis] <= 1 || IsMultiple(t.strides[axis] * size, 16));
  }
  return aligned;
}

DeviceRows ScaledRowsOf(const StoredTensor& t, const TensorView<const float>& scales) {
  DeviceRows rows = RowsOf(t);
  if (!scales.has_value()) return rows;
  rows.scales = scales.data;
  std::copy_n(scales.strides.begin(), 3, rows.scale_strides);
  return rows;
}

DeviceRows PagesOf(const StoredTensor& pages, const TensorView<const float>& scales,
                   const DeviceProblem& call) {
  DeviceRows rows = ScaledRowsOf(pages, scales);
  rows.table = call.table;
  rows.table_width = static_cast<int32_t>(call.table_width);
  rows.page_size = static_cast<int32_t>(pages.shape[2]);
  const uint32_t size = static_cast<uint32_t>(rows.page_size);
  rows.page_shift = std::has_single_bit(size) ? std::countr_zero(size) : -1;
  return rows;
}

template <class T>
DevicePairs<T> PairsOf(const TensorView<const T>& view) {
  DevicePairs<T> pairs{};
  pairs.data = view.data;
  std::copy(view.strides.begin(), view.strides.end(), pairs.strides);
  return pairs;
}

// Tiles of keys of each batch entry, as far as the host knows: by its length, else by kv_len.
std::vector<int64_t> TilesOfEntries(const AttentionProblem& p, int64_t tile_keys) {
  const std::span<const int32_t> lengths = p.options.key_lengths;
  const size_t batch = static_cast<size_t>(p.batch);
  std::vector<int64_t> tiles(batch, CeilDiv(p.kv_len, tile_keys));
  if (lengths.empty()) return tiles;
  const size_t each = lengths.size() / batch;  // 1, or one a query
  for (size_t b = 0; b < batch; ++b) {
    const auto of_entry = lengths.subspan(b * each, each);
    tiles[b] = CeilDiv(*std::max_element(of_entry.begin(), of_entry.end()), tile_keys);
  }
  return tiles;
}

}  // namespace

DeviceRows RowsOf(const StoredTensor& t) {
  const int64_t size = ElementSize(t.dtype);
  DeviceRows rows{};
  rows.data = static_cast<const char*>(t.data);
  rows.dtype = t.dtype;
  for (int axis = 0; axis < 3; ++axis) rows.strides[axis] = t.strides[axis] * size;
  rows.num_pages = static_cast<int32_t>(t.shape[0]);  // without a table, an entry is a page
  rows.width = static_cast<int32_t>(t.shape[3]);
  rows.vectors = size > 1 && HasVectors(t);  // bytes become elements on their way
  return rows;
}

DeviceOutput OutputOf(const StoredOutput& t) {
  const int64_t size = ElementSize(t.dtype);
  DeviceOutput output{};
  output.dtype = t.dtype;
  if (t.size() == 0) return output;
  output.data = static_cast<char*>(t.data);
  for (int axis = 0; axis < 3; ++axis) output.strides[axis] = t.strides[axis] * size;
  return output;
}

bool SeesIntervals(const DeviceProblem& call) {
  const AttentionOptions& o = call.problem.options;
  const bool softmax = o.normalize == Normalize::kSoftmax || o.normalize == Normalize::kSoftmax1;
  const bool patterns = !o.patterns.empty() || call.seen.patterns.ids != nullptr;
  const bool documents = !o.query_documents.empty() || call.arrays.query_documents != nullptr;
  return softmax && !o.bias.has_value() && !o.keep.has_value() && !patterns && !documents &&
         o.dropout.p == 0;
}

KernelShape ShapeOf(const DeviceProblem& call) {
  const AttentionProblem& p = call.problem;
  const int64_t dim = std::max(p.head_dim, p.head_dim_v);
  if (TakesDecoding(call)) {
    return {TileKernel::kDecoding, static_cast<int>(dim), kDecodeTileKeys};
  }
  const bool is_float32 = p.q.dtype == DType::kFloat32;
  const bool by_keys = !is_float32 && dim <= 128 && p.group * p.q_len <= kWarpRows;
  const TileKernel kernel = by_keys ? TileKernel::kByKeys : TileKernel::kByRows;
  const int columns = dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
  return {kernel, columns, TileKeysOf(is_float32, columns)};
}

AttentionPlan::AttentionPlan(const DeviceProblem& call, int64_t processors, int64_t resident)
    : dtype_(call.problem.q.dtype), shape_(ShapeOf(call)), processors_(processors) {
  SetSizes(call);
  SetSplits(call.problem, resident);
  SetRows(call);
  SetSockets(call.problem);
  SetRules(call);
}

void AttentionPlan::SetSizes(const DeviceProblem& call) {
  const AttentionProblem& p = call.problem;
  params_.batch = static_cast<int32_t>(p.batch);
  params_.num_heads = static_cast<int32_t>(p.num_heads);
  params_.num_kv_heads = static_cast<int32_t>(p.num_kv_heads);
  params_.group = static_cast<int32_t>(p.group);
  params_.q_len = static_cast<int32_t>(p.q_len);
  params_.kv_len = static_cast<int32_t>(p.kv_len);
  params_.rows = p.group * p.q_len;
  params_.row_blocks = CeilDiv(params_.rows, kBlockRows);
  const bool asks = p.output.size() > 0 || (p.outputs.lse.has_value() && p.outputs.lse.size() > 0);
  params_.units = asks ? p.batch * p.num_kv_heads : 0;
}

// By the lengths of the entries where the host knows them, else by kv_len.
void AttentionPlan::SetSplits(const AttentionProblem& p, int64_t resident) {
  const std::vector<int64_t> tiles = TilesOfEntries(p, shape_.tile_keys);
  longest_tiles_ = tiles.empty() ? 0 : *std::max_element(tiles.begin(), tiles.end());
  const int64_t blocks = params_.row_blocks * params_.units;
  const int64_t places = processors_ * resident;
  params_.splits = static_cast<int32_t>(NumSplits(blocks, longest_tiles_, places));
  parts_ = params_.units * params_.splits;
  most_splits_ = params_.splits;
  const auto same = [&](int64_t count) { return count == longest_tiles_; };
  if (blocks == 0 || std::all_of(tiles.begin(), tiles.end(), same)) return;
  const std::vector<int32_t> starts =
      SplitStarts(tiles, params_.row_blocks * p.num_kv_heads, places);
  parts_ = starts.back() * p.num_kv_heads;
  most_splits_ = 1;
  for (size_t b = 0; b < tiles.size(); ++b) {
    most_splits_ = std::max<int64_t>(most_splits_, starts[b + 1] - starts[b]);
  }
  params_.splits = 1;
  if (most_splits_ > 1) split_starts_ = arrays_.Add(std::span<const int32_t>(starts));
}

void AttentionPlan::SetRows(const DeviceProblem& call) {
  const AttentionProblem& p = call.problem;
  params_.q = ScaledRowsOf(p.q, call.arrays.q_scales);
  if (call.table != nullptr) {
    params_.k = PagesOf(call.k_pages, call.k_scales, call);
    params_.v = PagesOf(call.v_pages, call.v_scales, call);
  } else {
    params_.k = ScaledRowsOf(p.k, call.arrays.k_scales);
    params_.v = ScaledRowsOf(p.v, call.arrays.v_scales);
  }
  params_.output = OutputOf(p.output);
  if (p.outputs.lse.has_value()) params_.lse = OutputOf(StoredOutput(p.outputs.lse));
}

void AttentionPlan::SetSockets(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  params_.scale = p.scale;
  params_.softcap = static_cast<float>(o.softcap.value_or(0));
  params_.bias = PairsOf(o.bias);
  params_.keep = PairsOf(o.keep);
  params_.normalize = o.normalize;
  params_.sigmoid_bias = p.sigmoid_bias;
  params_.length_power =
      o.normalize == Normalize::kAverage ? 1 : static_cast<float>(o.length_power);
  alibi_ = arrays_.Add(o.alibi_slopes);
  sinks_ = arrays_.Add(o.sinks);
  if (o.dropout.p > 0) {
    params_.dropout.key[0] = static_cast<uint32_t>(o.dropout.seed);
    params_.dropout.key[1] = static_cast<uint32_t>(o.dropout.seed >> 32);
    params_.dropout.threshold = static_cast<uint32_t>(o.dropout.p * 4294967296.0);
    params_.dropout.keep_factor = static_cast<float>(1 / (1 - o.dropout.p));
  }
}

void AttentionPlan::SetRules(const DeviceProblem& call) {
  const AttentionProblem& p = call.problem;
  const AttentionOptions& o = p.options;
  RowRules& rules = params_.rules;
  rules.causal = o.causal;
  rules.window_left = o.window ? o.window->left.value_or(-1) : -1;
  rules.window_right = o.window ? o.window->right.value_or(-1) : -1;
  const auto same = [&](int64_t offset) { return offset == p.position[0]; };
  if (std::all_of(p.position.begin(), p.position.end(), same)) {
    rules.offset = p.position.empty() ? 0 : p.position[0];
  } else {
    offsets_ = arrays_.Add(std::span<const int64_t>(p.position));
  }
  rules.offset_is_end =
      call.arrays.key_lengths != nullptr && o.query_offset.kind() == QueryOffset::Kind::kEnd;
  const bool counted = call.seen.row_lengths != nullptr;
  rules.key_lengths = counted ? call.seen.row_lengths : call.arrays.key_lengths;
  rules.lengths_per_query = counted || o.key_lengths.size() > static_cast<size_t>(p.batch);
  lengths_ = arrays_.Add(o.key_lengths);
  prefixes_ = arrays_.Add(o.prefix_lengths);
  DocumentRule& documents = params_.documents;
  documents.queries = call.arrays.query_documents;
  documents.keys = call.arrays.key_documents;
  query_documents_ = arrays_.Add(o.query_documents);
  key_documents_ = arrays_.Add(o.key_documents);
  const auto stride = [](std::span<const int32_t> ids, int64_t len) {
    return static_cast<int64_t>(ids.size()) > len ? len : 0;
  };
  documents.query_stride = stride(o.query_documents, p.q_len);
  documents.key_stride = stride(o.key_documents, p.kv_len);
  SetPatterns(call);
}

void AttentionPlan::SetPatterns(const DeviceProblem& call) {
  params_.patterns = call.seen.patterns;
  if (params_.patterns.ids != nullptr) return;
  const PatternRows rows = RowsOfPatterns(call.problem);
  params_.patterns.batch_stride = rows.batch_stride;
  params_.patterns.head_stride = rows.head_stride;
  pattern_ids_ = arrays_.Add(std::span<const int32_t>(rows.ids));
  if (pattern_ids_ < 0) return;
  pattern_starts_ = arrays_.Add(std::span<const int64_t>(rows.starts));
  pattern_tiles_ = arrays_.Add(std::span<const int32_t>(rows.tiles));
  pattern_words_ = arrays_.Add(std::span<const uint64_t>(rows.words));
}

bool AttentionPlan::FillsProcessors(int64_t blocks) const {
  return NumSplits(blocks, longest_tiles_, processors_) == 1;
}

int64_t AttentionPlan::SplitValueFloats() const {
  return CeilDiv(parts_ * params_.rows * params_.v.width, 2) * 2;
}

int64_t AttentionPlan::split_floats() const {
  return is_split() ? SplitValueFloats() + parts_ * params_.rows * 2 : 0;
}

int64_t AttentionPlan::num_counters() const {
  const bool merges = MergesInKernel(std::min<int64_t>(params_.rows, kBlockRows), most_splits_);
  return is_split() && merges ? params_.row_blocks * params_.units : 0;
}

AttentionParams AttentionPlan::Params(const char* arrays, float* split, uint32_t* counters,
                                      Fault* fault) const {
  AttentionParams params = params_;
  params.split_starts = ArrayAt<int32_t>(arrays, split_starts_);
  params.counters = counters;
  params.alibi_slopes = ArrayAt<float>(arrays, alibi_);
  params.sinks = ArrayAt<float>(arrays, sinks_);
  params.rules.offsets = ArrayAt<int64_t>(arrays, offsets_);
  if (lengths_ >= 0) params.rules.key_lengths = ArrayAt<int32_t>(arrays, lengths_);
  params.rules.prefix_lengths = ArrayAt<int32_t>(arrays, prefixes_);
  if (query_documents_ >= 0) {
    params.documents.queries = ArrayAt<int32_t>(arrays, query_documents_);
    params.documents.keys = ArrayAt<int32_t>(arrays, key_documents_);
  }
  if (pattern_ids_ >= 0) {
    params.patterns.ids = ArrayAt<int32_t>(arrays, pattern_ids_);
    params.patterns.starts = ArrayAt<int64_t>(arrays, pattern_starts_);
    params.patterns.ends = params.patterns.starts + 1;
    params.patterns.tiles = ArrayAt<int32_t>(arrays, pattern_tiles_);
    params.patterns.words = ArrayAt<uint64_t>(arrays, pattern_words_);
  }
  params.split_values = split;
  if (split != nullptr) {
    params.split_states = reinterpret_cast<RowState*>(split + SplitValueFloats());
  }
  params.fault = fault;
  return params;
}

}  // namespace heed::cuda
