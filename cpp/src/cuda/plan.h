// The plan of a call on the device, made on the host: what is refused, which kernel runs, how keys
// are split, and the kernel's parameters. No CUDA here, so that all of it is tested everywhere.
#ifndef HEED_SRC_CUDA_PLAN_H_
#define HEED_SRC_CUDA_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heed/cuda.h"
#include "src/cuda/attention_params.h"
#include "src/exact/problem.h"

namespace heed::cuda {

// A checked call.
struct DeviceProblem {
  AttentionProblem problem;
  DeviceArrays arrays;
  SeenRules seen;
  const int32_t* table = nullptr;  // paged keys, else nullptr
  int64_t table_width = 0;
  StoredTensor k_pages, v_pages;
  TensorView<const float> k_scales, v_scales;
};

// Do the device arrays fit the options? Throws Error.
void CheckArrays(const AttentionOptions& options, const DeviceArrays& arrays);

// Do the scales of float8 tensors fit them? Throws Error.
void CheckScales(const AttentionProblem& p, const DeviceArrays& arrays);

// Refuses options that the device path lacks, then validates everything but what the numbers of
// tensors are: they lie on the device. Throws Error.
AttentionProblem ValidateInputsForDevice(const StoredTensor& q, const StoredTensor& k,
                                         const StoredTensor& v, const AttentionOptions& options,
                                         bool wants_lse);

// The same, and the results, as Attention() does.
DeviceProblem ValidateForDevice(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                                const AttentionOptions& options, const AttentionOutputs& outputs,
                                const DeviceArrays& arrays);
DeviceProblem ValidateForDevice(const StoredTensor& q, const PagedKeys& keys,
                                const AttentionOptions& options, const AttentionOutputs& outputs,
                                const DeviceArrays& arrays);

// Softmax or softmax1, of keys that lengths, causal, windows and prefixes alone hide: without bias,
// keep rules, patterns, documents and dropout. Kernels for such calls look at no pair by itself.
bool SeesIntervals(const DeviceProblem& call);

// attention_kernel.h, whose warps have rows or keys of a tile each (MmaProducts), or
// decode_kernel.h.
enum class TileKernel { kByRows, kByKeys, kDecoding };

// The kernel, and its template arguments: 64, 128 or 256 columns, and keys of a tile.
struct KernelShape {
  TileKernel kernel;
  int dim;
  int tile_keys;
};
KernelShape ShapeOf(const DeviceProblem& call);

// Keys of a tile of attention_kernel.h. With 64 float32, and all types on 256 columns, spilled
// registers (nvcc 13.0). With 32, two blocks of float32 on 256 columns did not fit into the shared
// memory of a multiprocessor.
constexpr int TileKeysOf(bool is_float32, int dim) {
  return (is_float32 ? 32 : 64) / (dim == 256 ? 2 : 1);
}

// Tensors as kernels see them.
DeviceRows RowsOf(const StoredTensor& tensor);
DeviceOutput OutputOf(const StoredOutput& tensor);

// Columns of q, k and v that the tile kernel has room for.
inline constexpr int64_t kMaxTileDim = 256;

// Host arrays of a call, one after the other, each aligned to 8 bytes.
class HostArrays {
 public:
  // Where the array begins; -1 when it is empty.
  template <class T>
  int64_t Add(std::span<const T> values) {
    if (values.empty()) return -1;
    const int64_t at = static_cast<int64_t>(bytes_.size());
    const char* begin = reinterpret_cast<const char*>(values.data());
    bytes_.insert(bytes_.end(), begin, begin + values.size_bytes());
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
    return at;
  }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  std::vector<char> bytes_;
};

// The array that begins at `offset`; nullptr for -1.
template <class T>
const T* ArrayAt(const char* arrays, int64_t offset) {
  return offset < 0 ? nullptr : reinterpret_cast<const T*>(arrays + offset);
}

class AttentionPlan {
 public:
  // For a GPU of so many multiprocessors, each of which runs `resident` blocks at a time.
  AttentionPlan(const DeviceProblem& call, int64_t processors, int64_t resident);

  DType dtype() const { return dtype_; }
  KernelShape shape() const { return shape_; }
  int64_t num_blocks() const { return params_.row_blocks * parts_; }
  bool is_split() const { return most_splits_ > 1; }
  // Blocks of the second kernel, one a row, which merges splits where counters are not given.
  int64_t num_merges() const { return is_split() ? params_.units * params_.rows : 0; }
  // Would so many blocks that keep a multiprocessor each gain nothing from splitting the keys?
  bool FillsProcessors(int64_t blocks) const;
  bool IsEmpty() const { return num_blocks() == 0; }

  // What the device needs besides the tensors.
  const std::vector<char>& host_arrays() const { return arrays_.bytes(); }
  int64_t split_floats() const;
  // Counters by which the attention kernel merges splits itself; 0 where the second kernel should.
  int64_t num_counters() const;

  // The parameters, given where copies of host_arrays(), split_floats() floats and num_counters()
  // counters lie. Counters are 0 before and after the call; nullptr leaves the merge to the second
  // kernel.
  AttentionParams Params(const char* arrays, float* split, uint32_t* counters, Fault* fault) const;

 private:
  void SetSizes(const DeviceProblem& call);
  void SetSplits(const AttentionProblem& p, int64_t resident);
  void SetRows(const DeviceProblem& call);
  void SetSockets(const AttentionProblem& p);
  void SetRules(const DeviceProblem& call);
  void SetPatterns(const DeviceProblem& call);
  // Of split_floats(), those in front of the states of rows, which have two each.
  int64_t SplitValueFloats() const;

  DType dtype_;
  KernelShape shape_;
  AttentionParams params_{};
  HostArrays arrays_;
  int64_t parts_ = 0;  // of all units
  int64_t most_splits_ = 1;
  int64_t longest_tiles_ = 0;  // of an entry, as far as the host knows
  int64_t processors_;
  // Offsets in arrays_; -1: absent.
  int64_t alibi_ = -1, sinks_ = -1, offsets_ = -1, lengths_ = -1, prefixes_ = -1;
  int64_t query_documents_ = -1, key_documents_ = -1;
  int64_t split_starts_ = -1;
  int64_t pattern_ids_ = -1, pattern_starts_ = -1, pattern_tiles_ = -1, pattern_words_ = -1;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_PLAN_H_
