// Mechanisms by name on the device path: random draws of every row that it offers, against the
// float64 reference.
#include <map>
#include <string>
#include <vector>

#include "attention_accuracy.h"
#include "device_request.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/registry.h"
#include "random_request.h"
#include "request_bounds.h"
#include "request_outcome.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kDraws = 12;

bool HasStoredInputs(const Request& request) {
  for (const NamedTensor& input : request.inputs) {
    if (input.tensor.dtype == DType::kFloat16 || input.tensor.dtype == DType::kBFloat16)
      return true;
  }
  return false;
}

class DeviceRequests : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

// What docs/cuda.md says that the device refuses.
bool IsExpected(const std::string& refusal) {
  for (const char* what : {"score_mod", "keep_mod", "prob_mod", "feature_mod", "return_tiles",
                           "return_projection", "weights of efficient attention"}) {
    if (refusal.starts_with(std::string(what) + " ")) return true;
  }
  return false;
}

// Draws that the oracle refuses, and those with what the device lacks, are passed over; some of
// each row are not.
TEST_P(DeviceRequests, MatchTheReference) {
  const Mechanism& row = *FindMechanism(GetParam());
  int compared = 0;
  for (uint64_t seed = 1; seed <= kDraws; ++seed) {
    const DrawnRequest draw = DrawRequest(row, seed < 3 ? Draw::kLeast : Draw::kTidy, seed);
    const Request request = draw.request();
    Values expected, actual;
    if (HasStoredInputs(request)) continue;
    if (Try([&] { expected = RunOracle(request); }).thrown()) continue;
    const Refusal refusal = Try([&] { actual = RunOnDevice(request); });
    if (refusal.code == ErrorCodeName(ErrorCode::kUnsupported)) {
      EXPECT_TRUE(IsExpected(refusal.text)) << row.id << ": " << refusal.text;
      continue;
    }
    ASSERT_FALSE(refusal.thrown()) << refusal.text << "\n" << draw.Describe();
    const auto bounds = BoundsOf(draw, expected);
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, values] : expected) {
      const std::vector<float> floats(actual.at(name).begin(), actual.at(name).end());
      ExpectWithin(floats, values, bounds.at(name), name + " of seed " + std::to_string(seed));
    }
    ASSERT_FALSE(HasFailure()) << draw.Describe();
    ++compared;
  }
  EXPECT_GT(compared, 1);
}

std::vector<std::string_view> OfferedRows() {
  std::vector<std::string_view> ids;
  for (const Mechanism& row : Mechanisms()) {
    ids.push_back(row.id);
  }
  return ids;
}

INSTANTIATE_TEST_SUITE_P(Rows, DeviceRequests, ::testing::ValuesIn(OfferedRows()),
                         [](const auto& info) { return std::string(info.param); });

TEST(DeviceRequestBoundary, RefusesAnUnknownRowByName) {
  const Refusal unknown = Try([&] { cuda::PlanOutputs({"no_such_row", {}, {}}); });
  EXPECT_THAT(unknown.text, HasSubstr("no_such_row"));
}

TEST(DeviceRequestBoundary, ReadsTheListsOfTheHostAndNoOtherTensor) {
  for (const Mechanism& row : Mechanisms()) {
    for (uint64_t seed = 1; seed <= 2 * kDraws; ++seed) {
      const DrawnRequest draw = DrawRequest(row, Draw::kTidy, seed);
      Request request = draw.request();
      if (HasStoredInputs(request) || Try([&] { cuda::PlanOutputs(request); }).thrown()) continue;
      for (NamedTensor& input : request.inputs) {
        if (!cuda::IsHostInput(input.name)) input.tensor.data = reinterpret_cast<void*>(64);
      }
      EXPECT_FALSE(cuda::PlanOutputs(request).empty()) << row.id;
    }
  }
}

TEST(DeviceRequestBoundary, RefusesSixteenBitsOfRowsThatReadFloats) {
  for (const char* id : {"gated", "quest", "transformer_block", "rope"}) {
    const DrawnRequest draw = DrawRequest(*FindMechanism(id), Draw::kLeast, 1);
    Request request = draw.request();
    for (NamedTensor& input : request.inputs) {
      if (input.name == "q" || input.name == "x") input.tensor.dtype = DType::kFloat16;
    }
    const Refusal refusal = Try([&] { cuda::PlanOutputs(request); });
    EXPECT_EQ(refusal.code, ErrorCodeName(ErrorCode::kDType)) << id << ": " << refusal.text;
  }
}

TEST(DeviceRequestBoundary, RefusesAListWithoutDataBeforeItIsRead) {
  for (const auto& [id, list] : {std::pair{"cosine", "temperature"},
                                 {"retention", "head_log_decay"},
                                 {"linformer", "key_lengths"}}) {
    const DrawnRequest draw = DrawRequest(*FindMechanism(id), Draw::kLeast, 1);
    Request request = draw.request();
    std::erase_if(request.inputs, [&](const NamedTensor& input) { return input.name == list; });
    const DType dtype = list == std::string_view("key_lengths") ? DType::kInt32 : DType::kFloat32;
    request.inputs.push_back({list, ContiguousTensor(dtype, nullptr, {{1}})});
    const Refusal refusal = Try([&] { cuda::PlanOutputs(request); });
    EXPECT_EQ(refusal.code, ErrorCodeName(ErrorCode::kOption)) << id;
    EXPECT_THAT(refusal.text, HasSubstr(std::string(list) + " is missing: it has no data")) << id;
  }
}

TEST(DeviceRequestBoundary, PlansNothingThatItWouldNotRun) {
  const auto refusal = [](const char* id, NamedParam param) {
    const DrawnRequest draw = DrawRequest(*FindMechanism(id), Draw::kLeast, 1);
    Request request = draw.request();
    request.params.push_back(std::move(param));
    return Try([&] { cuda::PlanOutputs(request); });
  };
  for (const auto& [id, param] : {std::pair{"flash", NamedParam{"return_tiles", true}},
                                  {"attention", {"score_mod", std::string("score * 2")}}}) {
    const Refusal found = refusal(id, param);
    EXPECT_EQ(found.code, ErrorCodeName(ErrorCode::kUnsupported)) << found.text;
    EXPECT_THAT(found.text, HasSubstr(param.name + " is not offered on the GPU yet"));
  }
}

TEST(DeviceRequestBoundary, SaysWhichOutputIsMissing) {
  const DrawnRequest draw = DrawRequest(*FindMechanism("gated_linear"), Draw::kLeast, 1);
  const Refusal refusal = Try([&] { cuda::Run(draw.request(), {}, nullptr); });
  EXPECT_THAT(refusal.text, HasSubstr("output tensor \"output\" is missing"));
}

}  // namespace
}  // namespace heed::testing
