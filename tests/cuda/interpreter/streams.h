// Streams, which do everything at once, and graphs, which do it when they are launched. A stream
// that was made with a priority does it as late as it may: when others wait for its events, or the
// host for it. With HEED_PTX_STREAMS=early it does it at once, and while there is such a stream all
// others are late.
#ifndef HEED_TESTS_CUDA_INTERPRETER_STREAMS_H_
#define HEED_TESTS_CUDA_INTERPRETER_STREAMS_H_

#include <cuda_runtime_api.h>

#include <functional>

#include "device.h"

namespace heed::interpreter {

cudaError_t LaunchOn(cudaStream_t stream, Kernel* kernel, dim3 grid, dim3 block, void** arguments,
                     size_t shared);

// Does it, or adds it to the graph that the stream is captured for.
void DoOn(cudaStream_t stream, std::function<void()> what);
bool IsCaptured(cudaStream_t stream);
// The stream does what it put off.
void CatchUp(cudaStream_t stream);
void CatchUpAll();
// Whether some stream is: many calls are errors then.
bool AnyIsCaptured();
// Keeps the error for cudaGetLastError().
cudaError_t Note(cudaError_t error);
cudaError_t TakeLast();

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_STREAMS_H_
