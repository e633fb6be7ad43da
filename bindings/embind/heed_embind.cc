// The WebAssembly face of heed: the registry, and calls by mechanism id. Arguments were validated
// in TypeScript; C++ validates again, so a mistake there is an error and not a wild pointer.
#include <emscripten/bind.h>
#include <emscripten/val.h>
#include <malloc.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "heed/call.h"
#include "heed/heed.h"
#include "instance.h"
#include "label.h"
#include "results.h"
#include "wire.h"

HEED_LABEL(HEED_WASM_FILE);

namespace {

using emscripten::val;
using heed::wire::InstancePool;
using heed::wire::ReadRequest;
using heed::wire::Results;

// Rows of texts as one string, the names of the columns first. Thousands of crossings, one for each
// cell, would take longer than all the rest of loading.
class Table {
 public:
  Table(std::initializer_list<std::string_view> columns) { Add(columns); }

  void Add(std::initializer_list<std::string_view> cells) {
    for (std::string_view cell : cells) text_.append(cell).push_back(kEndOfCell);
    text_.back() = kEndOfRow;
  }

  // A copy that JavaScript frees, 0 without memory: Embind walks through a string byte by byte.
  uintptr_t Release() const { return reinterpret_cast<uintptr_t>(strdup(text_.c_str())); }

 private:
  // The separators that ASCII has for this; registry_table.ts knows them too.
  static constexpr char kEndOfCell = 0x1f;
  static constexpr char kEndOfRow = 0x1e;
  std::string text_;
};

uintptr_t Mechanisms() {
  Table table = {"id",      "family", "title",  "year", "source",      "summary",
                 "formula", "inputs", "params", "cost", "capabilities"};
  for (const heed::Mechanism& row : heed::Mechanisms()) {
    table.Add({row.id, row.family, row.title, std::to_string(row.year), row.source, row.summary,
               row.formula, row.inputs, row.params, row.cost, row.capabilities});
  }
  return table.Release();
}

uintptr_t Inputs() {
  Table table = {"name", "kind", "shape", "draw", "summary", "readBy"};
  for (const heed::Input& row : heed::Inputs()) {
    table.Add({row.name, row.kind, row.shape, row.draw, row.summary, row.read_by});
  }
  return table.Release();
}

uintptr_t Parameters() {
  Table table = {"name", "type", "default", "range", "symbol", "summary", "readBy"};
  for (const heed::Parameter& row : heed::Parameters()) {
    table.Add(
        {row.name, row.type, row.default_value, row.range, row.symbol, row.summary, row.read_by});
  }
  return table.Release();
}

// The results (results.h), or {code, message}.
val Run(const std::string& id, const std::string& input_names, uintptr_t inputs,
        const std::string& param_names, val param_values, bool heads_last) {
  return heed::wire::Guarded([&] {
    const heed::Request request = ReadRequest(id, input_names, inputs, param_names, param_values);
    const heed::Call call(request);
    Results results(call.outputs(), heads_last);
    call.Run(results.tensors(), InstancePool().get());
    return val(results.Release());
  });
}

// Null when the picture of the keep rules was written, or {code, message}.
val Explain(const std::string& id, const std::string& input_names, uintptr_t inputs,
            const std::string& param_names, val param_values, uintptr_t picture_row) {
  return heed::wire::Guarded([&] {
    const heed::Request request = ReadRequest(id, input_names, inputs, param_names, param_values);
    const heed::AnyTensor picture = heed::wire::ReadTensors("picture", picture_row).front().tensor;
    heed::Explain(request, {static_cast<uint8_t*>(picture.data), picture.shape, picture.strides});
    return val::null();
  });
}

// {bytesRead, bytesWritten} and, where they are known, {flops, scratchBytes}; or {code, message}.
val EstimateCost(const std::string& id, const std::string& input_names, uintptr_t inputs,
                 const std::string& param_names, val param_values, int num_threads) {
  return heed::wire::Guarded([&] {
    const heed::Cost cost = heed::EstimateCost(
        ReadRequest(id, input_names, inputs, param_names, param_values), num_threads);
    val row = val::object();
    row.set("bytesRead", static_cast<double>(cost.bytes_read));
    row.set("bytesWritten", static_cast<double>(cost.bytes_written));
    if (cost.flops) row.set("flops", *cost.flops);
    if (cost.scratch_bytes) row.set("scratchBytes", static_cast<double>(*cost.scratch_bytes));
    return row;
  });
}

// The same for operations (heed/operations.h).
val RunOperation(const std::string& id, const std::string& input_names, uintptr_t inputs,
                 const std::string& param_names, val param_values, bool heads_last) {
  return heed::wire::Guarded([&] {
    const heed::Request request = ReadRequest(id, input_names, inputs, param_names, param_values);
    Results results(heed::PlanOperation(request), heads_last);
    heed::RunOperation(request, results.tensors(), InstancePool().get());
    return val(results.Release());
  });
}

// Null, or {code, message} when the threads could not be started.
val SetThreads(int num_threads) {
  return heed::wire::Guarded([&] {
    InstancePool() = heed::MakeThreadPool(num_threads);
    return val::null();
  });
}

val AlibiSlopes(int num_heads, double max_exponent) {
  val slopes = val::array();
  int index = 0;
  for (float slope : heed::AlibiSlopes(num_heads, max_exponent)) slopes.set(index++, slope);
  return slopes;
}

// The bucket, or {code, message}.
val T5Bucket(double relative, bool causal, double num_buckets, double max_distance) {
  return heed::wire::Guarded([&] {
    const auto direction = causal ? heed::T5Direction::kCausal : heed::T5Direction::kBidirectional;
    return val(static_cast<double>(heed::T5Bucket(static_cast<int64_t>(relative), direction,
                                                  static_cast<int64_t>(num_buckets),
                                                  static_cast<int64_t>(max_distance))));
  });
}

// Bytes handed out by malloc and not yet freed: what the leak tests watch.
double HeapInUse() { return static_cast<double>(static_cast<uint32_t>(mallinfo().uordblks)); }

}  // namespace

EMSCRIPTEN_BINDINGS(heed) {
  emscripten::function("mechanisms", &Mechanisms);
  emscripten::function("inputs", &Inputs);
  emscripten::function("parameters", &Parameters);
  emscripten::function("run", &Run);
  emscripten::function("explain", &Explain);
  emscripten::function("estimateCost", &EstimateCost);
  emscripten::function("runOperation", &RunOperation);
  emscripten::function("setThreads", &SetThreads);
  emscripten::function("alibiSlopes", &AlibiSlopes);
  emscripten::function("t5Bucket", &T5Bucket);
  emscripten::function("heapInUse", &HeapInUse);
}
