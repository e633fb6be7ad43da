// Takes the kernels for Hopper for every call that they can compute while it lives.
#ifndef HEED_NATIVE_BENCH_CUDA_HOPPER_PATH_H_
#define HEED_NATIVE_BENCH_CUDA_HOPPER_PATH_H_

#include <cstdlib>
#include <optional>
#include <string>

namespace heed::bench {

inline constexpr char kPathVariable[] = "HEED_CUDA_PATH";  // docs/cuda.md

class HopperPath {
 public:
  HopperPath() {
    if (const char* path = std::getenv(kPathVariable)) before_ = path;
    setenv(kPathVariable, "hopper", 1);
  }
  ~HopperPath() {
    if (before_.has_value()) {
      setenv(kPathVariable, before_->c_str(), 1);
    } else {
      unsetenv(kPathVariable);
    }
  }
  HopperPath(const HopperPath&) = delete;
  HopperPath& operator=(const HopperPath&) = delete;

 private:
  std::optional<std::string> before_;
};

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_CUDA_HOPPER_PATH_H_
