// What runs the device path in these tests. heed_tests links the emulated thread blocks
// (emulated_backend.cc), heed_cuda_tests a GPU (tests/cuda/gpu_backend.cc); the tests are the same.
#ifndef HEED_TESTS_CUDA_DEVICE_BACKEND_H_
#define HEED_TESTS_CUDA_DEVICE_BACKEND_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/cuda.h"
#include "heed/gradient.h"
#include "heed/low_rank.h"
#include "heed/recurrent.h"

namespace heed::cuda {
struct SeenRules;
}

namespace heed::testing {

// One call of heed::cuda::Attention(), every pointer to host memory. With a table, k and v are
// ignored.
struct DeviceCall {
  StoredTensor q, k, v;
  AttentionOptions options;
  AttentionOutputs outputs;
  std::vector<int32_t> key_lengths;                     // the device array; empty = none
  std::vector<int32_t> query_documents, key_documents;  // likewise
  StoredTensor k_pages, v_pages;
  std::vector<int32_t> table;  // [batch, table_width]; empty = keys are not paged
  int64_t table_width = 0;
  TensorView<const float> k_scales, v_scales;  // of pages of 8 bits, or of float8 k and v
  TensorView<const float> q_scales;            // of a float8 q
  // Multiprocessors of the GPU that is emulated: keys are split only where many are. A real GPU
  // has its own.
  int64_t processors = 1;
  // In which order emulated blocks run: 0 as they are numbered, 1 the other way round, others
  // shuffled. A GPU has its own.
  uint64_t block_order = 0;
  // Leaves the merge of splits to the second kernel; without an effect on a GPU.
  bool merges_apart = false;
  // Fails unless the last blocks of rows merge; without an effect on a GPU.
  bool must_merge = false;
  // Asks for the Hopper kernel; without an effect on a GPU that lacks it.
  bool on_hopper = false;
  // What a step before wrote of the keys that rows see (attention_params.h); emulated alone.
  const cuda::SeenRules* seen = nullptr;
};

// Runs the call. Returns what Check() then says; empty when it finds nothing.
std::string RunOnDevice(const DeviceCall& call);

// One call of heed::cuda::AttentionBackward(), every pointer to host memory.
struct DeviceGradientCall {
  StoredTensor q, k, v, out;
  TensorView<const float> lse;
  StoredTensor d_out;
  AttentionOptions options;
  AttentionGradients gradients;
  std::vector<int32_t> key_lengths;                     // the device array; empty = none
  std::vector<int32_t> query_documents, key_documents;  // likewise
  // Asks for the Hopper kernels; without an effect on a GPU that lacks them.
  bool on_hopper = false;
  // How many of their blocks are emulated. A GPU has its own.
  int64_t hopper_blocks = 2;
};

// Runs the call. Returns what Check() then says; empty when it finds nothing.
std::string RunGradientOnDevice(const DeviceGradientCall& call);

// cuda::RecurrentAttention(), every pointer to host memory.
void RunRecurrentOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const RecurrentOptions& options,
                          const RecurrentOutputs& outputs);
// The same of stored tensors. `processors` as in DeviceCall: how many spans there are; `order` as
// its block_order.
struct EmulatedChunks {
  int64_t processors = 1;
  uint64_t order = 0;
  int64_t prepared_bytes = int64_t{1} << 30;  // of gated chunks: how many segments there are
  // Asks for the kernel for Hopper; without an effect on a GPU that lacks it.
  bool on_hopper = false;
};
void RunStoredRecurrentOnDevice(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                                const RecurrentOptions& options,
                                const cuda::StoredRecurrentOutputs& outputs,
                                const EmulatedChunks& chunks);
// cuda::RecurrentStep().
void RunStepOnDevice(TensorView<const float> q, TensorView<const float> k,
                     TensorView<const float> v, const RecurrentOptions& options,
                     TensorView<float> state, TensorView<float> output);

// Functions of the low-rank family of heed::cuda, every pointer to host memory.
void RunLinformerOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const LinformerOptions& options,
                          const AttentionOutputs& outputs);
void RunEfficientOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const EfficientOptions& options,
                          const AttentionOutputs& outputs);
void RunMemoryCompressedOnDevice(TensorView<const float> q, TensorView<const float> k,
                                 TensorView<const float> v, const MemoryCompressedOptions& options,
                                 const AttentionOutputs& outputs);
void RunNystromOnDevice(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const NystromOptions& options,
                        const NystromOutputs& outputs);

// cuda::Run(), every pointer to host memory.
void RunRequestOnDevice(const Request& request, std::span<const NamedTensor> outputs);

// Why RunOnDevice() cannot run here; empty when it can.
std::string WhyNoDevice();

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_DEVICE_BACKEND_H_
