// The float64 reference for tensors that are in device memory.
#ifndef HEED_NATIVE_BENCH_CUDA_DEVICE_ORACLE_H_
#define HEED_NATIVE_BENCH_CUDA_DEVICE_ORACLE_H_

#include <cstdint>
#include <vector>

#include "native_bench/cuda/device_problem.h"
#include "native_bench/verify.h"

namespace heed::bench {

// Rows of softmax attention to q, k and v, computed once, compared with every peer.
class DeviceOracle {
 public:
  // The rows of SampledRows(), each by heed::reference::Run on the head that it sees.
  explicit DeviceOracle(const DeviceProblem& problem);

  Verdict Compare(const DeviceProblem& problem) const;

 private:
  struct Row {
    OutputRow at;
    std::vector<double> values;
  };
  std::vector<Row> rows_;
  double bound_ = 0;
};

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_CUDA_DEVICE_ORACLE_H_
