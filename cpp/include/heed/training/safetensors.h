// Weights in files: the safetensors format, read strictly and written the way its authors do.
#ifndef HEED_TRAINING_SAFETENSORS_H_
#define HEED_TRAINING_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/dtype.h"
#include "heed/training/parameter.h"

namespace heed::training {

// Limits of what is read: beyond them a file is refused before anything is allocated for it.
inline constexpr uint64_t kMaxSafetensorsHeader = 25'000'000;  // bytes
inline constexpr size_t kMaxSafetensorsEntries = 100'000;
inline constexpr size_t kMaxSafetensorsName = 4096;  // bytes
inline constexpr size_t kMaxSafetensorsRank = 8;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;           // "F32", "BF16", ...; one that the format knows
  std::vector<int64_t> shape;  // extents >= 0
  std::span<const uint8_t> bytes;
};

// A file in memory: the names, types, shapes and places of its tensors. Refers to the bytes, which
// must outlive it.
//
//   8 bytes: length n of the header, little endian; n bytes: a JSON object; then the tensors
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
//    "__metadata__": {"key": "text"}}
//
// Strict: the grammar above and nothing else (no other keys, no other types, no nesting), UTF-8,
// every name once, and the tensors fill the rest of the file without gap or overlap, in any order.
class SafetensorsFile {
 public:
  // Throws Error(kOption) for what is no such file (the message says where), Error(kDType) for an
  // unknown type, Error(kShape) for a shape that does not match its bytes, Error(kRange) for
  // offsets and sizes, Error(kMemory). O(bytes of the header) time and memory.
  explicit SafetensorsFile(std::span<const uint8_t> bytes);

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // nullptr where there is none.
  const SafetensorsEntry* Find(std::string_view name) const;

 private:
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// The elements as floats: F64 rounded once, F32, F16 and BF16 exactly; unaligned bytes are fine.
// Throws Error(kDType) for other types, Error(kShape) unless `to` has as many elements.
void ReadFloats(const SafetensorsEntry& entry, std::span<float> to);

// Writes all parameters in their order, data aligned to 8 bytes. `dtype` is how elements are
// stored: float32, float16 or bfloat16, rounded once. Throws Error(kDType | kMemory), and
// Error(kRange), naming the tensor, for a finite element that would become infinite: in float16
// those from 65520 on, in bfloat16 those above 3.39e38.
std::vector<uint8_t> SaveSafetensors(const ParameterSet& parameters,
                                     const std::map<std::string, std::string>& metadata = {},
                                     DType dtype = DType::kFloat32);

// Reads all parameters: the file must have exactly these names and shapes. Throws Error(kOption)
// for a missing or an additional name, Error(kShape), Error(kDType), naming the tensor, and
// Error(kMemory); nothing is written then.
void LoadParameters(const SafetensorsFile& file, ParameterSet& parameters);

}  // namespace heed::training

#endif  // HEED_TRAINING_SAFETENSORS_H_
