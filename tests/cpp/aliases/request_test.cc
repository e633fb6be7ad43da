// Results and gradients of requests over what they are made of: every row of the registry, with
// the inputs that random requests have.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "every_row.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "random_request.h"
#include "request_outcome.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kAligned = 64;

size_t BytesOf(const AnyTensor& tensor) {
  int64_t bytes = ElementSize(tensor.dtype);
  for (int axis = 0; axis < tensor.rank; ++axis) bytes *= tensor.shape[static_cast<size_t>(axis)];
  return static_cast<size_t>(bytes);
}

// Tensors without gaps, of ones.
class Made {
 public:
  Made() = default;
  explicit Made(const std::vector<OutputSpec>& specs) {
    for (const OutputSpec& spec : specs) {
      const auto shape = std::span(spec.shape).first(static_cast<size_t>(spec.rank));
      AnyTensor tensor = ContiguousTensor(spec.dtype, nullptr, shape);
      memory_.emplace_back(BytesOf(tensor) / sizeof(float) + 1, 1.0f);
      tensor.data = memory_.back().data();
      tensors.push_back({spec.name, tensor});
    }
  }

  std::vector<NamedTensor> tensors;

 private:
  std::vector<std::vector<float>> memory_;
};

// Moves both to new memory, where the last element of `result` lies over the first one of `read`.
class Overlap {
 public:
  Overlap(AnyTensor& result, AnyTensor& read, const void* begin, size_t read_bytes) {
    const size_t size = BytesOf(result);
    const size_t start = (size + kAligned) / kAligned * kAligned;
    memory_.resize(start + read_bytes + kAligned);
    std::memcpy(memory_.data() + start, begin, read_bytes);
    const auto first =
        static_cast<const std::byte*>(read.data) - static_cast<const std::byte*>(begin);
    std::byte* const meet = memory_.data() + start + first;
    read.data = meet;
    result.data = meet + ElementSize(result.dtype) - size;
  }

 private:
  std::vector<std::byte> memory_;
};

class RequestAliases : public ::testing::TestWithParam<std::string_view> {
 protected:
  // Calls visit(draw) for requests that are accepted, of different inputs.
  template <class Visit>
  void ForEachRequest(const Visit& visit) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      DrawnRequest draw = DrawRequest(*FindMechanism(GetParam()), Draw::kTidy, seed);
      SCOPED_TRACE(draw.Describe());
      if (!Try([&] { PlanOutputs(draw.request()); }).thrown()) visit(draw);
    }
  }

  template <class Call>
  void ExpectRefused(const std::string& what, const Call& call) {
    const Refusal refusal = Try(call);
    EXPECT_EQ(refusal.code, "shape") << what;
    EXPECT_THAT(refusal.text, HasSubstr("overlaps")) << what;
    ++tried_;
  }

  int tried_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Registry, RequestAliases, ::testing::ValuesIn(AllRows()), RowName);

TEST_P(RequestAliases, ResultsOverInputsAreRefused) {
  ForEachRequest([&](const DrawnRequest& draw) {
    const std::vector<OutputSpec> specs = PlanOutputs(draw.request());
    for (size_t n = 0; n < specs.size(); ++n) {
      for (const auto& [name, drawn] : draw.inputs) {
        Request request = draw.request();
        Made results(specs);
        AnyTensor& result = results.tensors[n].tensor;
        for (NamedTensor& input : request.inputs) {
          if (input.name != name || BytesOf(input.tensor) * BytesOf(result) == 0) continue;
          const Overlap overlap(result, input.tensor, drawn.memory.data(), drawn.memory.size());
          ExpectRefused(specs[n].name + " over " + name,
                        [&] { heed::Run(request, results.tensors); });
        }
      }
    }
  });
  EXPECT_GT(tried_, 0);
}

TEST_P(RequestAliases, GradientsOverWhatIsReadAreRefused) {
  bool has_gradient = false;
  ForEachRequest([&](const DrawnRequest& draw) {
    BackwardPlan plan;
    if (Try([&] { plan = PlanBackward(draw.request()); }).thrown()) return;
    has_gradient = true;
    const auto expect = [&](size_t n, const std::string& kind, const std::string& name) {
      Request request = draw.request();
      Made results(plan.results), d_results(plan.results), gradients(plan.gradients);
      AnyTensor& gradient = gradients.tensors[n].tensor;
      auto& tensors = kind == "input"    ? request.inputs
                      : kind == "result" ? results.tensors
                                         : d_results.tensors;
      for (NamedTensor& read : tensors) {
        const size_t bytes = BytesOf(read.tensor);
        if (read.name != name || bytes * BytesOf(gradient) == 0) continue;
        const bool is_input = kind == "input";
        const void* begin = is_input ? draw.inputs.at(name).memory.data() : read.tensor.data;
        const size_t size = is_input ? draw.inputs.at(name).memory.size() : bytes;
        const Overlap overlap(gradient, read.tensor, begin, size);
        ExpectRefused(
            "gradient of " + gradients.tensors[n].name + " over " + kind + " " + name,
            [&] { RunBackward(request, results.tensors, d_results.tensors, gradients.tensors); });
      }
    };
    for (size_t n = 0; n < plan.gradients.size(); ++n) {
      for (const auto& [name, drawn] : draw.inputs) expect(n, "input", name);
      for (const OutputSpec& result : plan.results) {
        expect(n, "result", result.name);
        expect(n, "arriving", result.name);
      }
    }
  });
  EXPECT_EQ(tried_ > 0, has_gradient);
}

}  // namespace
}  // namespace heed::testing
