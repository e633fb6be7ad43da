// Rows of the registry that the device composes of several kernels: what each plans and runs. No
// CUDA here.
#ifndef HEED_SRC_CUDA_REQUEST_ROWS_H_
#define HEED_SRC_CUDA_REQUEST_ROWS_H_

#include <span>
#include <string_view>
#include <vector>

#include "heed/request.h"
#include "src/cuda/composed_steps.h"
#include "src/exact/request.h"
#include "src/request_reader.h"

namespace heed::cuda {

// A result that may be exactly an input: same memory, same strides.
struct InPlace {
  std::string_view result, input;
};

struct DeviceRow {
  std::string_view id;
  // Neither reads tensors of the device. `run` runs through its steps also where they are only
  // checked, with outputs that do not exist.
  std::vector<OutputSpec> (*plan)(const RequestReader& reader);
  void (*run)(const RequestReader& reader, std::span<const NamedTensor> outputs,
              ComposedSteps& steps);
  InPlace in_place = {};
};

std::span<const DeviceRow> LowRankRows();
std::span<const DeviceRow> ComposedRows();
std::span<const DeviceRow> KeylessRows();
std::span<const DeviceRow> WeightedRows();
std::span<const DeviceRow> ChoiceRows();
std::span<const DeviceRow> NativeSparseRows();
std::span<const DeviceRow> RoutingRows();
std::span<const DeviceRow> SortingRows();
std::span<const DeviceRow> LayerRows();
std::span<const DeviceRow> LatentRows();
std::span<const DeviceRow> PositionRows();

// As PlanAttention(), without a look at what tensors hold.
std::vector<OutputSpec> PlanOnDevice(const AttentionRequest& request);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_REQUEST_ROWS_H_
