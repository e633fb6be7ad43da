#include "streams.h"

#include <mutex>
#include <set>
#include <vector>

using Lock = std::lock_guard<std::recursive_mutex>;

struct CUgraph_st {
  std::vector<std::function<void()>> nodes;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> nodes;
};
struct CUstream_st {
  unsigned long long id;
  bool has_priority = false;
  CUgraph_st* captured = nullptr;
  std::vector<std::function<void()>> pending = {};
};

namespace heed::interpreter {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
unsigned long long next_id = 3;
int captures = 0;
int with_priority = 0;  // streams

bool IsNamed(cudaStream_t stream) {
  return stream != nullptr && stream != cudaStreamLegacy && stream != cudaStreamPerThread;
}

std::set<CUstream_st*>& AllStreams() {
  static std::set<CUstream_st*> all;
  return all;
}
CUstream_st& StateOf(cudaStream_t stream) {
  static CUstream_st legacy{1}, of_thread{2};
  if (IsNamed(stream)) return *stream;
  return stream == cudaStreamPerThread ? of_thread : legacy;
}

bool IsLate(cudaStream_t stream) {
  const bool has_priority = StateOf(stream).has_priority;
  return Settings::Get().priority_early ? !has_priority && with_priority > 0 : has_priority;
}

cudaError_t AddStream(cudaStream_t* stream, bool has_priority) {
  const Lock lock(RuntimeMutex());
  *stream = new CUstream_st{next_id++, has_priority};
  AllStreams().insert(*stream);
  with_priority += has_priority;
  return cudaSuccess;
}

}  // namespace

cudaError_t Note(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}
cudaError_t TakeLast() { return std::exchange(last_error, cudaSuccess); }

bool IsCaptured(cudaStream_t stream) { return IsNamed(stream) && stream->captured != nullptr; }
bool AnyIsCaptured() { return captures > 0; }

void DoOn(cudaStream_t stream, std::function<void()> what) {
  if (IsCaptured(stream)) {
    stream->captured->nodes.push_back(std::move(what));
  } else if (IsLate(stream)) {
    StateOf(stream).pending.push_back(std::move(what));
  } else {
    what();
  }
}

void CatchUp(cudaStream_t stream) {
  for (const auto& work : std::exchange(StateOf(stream).pending, {})) work();
}
void CatchUpAll() {
  for (CUstream_st* stream : AllStreams()) CatchUp(stream);
  for (const cudaStream_t unnamed : {cudaStreamLegacy, cudaStreamPerThread}) CatchUp(unnamed);
}

cudaError_t LaunchOn(cudaStream_t stream, Kernel* kernel, dim3 grid, dim3 block, void** arguments,
                     size_t shared) {
  const Lock lock(RuntimeMutex());
  if (!IsNamed(stream) && stream != cudaStreamPerThread && AnyIsCaptured()) {
    return Note(cudaErrorStreamCaptureImplicit);
  }
  LaunchRequest request;
  const cudaError_t error = Device::Get().Prepare(kernel, grid, block, arguments, shared, request);
  if (error != cudaSuccess) return Note(error);
  DoOn(stream, [request = std::move(request)] { Device::Get().Run(request); });
  return cudaSuccess;
}

}  // namespace heed::interpreter

using namespace heed::interpreter;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return AddStream(stream, false);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return AddStream(stream, true);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(RuntimeMutex());
  if (stream->has_priority) {
    CatchUpAll();
    --with_priority;
  }
  CatchUp(stream);
  AllStreams().erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = stream == cudaStreamPerThread ? 2 : IsNamed(stream) ? stream->id : 1;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(RuntimeMutex());
  if (IsCaptured(stream)) return Note(cudaErrorStreamCaptureUnsupported);
  CatchUp(stream);
  return Note(Device::Get().TakeError());
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock(RuntimeMutex());
  if (!IsNamed(stream) && stream != cudaStreamPerThread && AnyIsCaptured()) {
    return Note(cudaErrorStreamCaptureImplicit);
  }
  *status = IsCaptured(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(RuntimeMutex());
  if (!IsNamed(stream)) return Note(cudaErrorStreamCaptureUnsupported);
  stream->captured = new CUgraph_st;
  ++captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(RuntimeMutex());
  if (!IsCaptured(stream)) return Note(cudaErrorIllegalState);
  *graph = std::exchange(stream->captured, nullptr);
  --captures;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;
  *mode = std::exchange(own, *mode);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  const Lock lock(RuntimeMutex());
  for (const auto& node : executable->nodes) node();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

}  // extern "C"
