// Events. As work is done at once but for streams with a priority, an event is the moment at which
// it was recorded.
#include <cuda_runtime_api.h>

#include <chrono>
#include <mutex>
#include <optional>

#include "device.h"
#include "streams.h"

using namespace heed::interpreter;
using Lock = std::lock_guard<std::recursive_mutex>;

struct CUevent_st {
  std::optional<std::chrono::steady_clock::time_point> recorded;
  cudaStream_t stream = nullptr;  // that it was recorded on
};

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(RuntimeMutex());
  if (IsCaptured(stream)) return Note(cudaErrorStreamCaptureUnsupported);
  event->recorded = std::chrono::steady_clock::now();
  event->stream = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(RuntimeMutex());
  if (IsCaptured(stream)) return Note(cudaErrorStreamCaptureUnsupported);
  if (!event->recorded.has_value()) return Note(cudaErrorInvalidResourceHandle);
  CatchUp(event->stream);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock(RuntimeMutex());
  if (event->recorded.has_value()) CatchUp(event->stream);
  return Note(Device::Get().TakeError());
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (!from->recorded.has_value() || !to->recorded.has_value()) {
    return Note(cudaErrorInvalidResourceHandle);
  }
  const std::chrono::duration<float, std::milli> passed = *to->recorded - *from->recorded;
  *milliseconds = passed.count();
  return cudaSuccess;
}

}  // extern "C"
