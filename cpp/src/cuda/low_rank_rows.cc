// The low-rank family by name, on the device.
#include "src/cuda/low_rank_calls.h"
#include "src/cuda/request_rows.h"
#include "src/low_rank/request.h"

namespace heed::cuda {
namespace {

void RunLinformerRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                     ComposedSteps& steps) {
  const LowRankRequest r = ReadLowRank(reader);
  LinformerCall(r.q, r.k, r.v, ReadLinformer(reader, r), FindLowRankOutputs(outputs)).Run(steps);
}

void RunEfficientRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                     ComposedSteps& steps) {
  const LowRankRequest r = ReadLowRank(reader);
  EfficientCall(r.q, r.k, r.v, {r.key_lengths}, FindLowRankOutputs(outputs)).Run(steps);
}

void RunMemoryCompressedRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                            ComposedSteps& steps) {
  const LowRankRequest r = ReadLowRank(reader);
  MemoryCompressedCall(r.q, r.k, r.v, ReadMemoryCompressed(reader, r), FindLowRankOutputs(outputs))
      .Run(steps);
}

void RunNystromRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                   ComposedSteps& steps) {
  const LowRankRequest r = ReadLowRank(reader);
  NystromCall(r.q, r.k, r.v, ReadNystrom(reader, r), FindNystromOutputs(outputs)).Run(steps);
}

constexpr DeviceRow kRows[] = {{"linformer", PlanLinformer, RunLinformerRow},
                               {"efficient", PlanEfficient, RunEfficientRow},
                               {"memory_compressed", PlanMemoryCompressed, RunMemoryCompressedRow},
                               {"nystrom", PlanNystrom, RunNystromRow}};

}  // namespace

std::span<const DeviceRow> LowRankRows() { return kRows; }

}  // namespace heed::cuda
