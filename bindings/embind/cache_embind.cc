// Caches and packed sequences for JavaScript. A cache is known by a number, given out once.
// TypeScript (kv_cache.ts, varlen.ts) checked the arguments; C++ checks again.
#include <emscripten/bind.h>
#include <emscripten/val.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heed/heed.h"
#include "instance.h"
#include "wire.h"

namespace {

using emscripten::val;
using heed::AnyTensor;
using heed::NamedTensor;

std::map<int, heed::KvCache>& Caches() {
  static std::map<int, heed::KvCache> caches;
  return caches;
}

int Keep(heed::KvCache cache) {
  static int next = 0;
  Caches().emplace(++next, std::move(cache));
  return next;
}

heed::KvCache& Find(int id) {
  const auto found = Caches().find(id);
  if (found == Caches().end()) {
    throw heed::Error(heed::ErrorCode::kOption, "this cache was disposed of");
  }
  return found->second;
}

template <class Integer>
std::vector<Integer> Integers(const std::vector<double>& numbers) {
  std::vector<Integer> out;
  for (const double x : numbers) out.push_back(static_cast<Integer>(x));
  return out;
}

template <class Integer>
std::vector<Integer> Integers(const val& numbers) {
  return Integers<Integer>(emscripten::convertJSArrayToNumberVector<double>(numbers));
}

// The named tensors and parameters of one call.
struct Call {
  std::vector<NamedTensor> tensors;
  std::vector<heed::NamedParam> params;

  const AnyTensor* Find(std::string_view name) const {
    for (const NamedTensor& tensor : tensors) {
      if (tensor.name == name) return &tensor.tensor;
    }
    return nullptr;
  }
  heed::StoredTensor Stored(std::string_view name) const {
    const AnyTensor* t = Find(name);
    if (t == nullptr) return {};
    return {t->data, t->dtype, t->shape, t->strides};
  }
  heed::TensorView<float> View(std::string_view name) const {
    const AnyTensor* t = Find(name);
    if (t == nullptr) return {};
    return {static_cast<float*>(t->data), t->shape, t->strides};
  }
  template <typename T>
  std::span<const T> Vector(std::string_view name) const {
    const AnyTensor* t = Find(name);
    if (t == nullptr) return {};
    return {static_cast<const T*>(t->data), static_cast<size_t>(t->shape[0])};
  }
  const heed::ParamValue* Param(std::string_view name) const {
    for (const heed::NamedParam& param : params) {
      if (param.name == name) return &param.value;
    }
    return nullptr;
  }
  std::optional<double> Number(std::string_view name) const {
    const heed::ParamValue* value = Param(name);
    if (value == nullptr || !std::holds_alternative<double>(*value)) return std::nullopt;
    return std::get<double>(*value);
  }
  template <class Integer>
  std::vector<Integer> Whole(std::string_view name) const {
    const heed::ParamValue* value = Param(name);
    if (value == nullptr || !std::holds_alternative<std::vector<double>>(*value)) return {};
    return Integers<Integer>(std::get<std::vector<double>>(*value));
  }
  heed::AttentionOutputs Outputs() const {
    const heed::StoredTensor output = Stored("output");
    heed::AttentionOutputs outputs;
    outputs.stored_output = {const_cast<void*>(output.data), output.dtype, output.shape,
                             output.strides};
    outputs.lse = View("lse");
    return outputs;
  }
};

Call ReadCall(const std::string& names, uintptr_t table, const std::string& param_names,
              val param_values) {
  return {heed::wire::ReadTensors(names, table), heed::wire::ReadParams(param_names, param_values)};
}

// batch, num_kv_heads, head_dim, head_dim_v, capacity, block_size, dtype, recent_tokens,
// sink_tokens, heavy_tokens, page_size.
val CacheNew(val numbers) {
  return heed::wire::Guarded([&] {
    const std::vector<int64_t> n = Integers<int64_t>(numbers);
    heed::KvCacheOptions options;
    options.batch = n.at(0);
    options.num_kv_heads = n.at(1);
    options.head_dim = n.at(2);
    options.head_dim_v = n.at(3);
    options.capacity = n.at(4);
    options.block_size = n.at(5);
    options.dtype = static_cast<heed::DType>(n.at(6));
    options.recent_tokens = n.at(7);
    options.sink_tokens = n.at(8);
    options.heavy_tokens = n.at(9);
    options.page_size = n.at(10);
    return val(Keep(heed::KvCache(options)));
  });
}

val CacheAppend(int id, const std::string& names, uintptr_t table, val lengths) {
  return heed::wire::Guarded([&] {
    const Call call = {heed::wire::ReadTensors(names, table), {}};
    Find(id).Append(call.Stored("k"), call.Stored("v"), Integers<int32_t>(lengths));
    return val::null();
  });
}

val CacheRewind(int id, double sequence, double length) {
  return heed::wire::Guarded([&] {
    Find(id).Rewind(static_cast<int64_t>(sequence), static_cast<int64_t>(length));
    return val::null();
  });
}

// The tokens that a KV head holds.
val CacheTokens(int id, double sequence, double head) {
  return heed::wire::Guarded([&] {
    const auto held = Find(id).tokens(static_cast<int64_t>(sequence), static_cast<int64_t>(head));
    return val::array(std::vector<double>(held.begin(), held.end()));
  });
}

val CacheFork(int id, val sequences) {
  return heed::wire::Guarded(
      [&] { return val(Keep(Find(id).Fork(Integers<int64_t>(sequences)))); });
}

val CacheAttend(int id, const std::string& names, uintptr_t table, const std::string& param_names,
                val param_values) {
  return heed::wire::Guarded([&] {
    const Call call = ReadCall(names, table, param_names, param_values);
    const std::vector<int32_t> query_lengths = call.Whole<int32_t>("query_lengths");
    heed::DecodeOptions options;
    options.scale = call.Number("scale");
    options.softcap = call.Number("softcap");
    options.sinks = call.Vector<float>("sinks");
    options.alibi_slopes = call.Vector<float>("alibi_slopes");
    options.query_lengths = query_lengths;
    if (const auto pages = call.Number("top_pages"))
      options.top_pages = static_cast<int64_t>(*pages);
    heed::Decode(call.Stored("q"), Find(id), options, call.Outputs(),
                 heed::wire::InstancePool().get());
    return val::null();
  });
}

// {lengths, bytes, sharedBytes, blocks, blockSize}.
val CacheInfo(int id) {
  return heed::wire::Guarded([&] {
    const heed::KvCache& cache = Find(id);
    const heed::KvCacheMemory memory = cache.memory();
    val lengths = val::array();
    for (int64_t b = 0; b < cache.options().batch; ++b) {
      lengths.set(static_cast<int>(b), static_cast<double>(cache.length(b)));
    }
    val info = val::object();
    info.set("lengths", lengths);
    info.set("bytes", static_cast<double>(memory.bytes));
    info.set("sharedBytes", static_cast<double>(memory.shared_bytes));
    info.set("blocks", static_cast<double>(memory.blocks));
    info.set("blockSize", static_cast<double>(cache.options().block_size));
    return info;
  });
}

void CacheFree(int id) { Caches().erase(id); }

heed::QueryOffset ReadOffset(const Call& call) {
  const heed::ParamValue* value = call.Param("query_offset");
  if (value == nullptr) return {};
  if (const auto number = call.Number("query_offset")) {
    return heed::QueryOffset::At(static_cast<int64_t>(*number));
  }
  if (std::holds_alternative<std::string>(*value)) return heed::QueryOffset::End();
  return heed::QueryOffset::PerBatch(call.Whole<int64_t>("query_offset"));
}

val AttentionVarlen(const std::string& names, uintptr_t table, const std::string& param_names,
                    val param_values) {
  return heed::wire::Guarded([&] {
    const Call call = ReadCall(names, table, param_names, param_values);
    heed::AttentionOptions options;
    options.scale = call.Number("scale");
    options.softcap = call.Number("softcap");
    options.sinks = call.Vector<float>("sinks");
    options.alibi_slopes = call.Vector<float>("alibi_slopes");
    const heed::ParamValue* causal = call.Param("causal");
    options.causal = causal != nullptr && std::get<bool>(*causal);
    const auto left = call.Number("window_left");
    const auto right = call.Number("window_right");
    if (left || right) options.window.emplace();
    if (left) options.window->left = static_cast<int64_t>(*left);
    if (right) options.window->right = static_cast<int64_t>(*right);
    options.query_offset = ReadOffset(call);
    heed::AttentionVarlen(call.Stored("q"), call.Stored("k"), call.Stored("v"),
                          call.Vector<int32_t>("cu_seqlens_q"),
                          call.Vector<int32_t>("cu_seqlens_k"), options, call.Outputs(),
                          heed::wire::InstancePool().get());
    return val::null();
  });
}

}  // namespace

EMSCRIPTEN_BINDINGS(heed_cache) {
  emscripten::function("cacheNew", &CacheNew);
  emscripten::function("cacheAppend", &CacheAppend);
  emscripten::function("cacheRewind", &CacheRewind);
  emscripten::function("cacheTokens", &CacheTokens);
  emscripten::function("cacheFork", &CacheFork);
  emscripten::function("cacheAttend", &CacheAttend);
  emscripten::function("cacheInfo", &CacheInfo);
  emscripten::function("cacheFree", &CacheFree);
  emscripten::function("attentionVarlen", &AttentionVarlen);
}
