#include "src/cuda/runtime.h"
#include "src/cuda/tensor_map.h"
#include "src/message.h"

namespace heed::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// Asked of the runtime, so that the library does not link the driver.
EncodeTiled FindEncodeTiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  ThrowOnError(error, "asking the driver for cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess) {
    Fail(ErrorCode::kUnsupported, "the CUDA driver has no cuTensorMapEncodeTiled; 12.0 has");
  }
  return reinterpret_cast<EncodeTiled>(function);
}

CUtensorMapDataType TypeOf(DType dtype) {
  if (dtype == DType::kFloat8E4M3) return CU_TENSOR_MAP_DATA_TYPE_UINT8;  // TMA has no float8
  return dtype == DType::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                  : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

}  // namespace

CUtensorMap Encode(const TileMap& map) {
  static const EncodeTiled encode = FindEncodeTiled();
  const CUtensorMapDataType type = TypeOf(map.dtype);
  const cuuint64_t sizes[4] = {map.sizes[0], map.sizes[1], map.sizes[2], map.sizes[3]};
  const cuuint64_t strides[3] = {map.strides[0], map.strides[1], map.strides[2]};
  const cuuint32_t columns = static_cast<cuuint32_t>(kPanelBytes / ElementSize(map.dtype));
  const cuuint32_t box[4] = {columns, map.rows, 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  CUtensorMap encoded;
  const CUresult result =
      encode(&encoded, type, 4, const_cast<char*>(map.data), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    Fail(ErrorCode::kUnsupported, "the CUDA driver refuses a tensor map (CUresult {})",
         {static_cast<int>(result)});
  }
  return encoded;
}

}  // namespace heed::cuda
