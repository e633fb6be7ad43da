#include "tensor_maps.h"

#include <cstdio>
#include <cstring>

namespace heed::interpreter {
namespace {

uint8_t BytesOf(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      return 4;
    default:
      return 0;
  }
}

}  // namespace

CUresult EncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                     const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                     const cuuint32_t* steps, CUtensorMapInterleave interleave,
                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion /*promotion*/,
                     CUtensorMapFloatOOBfill fill) {
  const auto refuse = [](const char* why) {
    std::fprintf(stderr, "PTX interpreter: a tensor map is refused: %s\n", why);
    return CUDA_ERROR_INVALID_VALUE;
  };
  EncodedMap encoded = {};
  encoded.magic = EncodedMap::kMagic;
  encoded.rank = static_cast<uint8_t>(rank);
  encoded.element_bytes = BytesOf(type);
  encoded.swizzle = static_cast<uint8_t>(swizzle);
  encoded.address = reinterpret_cast<uint64_t>(address);
  if (reinterpret_cast<uint64_t>(map) % 64 != 0) return refuse("it is not aligned to 64 bytes");
  if (encoded.element_bytes == 0) return refuse("type");
  if (rank < 1 || rank > 5) return refuse("rank");
  if (encoded.address % 16 != 0) return refuse("the tensor is not aligned to 16 bytes");
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return refuse("interleave");
  if (fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) return refuse("fill");
  for (cuuint32_t n = 0; n < rank; ++n) {
    if (sizes[n] == 0 || sizes[n] > 1ull << 32) return refuse("a size");
    if (box[n] == 0 || box[n] > 256) return refuse("a side of the box");
    if (steps[n] != 1) return refuse("steps other than 1");
    if (sizes[n] > 0xffffffffull)
      return refuse("a size of 2^32, which the interpreter cannot keep");
    encoded.sizes[n] = static_cast<uint32_t>(sizes[n]);
    encoded.box[n] = box[n];
  }
  for (cuuint32_t n = 0; n + 1 < rank; ++n) {
    if (strides[n] % 16 != 0 || strides[n] >= 1ull << 40) return refuse("a stride");
    encoded.strides[n] = strides[n];
  }
  const uint32_t inner = box[0] * encoded.element_bytes;
  if (inner % 16 != 0) return refuse("the box's rows are no multiple of 16 bytes");
  if (swizzle == CU_TENSOR_MAP_SWIZZLE_128B && inner > 128)
    return refuse("rows beyond the swizzle");
  if (swizzle != CU_TENSOR_MAP_SWIZZLE_128B && swizzle != CU_TENSOR_MAP_SWIZZLE_NONE) {
    return refuse("a swizzle that the interpreter does not know");
  }
  std::memset(map, 0, sizeof(*map));
  std::memcpy(map, &encoded, sizeof(encoded));
  return CUDA_SUCCESS;
}

}  // namespace heed::interpreter
