#include "gpu_backend.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "device_backend.h"
#include "src/cuda/recurrent_launch.h"

namespace heed::testing {
namespace {

void Require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

}  // namespace

RecurrentOptions CopiedOptions(const RecurrentOptions& options, DeviceCopies& copies) {
  RecurrentOptions copied = options;
  for (TensorView<const float>* tensor :
       {&copied.log_decay, &copied.beta, &copied.bonus, &copied.erase_key, &copied.erase_rate,
        &copied.initial_state, &copied.projection, &copied.level_weights}) {
    *tensor = copies.Copy(*tensor);
  }
  return copied;
}

DeviceCopies::~DeviceCopies() {
  for (const Span& span : spans_) cudaFree(span.device);
}

char* DeviceCopies::CopyBytes(char* host, size_t bytes) {
  void* device = nullptr;
  Require(cudaMalloc(&device, bytes));
  Require(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
  spans_.push_back({host, static_cast<char*>(device), bytes});
  return static_cast<char*>(device);
}

void* DeviceCopies::CopySpan(void* data, const Extents& shape, const Extents& strides,
                             size_t element_size) {
  int64_t low = 0, high = 1;
  for (size_t axis = 0; axis < 4; ++axis) {
    if (shape[axis] == 0) return data;  // nothing is read or written
    const int64_t reach = (shape[axis] - 1) * strides[axis];
    (reach < 0 ? low : high) += reach;
  }
  const int64_t size = static_cast<int64_t>(element_size);
  // The copy keeps the alignment of the original to 16 bytes.
  char* first = static_cast<char*>(data) + low * size;
  const int64_t lead = static_cast<int64_t>(reinterpret_cast<uintptr_t>(first) % 16);
  char* device = CopyBytes(first - lead, static_cast<size_t>((high - low) * size + lead));
  return device + lead - low * size;
}

StoredTensor DeviceCopies::Copy(const StoredTensor& t) {
  const size_t size = static_cast<size_t>(ElementSize(t.dtype));
  return {CopySpan(const_cast<void*>(t.data), t.shape, t.strides, size), t.dtype, t.shape,
          t.strides};
}

StoredOutput DeviceCopies::Copy(const StoredOutput& t) {
  const size_t size = static_cast<size_t>(ElementSize(t.dtype));
  return {CopySpan(t.data, t.shape, t.strides, size), t.dtype, t.shape, t.strides};
}

AnyTensor DeviceCopies::Copy(const AnyTensor& t) {
  Extents shape = {1, 1, 1, 1}, strides{};
  std::copy_n(t.shape.begin(), t.rank, shape.begin());
  std::copy_n(t.strides.begin(), t.rank, strides.begin());
  AnyTensor copied = t;
  copied.data = CopySpan(t.data, shape, strides, static_cast<size_t>(ElementSize(t.dtype)));
  return copied;
}

const int32_t* DeviceCopies::Copy(const std::vector<int32_t>& array) {
  if (array.empty()) return nullptr;
  char* bytes = reinterpret_cast<char*>(const_cast<int32_t*>(array.data()));
  return reinterpret_cast<const int32_t*>(CopyBytes(bytes, array.size() * sizeof(int32_t)));
}

void DeviceCopies::Fetch() {
  for (const Span& span : spans_) {
    Require(cudaMemcpy(span.host, span.device, span.bytes, cudaMemcpyDeviceToHost));
  }
}

std::string FaultOfKernels() {
  try {
    cuda::Check(nullptr);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kRange) throw;
    return error.what();
  }
  return "";
}

std::string RunOnDevice(const DeviceCall& call) {
  const HopperPath path(call.on_hopper);
  DeviceCopies copies;
  AttentionOptions options = call.options;
  options.bias = copies.Copy(options.bias);
  options.keep = copies.Copy(options.keep);
  for (TensorView<const float>* tensor :
       {&options.score_matrix, &options.query_weight, &options.key_weight, &options.score_vector,
        &options.relative_keys, &options.relative_queries, &options.relative_values,
        &options.content_bias, &options.position_bias, &options.distance_bias, &options.bucket_bias,
        &options.log_gates, &options.cope_table}) {
    *tensor = copies.Copy(*tensor);
  }
  AttentionOutputs outputs;
  outputs.weights = copies.Copy(call.outputs.weights);
  outputs.scores = copies.Copy(call.outputs.scores);
  outputs.score_stage = call.outputs.score_stage;
  outputs.output = copies.Copy(call.outputs.output);
  outputs.stored_output = copies.Copy(call.outputs.stored_output);
  outputs.lse = copies.Copy(call.outputs.lse);
  cuda::DeviceArrays arrays = {copies.Copy(call.key_lengths), copies.Copy(call.query_documents),
                               copies.Copy(call.key_documents)};
  if (call.table.empty()) {
    arrays.q_scales = copies.Copy(call.q_scales);
    arrays.k_scales = copies.Copy(call.k_scales);
    arrays.v_scales = copies.Copy(call.v_scales);
    cuda::Attention(copies.Copy(call.q), copies.Copy(call.k), copies.Copy(call.v), options, outputs,
                    nullptr, arrays);
  } else {
    const cuda::PagedKeys keys = {copies.Copy(call.k_pages),  copies.Copy(call.v_pages),
                                  copies.Copy(call.table),    call.table_width,
                                  copies.Copy(call.k_scales), copies.Copy(call.v_scales)};
    cuda::Attention(copies.Copy(call.q), keys, options, outputs, nullptr, arrays);
  }
  const std::string fault = FaultOfKernels();
  copies.Fetch();
  return fault;
}

void RunRecurrentOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const RecurrentOptions& options,
                          const RecurrentOutputs& outputs) {
  DeviceCopies copies;
  RecurrentOptions on_device = CopiedOptions(options, copies);
  RecurrentOutputs results = {copies.Copy(outputs.output), copies.Copy(outputs.final_state)};
  // A state in place stays in place.
  const bool in_place = options.initial_state.data == outputs.final_state.data;
  if (in_place && results.final_state.has_value()) on_device.initial_state = results.final_state;
  cuda::RecurrentAttention(copies.Copy(q), copies.Copy(k), copies.Copy(v), on_device, results,
                           nullptr);
  cuda::Check(nullptr);
  copies.Fetch();
}

void RunStoredRecurrentOnDevice(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                                const RecurrentOptions& options,
                                const cuda::StoredRecurrentOutputs& outputs,
                                const EmulatedChunks& chunks) {
  const HopperPath path(chunks.on_hopper);
  DeviceCopies copies;
  RecurrentOptions on_device = CopiedOptions(options, copies);
  const cuda::StoredRecurrentOutputs results = {copies.Copy(outputs.output),
                                                copies.Copy(outputs.final_state)};
  // A state in place stays in place.
  const bool in_place = options.initial_state.data == outputs.final_state.data;
  if (in_place && results.final_state.has_value()) on_device.initial_state = results.final_state;
  const StoredTensor dq = copies.Copy(q), dk = copies.Copy(k), dv = copies.Copy(v);
  const bool wants_segments = chunks.prepared_bytes < cuda::kMaxPreparedBytes;
  if (const auto call = cuda::ValidateStoredRecurrentForDevice(dq, dk, dv, on_device, results);
      wants_segments && cuda::TakesGatedChunks(call)) {
    cuda::LaunchGatedChunks(call, nullptr, chunks.prepared_bytes);
  } else {
    cuda::RecurrentAttention(dq, dk, dv, on_device, results, nullptr);
  }
  cuda::Check(nullptr);
  copies.Fetch();
}

void RunStepOnDevice(TensorView<const float> q, TensorView<const float> k,
                     TensorView<const float> v, const RecurrentOptions& options,
                     TensorView<float> state, TensorView<float> output) {
  DeviceCopies copies;
  cuda::RecurrentStep(copies.Copy(q), copies.Copy(k), copies.Copy(v),
                      CopiedOptions(options, copies), copies.Copy(state), copies.Copy(output),
                      nullptr);
  cuda::Check(nullptr);
  copies.Fetch();
}

std::string WhyNoDevice() {
  const cuda::Availability state = cuda::Available();
  return state.usable ? "" : "no GPU: found " + state.found + "; needed is " + state.needed;
}

}  // namespace heed::testing
