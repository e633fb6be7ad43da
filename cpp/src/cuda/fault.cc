#include "src/cuda/fault.h"

#include "src/message.h"

namespace heed::cuda {

std::string FaultText(const Fault& fault) {
  switch (static_cast<FaultKind>(fault.kind)) {
    case FaultKind::kNone:
      return "";
    case FaultKind::kKeyLength:
      return Join(
          "the device array key_lengths holds {} at [{}]; lengths lie in [0, kv_len]: the nearest "
          "one was taken",
          {fault.value, fault.place});
    case FaultKind::kPage:
      return Join(
          "the page table holds {} at [{}] (counted over all sequences), which is no page: its "
          "tokens were taken as zeros",
          {fault.value, fault.place});
  }
  return "an unknown fault";
}

}  // namespace heed::cuda
