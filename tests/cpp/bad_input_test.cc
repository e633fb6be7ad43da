// Every row of the registry refuses what cannot be right, as the oracle does: with the same code
// and a text that names the argument; and works as before afterwards.
#include <algorithm>
#include <cmath>
#include <limits>

#include "every_row.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/reference.h"
#include "random_request.h"
#include "request_outcome.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whether a shape of this rank stands in the table.
bool HasRank(const std::string& name, size_t rank) {
  for (const std::string& shape : WordsOf(InputRow(name).shape, '|')) {
    if (WordsOf(shape).size() == rank) return true;
  }
  return false;
}

// As many numbers as the shape has, the same ones again where they do not suffice.
void Fill(DrawnTensor& tensor) {
  const std::vector<double> old = tensor.values;
  tensor.values.resize(static_cast<size_t>(tensor.size()));
  for (size_t n = old.size(); n < tensor.values.size(); ++n) {
    tensor.values[n] = old.empty() ? 0 : old[n % old.size()];
  }
  tensor.Pack();
}

class BadInput : public ::testing::TestWithParam<std::string_view> {
 protected:
  const Mechanism& row() const { return *FindMechanism(GetParam()); }
  DrawnRequest Least() const { return DrawRequest(row(), Draw::kLeast, 1); }

  // Both refuse, with this code; the library's text holds `name`.
  void ExpectRefused(const Request& request, ErrorCode code, const std::string& name) {
    const Refusal heed = Try([&] { PlanOutputs(request); });
    const Refusal oracle = Try([&] { reference::Run(request); });
    EXPECT_TRUE(heed.thrown()) << name << " is accepted by heed; oracle: " << oracle.text;
    EXPECT_TRUE(oracle.thrown()) << name << " is accepted by the oracle; heed: " << heed.text;
    if (!heed.thrown() || !oracle.thrown()) return;
    EXPECT_EQ(heed.code, ErrorCodeName(code)) << heed.text;
    EXPECT_EQ(oracle.code, ErrorCodeName(code)) << oracle.text;
    EXPECT_THAT(heed.text, HasSubstr(name));
  }

  // Both refuse, or neither; with the same code where nothing else can be wrong.
  void ExpectAgreement(const DrawnRequest& request, const std::string& what, bool same_code) {
    SCOPED_TRACE(what + " of " + request.Describe());
    const Request call = request.request();
    const Refusal heed = Try([&] { RunOn(call); });
    const Refusal oracle = Try([&] { reference::Run(call); });
    ASSERT_EQ(heed.thrown(), oracle.thrown())
        << "heed: " << heed.text << "\noracle: " << oracle.text;
    if (!heed.thrown()) return;
    EXPECT_TRUE(!same_code || heed.code == oracle.code)
        << "heed: " << heed.text << "\noracle: " << oracle.text;
  }

  // After all refusals the row gives the same bits as before the first.
  void SetUp() override { before_ = RunOn(Least().request()).bytes; }
  void TearDown() override { EXPECT_EQ(RunOn(Least().request()).bytes, before_); }

 private:
  std::map<std::string, std::vector<std::byte>> before_;
};

INSTANTIATE_TEST_SUITE_P(Registry, BadInput, ::testing::ValuesIn(AllRows()), RowName);

TEST_P(BadInput, MissingInputIsNamed) {
  for (const std::string& name : WordsOf(row().inputs)) {
    if (name.ends_with('?')) continue;
    DrawnRequest draw = Least();
    draw.inputs.erase(name);
    ExpectRefused(draw.request(), ErrorCode::kOption, name);
  }
  ExpectRefused({"no_such_mechanism", {}, {}}, ErrorCode::kOption, "no_such_mechanism");
}

TEST_P(BadInput, UnknownAndRepeatedNamesAreNamed) {
  Request request = Least().request();
  request.inputs.push_back({"mask", request.inputs[0].tensor});
  ExpectRefused(request, ErrorCode::kOption, "mask");
  request.inputs.back().name = request.inputs[0].name;
  ExpectRefused(request, ErrorCode::kOption, request.inputs[0].name);
  request.inputs.pop_back();
  request.params.push_back({"temprature", 1.0});
  ExpectRefused(request, ErrorCode::kOption, "temprature");
  request.params.back().name = "head_dim";
  ExpectRefused(request, ErrorCode::kOption, "head_dim");
}

TEST_P(BadInput, WrongRankIsNamed) {
  const DrawnRequest least = Least();
  for (const auto& [name, tensor] : least.inputs) {
    for (size_t rank = 0; rank <= 4; ++rank) {
      if (HasRank(name, rank)) continue;
      SCOPED_TRACE("rank " + std::to_string(rank) + " of " + least.Describe());
      DrawnRequest draw = least;
      // One row: as many numbers as before, in the last extent.
      draw.inputs[name].shape.assign(rank, 1);
      if (rank > 0) draw.inputs[name].shape.back() = tensor.size();
      Fill(draw.inputs[name]);
      ExpectRefused(draw.request(), ErrorCode::kShape, name);
    }
    Request request = least.request();
    for (NamedTensor& input : request.inputs) {
      if (input.name == name) input.tensor.rank = 5;
    }
    ExpectRefused(request, ErrorCode::kShape, name);
  }
}

TEST_P(BadInput, WrongExtentsAreRefusedByBothOrByNone) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const DrawnRequest draw = DrawRequest(row(), seed == 1 ? Draw::kLeast : Draw::kTidy, seed);
    for (const auto& [name, tensor] : draw.inputs) {
      for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
        for (const int64_t extent : {int64_t{0}, tensor.shape[axis] + 1, int64_t{1}}) {
          if (extent == tensor.shape[axis]) continue;
          DrawnRequest bad = draw;
          bad.inputs[name].shape[axis] = extent;
          Fill(bad.inputs[name]);
          ExpectAgreement(bad,
                          name + " axis " + std::to_string(axis) + " is " + std::to_string(extent),
                          seed == 1);
          if (HasFatalFailure() || HasNonfatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(BadInput, WrongElementTypeIsNamed) {
  const DrawnRequest least = Least();
  for (const auto& [name, tensor] : least.inputs) {
    for (const DType dtype : {DType::kFloat32, DType::kInt32, DType::kUint8}) {
      if (dtype == tensor.dtype) continue;
      DrawnRequest draw = least;
      draw.inputs[name].dtype = dtype;
      draw.inputs[name].Pack();
      ExpectRefused(draw.request(), ErrorCode::kDType, name);
    }
  }
}

TEST_P(BadInput, MissingDataIsNamed) {
  const DrawnRequest least = Least();
  for (const auto& [name, tensor] : least.inputs) {
    Request request = least.request();
    for (NamedTensor& input : request.inputs) {
      if (input.name == name) input.tensor.data = nullptr;
    }
    ExpectRefused(request, ErrorCode::kOption, name);
  }
}

TEST_P(BadInput, ParametersOfAnotherTypeAreNamed) {
  const DrawnRequest least = Least();
  for (const std::string& name : WordsOf(row().params)) {
    const std::string type(ParameterRow(name).type);
    const bool wordy = type == "word" || type == "choice" || type == "expression";
    DrawnRequest draw = least;
    draw.params[name] = type == "bool" ? ParamValue(1.0) : ParamValue(true);
    ExpectRefused(draw.request(), ErrorCode::kOption, name);
    if (type == "seed") continue;  // as a number, or as digits
    draw.params[name] = wordy ? ParamValue(1.0) : ParamValue(std::string("many"));
    ExpectRefused(draw.request(), ErrorCode::kOption, name);
  }
}

TEST_P(BadInput, ParametersThatNothingReadsAreNamed) {
  const DrawnRequest least = Least();
  const auto reads = [&](const std::string& reader) {
    const size_t at = reader.find('=');
    return at == std::string::npos ? least.has_input(reader)
                                   : !Lists(row().params, reader.substr(0, at));
  };
  for (const std::string& name : WordsOf(row().params)) {
    const Parameter& parameter = ParameterRow(name);
    const std::vector<std::string> readers = WordsOf(parameter.read_by);
    if (readers.empty() || std::ranges::any_of(readers, reads)) continue;
    DrawnRequest draw = least;
    if (parameter.type == "word") {
      draw.params[name] = WordsOf(parameter.range, '|').front();
    } else {
      draw.params[name] = 2.0;
    }
    ExpectRefused(draw.request(), ErrorCode::kOption, name + " is read only by");
  }
}

TEST_P(BadInput, InputsThatNothingReadsAreNamed) {
  if (!Lists(row().inputs, "captured")) return;
  DrawnRequest draw = Least();
  draw.inputs["captured.slope"] = {DType::kFloat32, {1}, {0.5}};
  draw.inputs["captured.slope"].Pack();
  ExpectRefused(draw.request(), ErrorCode::kOption, "captured is read only by");
}

TEST_P(BadInput, UnknownWordsAreNamedWithTheirChoices) {
  const DrawnRequest least = Least();
  for (const std::string& name : WordsOf(row().params)) {
    const Parameter& parameter = ParameterRow(name);
    if (parameter.type != "word" && parameter.type != "choice") continue;
    DrawnRequest draw = least;
    draw.params[name] = std::string("nonsense");
    ExpectRefused(draw.request(), ErrorCode::kOption, name);
    const Request request = draw.request();
    const Refusal heed = Try([&] { PlanOutputs(request); });
    EXPECT_THAT(heed.text, HasSubstr("nonsense"));
    for (const std::string& word : WordsOf(parameter.range, '|')) {
      EXPECT_THAT(heed.text, HasSubstr(word));
    }
  }
}

TEST_P(BadInput, NumbersThatAreNoneAreNamed) {
  const DrawnRequest least = Least();
  for (const std::string& name : WordsOf(row().params)) {
    const Parameter& parameter = ParameterRow(name);
    std::vector<double> bad;
    if (parameter.type == "number" || parameter.type == "numbers") bad = {kNan, kInfinity};
    if (parameter.type == "count") bad = {kNan, kInfinity, 1.5, -1};
    if (parameter.type == "seed" || parameter.type == "offset") bad = {kNan, kInfinity, 1.5};
    for (const double value : bad) {
      DrawnRequest draw = least;
      draw.params[name] = value;
      SCOPED_TRACE(name + " = " + std::to_string(value));
      ExpectRefused(draw.request(), ErrorCode::kRange, name);
    }
  }
}

}  // namespace
}  // namespace heed::testing
