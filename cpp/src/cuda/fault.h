// What a kernel found wrong in memory that only the device can read.
#ifndef HEED_SRC_CUDA_FAULT_H_
#define HEED_SRC_CUDA_FAULT_H_

#include <cstdint>
#include <string>

namespace heed::cuda {

enum class FaultKind : int { kNone = 0, kKeyLength = 1, kPage = 2 };

struct Fault {
  int kind = 0;       // FaultKind
  int64_t place = 0;  // index in the array
  int64_t value = 0;  // what stood there
};

// "device array key_lengths holds 70 at [3]; ...". Empty where there is none.
std::string FaultText(const Fault& fault);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_FAULT_H_
