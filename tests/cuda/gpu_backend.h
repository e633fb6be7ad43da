// Tensors of the tests in device memory.
#ifndef HEED_TESTS_CUDA_GPU_BACKEND_H_
#define HEED_TESTS_CUDA_GPU_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "heed/cuda.h"
#include "heed/recurrent.h"
#include "heed/request.h"
#include "heed/tensor.h"

namespace heed::testing {

// All bytes between the first and the last element of host tensors, copied to the device.
class DeviceCopies {
 public:
  ~DeviceCopies();

  StoredTensor Copy(const StoredTensor& tensor);
  StoredOutput Copy(const StoredOutput& tensor);
  template <class T>
  TensorView<T> Copy(const TensorView<T>& view) {
    if (!view.has_value()) return view;
    void* data = CopySpan(const_cast<std::remove_const_t<T>*>(view.data), view.shape, view.strides,
                          sizeof(T));
    return {static_cast<T*>(data), view.shape, view.strides};
  }
  AnyTensor Copy(const AnyTensor& tensor);
  // nullptr for an empty array.
  const int32_t* Copy(const std::vector<int32_t>& array);

  // Copies everything back: outputs, with the gaps around them.
  void Fetch();

 private:
  struct Span {
    char* host;
    char* device;
    size_t bytes;
  };
  void* CopySpan(void* data, const Extents& shape, const Extents& strides, size_t element_size);
  char* CopyBytes(char* host, size_t bytes);

  std::vector<Span> spans_;
};

// Options whose tensors are such copies.
RecurrentOptions CopiedOptions(const RecurrentOptions& options, DeviceCopies& copies);

// Asks for the Hopper kernels while it lives, unless the environment asks for something already.
class HopperPath {
 public:
  explicit HopperPath(bool asks) : asks_(asks && std::getenv(kName) == nullptr) {
    if (asks_) setenv(kName, "hopper", 1);
  }
  ~HopperPath() {
    if (asks_) unsetenv(kName);
  }

 private:
  static constexpr const char* kName = "HEED_CUDA_PATH";
  const bool asks_;
};

// Waits for the default stream: what Check() says of a bad value; empty when it finds none.
std::string FaultOfKernels();

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_GPU_BACKEND_H_
