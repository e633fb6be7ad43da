// heed-bench --device cuda --verify-only on small problems: every kind of case, every peer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "native_bench/backward.h"
#include "native_bench/device_cases.h"
#include "native_bench/device_run.h"
#include "native_bench/tests/cuda/needs_gpu.h"

namespace heed::bench {
namespace {

class BenchRun : public NeedsGpu {};

const Progress kSilent = [](const std::string&, size_t, size_t) {};

Options Verification(const std::vector<std::string>& mechanisms) {
  Options options;
  options.device = Device::kCuda;
  options.verify_only = true;
  options.peers = {"heed", "heed_hopper"};
  options.grid.mechanisms = mechanisms;
  options.grid.batch = 2;
  options.grid.heads = {{4, 2}};
  options.grid.lengths = {{130, 130}};
  options.grid.head_dims = {64};
  options.grid.masks = {Mask::kCausal};
  options.grid.threads = {1};
  return options;
}

// Names of the cases that a peer got right; all others must have been refused.
std::set<std::string> Verified(const std::vector<Row>& rows, const std::string& peer) {
  std::set<std::string> names;
  for (const Row& row : rows) {
    if (row.peer != peer) continue;
    if (row.status == Status::kRefused) continue;
    EXPECT_EQ(row.status, Status::kVerified) << row.shape.Name() << ": " << row.reason;
    EXPECT_GT(row.verdict.rows, 0) << row.shape.Name();
    names.insert(row.shape.Name());
  }
  return names;
}

std::set<std::string> NamesOf(const std::vector<Case>& cases) {
  std::set<std::string> names;
  for (const Case& c : cases) names.insert(c.Name());
  return names;
}

void ExpectAllVerified(const Options& options) {
  const Report report = RunDeviceBenchmark(options, "test", kSilent);
  std::vector<Case> cases = DeviceCases(options);
  EXPECT_EQ(Verified(report.rows, "heed"), NamesOf(cases));
  if (MajorCapability() != 9) return;
  std::erase_if(cases, [](const Case& c) { return !RefuseHopperCase(c).empty(); });
  EXPECT_EQ(Verified(report.rows, "heed_hopper"), NamesOf(cases));
}

TEST_F(BenchRun, PromptsAreRight) {
  Options options = Verification({"scaled_dot_product"});
  options.grid.masks = {Mask::kFull, Mask::kCausal};
  options.grid.head_dims = {64, 128};
  options.grid.dtypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3};
  ExpectAllVerified(options);
}

TEST_F(BenchRun, SocketsAreRight) {
  const Case prompt = {.mechanism = "",
                       .heads = {4, 2},
                       .lengths = {130, 130},
                       .head_dim = 64,
                       .mask = Mask::kCausal};
  Options options = Verification({"scaled_dot_product"});
  options.grid.shapes.assign(6, prompt);
  options.grid.shapes[0].softcap = 30;
  options.grid.shapes[1].sinks = true;
  options.grid.shapes[2].alibi = true;
  options.grid.shapes[3].key_length = 100;
  options.grid.shapes[4].key_length = 100;
  options.grid.shapes[4].device_lengths = true;
  options.grid.shapes[5].window_left = 40;
  options.grid.dtypes = {DType::kFloat32, DType::kBFloat16};
  ExpectAllVerified(options);
}

TEST_F(BenchRun, DecodingIsRight) {
  Options options = Verification({"scaled_dot_product"});
  options.grid.heads = {{8, 2}};
  options.grid.lengths = {{1, 1100}};
  options.grid.masks = {Mask::kFull};
  options.grid.dtypes = {DType::kBFloat16};
  ExpectAllVerified(options);
}

TEST_F(BenchRun, RecurrencesAreRight) {
  Options options = Verification({"linear", "retention", "lightning", "mamba2", "gated_linear",
                                  "delta_rule", "gated_delta_rule", "kimi_delta", "rwkv7"});
  options.grid.masks = {Mask::kFull, Mask::kCausal};
  options.grid.dtypes = {DType::kFloat32, DType::kBFloat16};
  ExpectAllVerified(options);
}

TEST_F(BenchRun, GradientsAreRight) {
  Options options = Verification({"scaled_dot_product"});
  options.grid.lengths = {{70, 70}};
  options.grid.masks = {Mask::kFull, Mask::kCausal};
  options.grid.dtypes = {DType::kFloat32, DType::kBFloat16};
  const BackwardReport report = MeasureDeviceBackward(options, {}, kSilent);
  std::set<std::string> verified;
  for (const BackwardRow& row : report.rows) {
    if (row.status == Status::kRefused) continue;
    EXPECT_EQ(row.status, Status::kVerified) << row.shape.Name() << ": " << row.reason;
    verified.insert(row.peer + " " + row.shape.Name());
  }
  std::set<std::string> expected;
  for (const Case& c : DeviceCases(options)) {
    expected.insert("heed " + c.Name());
    const bool hopper = MajorCapability() == 9 && RefuseHopperCase(c).empty();
    if (hopper) expected.insert("heed_hopper " + c.Name());
  }
  EXPECT_EQ(verified, expected);
}

}  // namespace
}  // namespace heed::bench
