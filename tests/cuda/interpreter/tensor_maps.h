// CUtensorMap of this interpreter: what cuTensorMapEncodeTiled() was told.
#ifndef HEED_TESTS_CUDA_INTERPRETER_TENSOR_MAPS_H_
#define HEED_TESTS_CUDA_INTERPRETER_TENSOR_MAPS_H_

#include <cuda.h>

#include <cstdint>

namespace heed::interpreter {

struct EncodedMap {
  static constexpr uint32_t kMagic = 0x6d617073;
  uint32_t magic;
  uint8_t rank, element_bytes, swizzle, unused;
  uint64_t address;
  uint64_t strides[4];  // bytes, of the dimensions but the innermost
  uint32_t sizes[5];
  uint32_t box[5];
};
static_assert(sizeof(EncodedMap) <= sizeof(CUtensorMap));

// Refuses what the driver's manual says that it does.
CUresult EncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                     const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                     const cuuint32_t* steps, CUtensorMapInterleave interleave,
                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                     CUtensorMapFloatOOBfill fill);

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_TENSOR_MAPS_H_
