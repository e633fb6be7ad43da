// How a request crosses from JavaScript: names in one string, numbers in memory of the instance, so
// that a call costs a handful of crossings instead of one per property.
#ifndef HEED_BINDINGS_WIRE_H_
#define HEED_BINDINGS_WIRE_H_

#include <emscripten/val.h>

#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "heed/error.h"
#include "heed/request.h"

namespace heed::wire {

// Numbers per tensor: dtype, pointer, rank, four extents, four strides. bindings/src/wire.ts writes
// the same order.
inline constexpr size_t kNumbersPerTensor = 11;

// Splits "q k v" at its single spaces.
inline std::vector<std::string> SplitWords(const std::string& words) {
  std::vector<std::string> out;
  size_t begin = 0;
  while (begin < words.size()) {
    size_t end = words.find(' ', begin);
    if (end == std::string::npos) end = words.size();
    out.push_back(words.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

inline AnyTensor ReadTensor(const double* numbers) {
  AnyTensor tensor;
  tensor.dtype = static_cast<DType>(static_cast<int>(numbers[0]));
  tensor.data = reinterpret_cast<void*>(static_cast<uintptr_t>(numbers[1]));
  tensor.rank = static_cast<int>(numbers[2]);
  for (size_t axis = 0; axis < 4; ++axis) {
    tensor.shape[axis] = static_cast<int64_t>(numbers[3 + axis]);
    tensor.strides[axis] = static_cast<int64_t>(numbers[7 + axis]);
  }
  return tensor;
}

// `names` holds one word per tensor; kNumbersPerTensor doubles for each lie at `address`.
inline std::vector<NamedTensor> ReadTensors(const std::string& names, uintptr_t address) {
  const auto* numbers = reinterpret_cast<const double*>(address);
  std::vector<NamedTensor> tensors;
  for (std::string& name : SplitWords(names)) {
    tensors.push_back({std::move(name), ReadTensor(numbers)});
    numbers += kNumbersPerTensor;
  }
  return tensors;
}

inline ParamValue ReadParam(const emscripten::val& value) {
  if (value.isTrue()) return true;
  if (value.isFalse()) return false;
  if (value.isNumber()) return value.as<double>();
  if (value.isString()) return value.as<std::string>();
  return emscripten::convertJSArrayToNumberVector<double>(value);
}

// `values` is a JS array with one boolean, number, string or number array per word of `names`.
inline std::vector<NamedParam> ReadParams(const std::string& names, emscripten::val values) {
  std::vector<NamedParam> params;
  size_t index = 0;
  for (std::string& name : SplitWords(names)) {
    params.push_back({std::move(name), ReadParam(values[index++])});
  }
  return params;
}

// {code, message}: what JavaScript turns into a HeedError.
inline emscripten::val Failure(const char* code, const char* message) {
  emscripten::val failure = emscripten::val::object();
  failure.set("code", std::string(code));
  failure.set("message", std::string(message));
  return failure;
}

// The Failure of the exception that is being handled. What was caught leaves the instance usable,
// so no Failure says "crashed". One function, as there are many that catch.
[[gnu::noinline]] inline emscripten::val CaughtFailure() {
  const char* const no_room = "the WebAssembly memory has no room for the scratch of this call";
  try {
    throw;
  } catch (const Error& error) {
    return Failure(ErrorCodeName(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return Failure("memory", no_room);
  } catch (const std::length_error&) {  // more elements than a vector could ever hold
    return Failure("memory", no_room);
  } catch (const std::exception& error) {
    return Failure("unsupported", error.what());
  }
}

// Returns what `body` returns, or a Failure when it throws. Exceptions must not reach JavaScript:
// there they would be indistinguishable from a trap.
template <typename Body>
emscripten::val Guarded(Body&& body) {
  try {
    return body();
  } catch (const std::exception&) {
    return CaughtFailure();
  }
}

// A JS array of extents.
inline emscripten::val ShapeToJs(int rank, const Extents& shape) {
  emscripten::val out = emscripten::val::array();
  for (int axis = 0; axis < rank; ++axis) {
    out.set(axis, static_cast<double>(shape[static_cast<size_t>(axis)]));
  }
  return out;
}

// A request as it crosses.
inline Request ReadRequest(const std::string& id, const std::string& input_names, uintptr_t inputs,
                           const std::string& param_names, emscripten::val param_values) {
  return {id, ReadTensors(input_names, inputs), ReadParams(param_names, param_values)};
}

// [{name, shape, dtype}].
inline emscripten::val SpecsToJs(const std::vector<OutputSpec>& specs) {
  emscripten::val rows = emscripten::val::array();
  int index = 0;
  for (const OutputSpec& spec : specs) {
    emscripten::val row = emscripten::val::object();
    row.set("name", spec.name);
    row.set("shape", ShapeToJs(spec.rank, spec.shape));
    row.set("dtype", std::string(DTypeName(spec.dtype)));
    rows.set(index++, row);
  }
  return rows;
}

}  // namespace heed::wire

#endif  // HEED_BINDINGS_WIRE_H_
