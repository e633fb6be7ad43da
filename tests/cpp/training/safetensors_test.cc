// Files that are right, and every way in which one can be wrong.
#include "heed/training/safetensors.h"

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/error.h"
#include "random.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;
using training::LoadParameters;
using training::ParameterSet;
using training::ReadFloats;
using training::SafetensorsFile;
using training::SaveSafetensors;

std::vector<uint8_t> File(const std::string& header, size_t data_bytes, uint64_t length) {
  std::vector<uint8_t> bytes(8);
  std::memcpy(bytes.data(), &length, 8);
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.insert(bytes.end(), data_bytes, 0);
  return bytes;
}

std::vector<uint8_t> File(const std::string& header, size_t data_bytes) {
  return File(header, data_bytes, header.size());
}

// One tensor of this type, shape and place.
std::string Tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

void ExpectRefused(const std::vector<uint8_t>& bytes, ErrorCode code, const char* words) {
  try {
    const SafetensorsFile file(bytes);
    ADD_FAILURE() << "expected: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

void ExpectRefusedHeader(const std::string& header, ErrorCode code, const char* words) {
  ExpectRefused(File(header, 4), code, words);
}

ParameterSet TwoParameters() {
  ParameterSet parameters(3);
  parameters.Add("a.weight", {3, 5}, {.deviation = 1});
  parameters.Add("quote \" back \\ tab \t end", {2}, {.mean = -0.0f});
  return parameters;
}

TEST(Safetensors, RoundTripKeepsEveryBit) {
  ParameterSet saved = TwoParameters();
  saved.Find("a.weight")->value[0] = std::numeric_limits<float>::denorm_min();
  const std::vector<uint8_t> bytes = SaveSafetensors(saved, {{"key", "a \"text\"\n"}});
  const SafetensorsFile file(bytes);
  EXPECT_EQ(file.metadata().at("key"), "a \"text\"\n");
  ParameterSet loaded = TwoParameters();
  for (training::Parameter& p : loaded) p.value.assign(p.value.size(), 7);
  LoadParameters(file, loaded);
  for (const training::Parameter& p : saved) {
    const std::vector<float>& other = loaded.Find(p.name)->value;
    EXPECT_EQ(std::memcmp(p.value.data(), other.data(), 4 * other.size()), 0) << p.name;
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);  // the data is aligned
}

TEST(Safetensors, SmallTypesAreRoundedOnce) {
  const ParameterSet saved = TwoParameters();
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const std::vector<uint8_t> bytes = SaveSafetensors(saved, {}, dtype);
    ParameterSet loaded = TwoParameters();
    LoadParameters(SafetensorsFile(bytes), loaded);
    for (size_t n = 0; n < 15; ++n) {
      const float x = saved.Find("a.weight")->value[n];
      const float y = loaded.Find("a.weight")->value[n];
      EXPECT_EQ(y, dtype == DType::kFloat16 ? ToFloat(ToFloat16(x)) : ToFloat(ToBFloat16(x)));
    }
  }
  EXPECT_THROW(SaveSafetensors(saved, {}, DType::kInt8), Error);
}

// Where the model that is read would give NaN alone.
TEST(Safetensors, RefusesNumbersThatWouldBecomeInfinite) {
  ParameterSet parameters = TwoParameters();
  float& x = parameters.Find("a.weight")->value[7];
  const auto refuse = [&](DType dtype, const char* words) {
    try {
      SaveSafetensors(parameters, {}, dtype);
      ADD_FAILURE() << "expected: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kRange);
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  };
  const auto loaded = [&](DType dtype) {
    ParameterSet to = TwoParameters();
    const std::vector<uint8_t> bytes = SaveSafetensors(parameters, {}, dtype);
    LoadParameters(SafetensorsFile(bytes), to);
    return to.Find("a.weight")->value[7];
  };
  x = 65519;  // rounds to the largest float16
  EXPECT_EQ(loaded(DType::kFloat16), 65504);
  x = -65520;
  refuse(DType::kFloat16,
         "float16 cannot hold the -65520 in tensor \"a.weight\"; float32 and bfloat16 can");
  EXPECT_EQ(loaded(DType::kBFloat16), -65536);
  x = std::numeric_limits<float>::max();
  refuse(DType::kFloat16, "in tensor \"a.weight\"; float32 can");
  refuse(DType::kBFloat16, "in tensor \"a.weight\"; float32 can");
  EXPECT_EQ(loaded(DType::kFloat32), x);
  // What is infinite already stays so.
  x = std::numeric_limits<float>::infinity();
  EXPECT_EQ(loaded(DType::kFloat16), x);
}

TEST(Safetensors, ReadsTypesOrdersAndUnalignedData) {
  const std::string header = "{ \"late\":" + Tensor("F64", "[1]", "[3,11]") +
                             ",\n\"__proto__\":" + Tensor("U8", "[3]", "[0,3]") +
                             ",\"none\":" + Tensor("F32", "[2,0]", "[3,3]") + "}   ";
  std::vector<uint8_t> bytes = File(header, 11);
  const double number = 0.1;
  std::memcpy(bytes.data() + bytes.size() - 8, &number, 8);
  const SafetensorsFile file(bytes);
  EXPECT_EQ(file.entries().size(), 3u);
  float value = 0;
  ReadFloats(*file.Find("late"), {&value, 1});
  EXPECT_EQ(value, 0.1f);
  std::vector<float> three(3);
  EXPECT_THROW(ReadFloats(*file.Find("__proto__"), three), Error);
  EXPECT_THROW(ReadFloats(*file.Find("late"), three), Error);
  EXPECT_EQ(file.Find("absent"), nullptr);
}

TEST(Safetensors, RefusesHeadersThatCannotBe) {
  constexpr ErrorCode kNone = ErrorCode::kOption;
  ExpectRefused({}, kNone, "too few");
  ExpectRefused({2, 0, 0, 0, 0, 0, 0, 0, '{'}, kNone, "too few");
  for (const uint64_t length :
       {uint64_t{0} - 1, uint64_t{1} << 63, uint64_t{3}, uint64_t{25000001}}) {
    ExpectRefused(File("{}", 0, length), kNone, "not a safetensors file");
  }
  ExpectRefused(File("{}", 0, 1), kNone, "not a safetensors file");
  ExpectRefused(File("GGUFxxxxxxxxxxxx", 0), kNone, "not a safetensors file");
  ExpectRefused(File(std::string("PK\3\4") + std::string(30, 'x'), 0), kNone, "not a safetensors");
  // The cap holds for files that really are that long.
  ExpectRefused(File("{" + std::string(25'000'000, ' ') + "}", 0), kNone, "no header");
}

TEST(Safetensors, RefusesWhatIsNotTheGrammar) {
  constexpr ErrorCode kNone = ErrorCode::kOption;
  const std::string good = Tensor("F32", "[1]", "[0,4]");
  ExpectRefusedHeader("{\"a\":" + good, kNone, "does not end");
  ExpectRefusedHeader("{\"a\":" + good + "}}", kNone, "more after the object");
  ExpectRefusedHeader("{\"a\":" + good + ",}", kNone, "no text");
  ExpectRefusedHeader("{\"a\":" + good + ",\"a\":" + good + "}", kNone, "occurs twice");
  ExpectRefusedHeader("{\"__metadata__\":{},\"__metadata__\":{}}", kNone, "occurs twice");
  ExpectRefusedHeader("{\"__metadata__\":{\"x\":\"1\",\"x\":\"2\"}}", kNone, "occurs twice");
  ExpectRefusedHeader("{\"__metadata__\":{\"x\":1}}", kNone, "no text");
  ExpectRefusedHeader("{\"a\":[1]}", kNone, "no object");
  ExpectRefusedHeader("{\"a\":{\"dtype\":{\"dtype\":{}}}}", kNone, "no text");
  ExpectRefusedHeader("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", kNone, "without");
  ExpectRefusedHeader("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", kNone, "occurs twice");
  ExpectRefusedHeader("{\"a\":{\"pickle\":\"x\"}}", kNone, "unknown key");
  ExpectRefusedHeader("{\"\xff\":" + good + "}", kNone, "no text may hold");
  ExpectRefusedHeader("{\"\xc0\x80\":" + good + "}", kNone, "no text may hold");
  ExpectRefusedHeader("{\"\xed\xa0\x80\":" + good + "}", kNone, "no text may hold");
  ExpectRefusedHeader("{\"\n\":" + good + "}", kNone, "no text may hold");
  ExpectRefusedHeader("{\"\\ud800\":" + good + "}", kNone, "surrogate");
  ExpectRefusedHeader("{\"\\x\":" + good + "}", kNone, "unknown escape");
  ExpectRefusedHeader("{\"\\u12g4\":" + good + "}", kNone, "four digits");
  ExpectRefusedHeader("{\"" + std::string(1'000'000, 'x') + "\":" + good + "}", kNone, "too long");
  ExpectRefusedHeader("{\"a\":" + std::string(100'000, '['), kNone, "no object");
}

TEST(Safetensors, RefusesNumbersThatAreNoExtents) {
  for (const char* number : {"-1", "1.5", "1e3", "01", "99999999999999999999", "\"1\"", "null"}) {
    ExpectRefusedHeader("{\"a\":" + Tensor("F32", std::string("[") + number + "]", "[0,4]") + "}",
                        ErrorCode::kOption, "not a safetensors file");
  }
}

TEST(Safetensors, RefusesPlacesThatDoNotFit) {
  const auto refuse = [](const std::string& tensors, ErrorCode code, const char* words) {
    ExpectRefused(File("{" + tensors + "}", 8), code, words);
  };
  const auto one = [](const char* offsets) { return "\"a\":" + Tensor("F32", "[1]", offsets); };
  constexpr ErrorCode kRange = ErrorCode::kRange, kShape = ErrorCode::kShape;
  refuse(one("[0]"), kRange, "1 data_offsets");
  refuse(one("[0,4,8]"), kRange, "3 data_offsets");
  refuse(one("[4,0]"), kRange, "[4, 0)");
  refuse(one("[8,12]"), kRange, "[8, 12)");
  refuse(one("[0,9223372036854775807]"), kRange, "9223372036854775807");
  refuse(one("[0,4]"), kRange, "end at byte 4");
  refuse(one("[4,8]"), kRange, "begins at byte 4");
  refuse(one("[0,8]"), kShape, "has 8 bytes");
  refuse(one("[0,4]") + ",\"b\":" + Tensor("F32", "[1]", "[0,4]"), kRange, "begins at byte 0");
  refuse(one("[0,4]") + ",\"b\":" + Tensor("F16", "[3]", "[2,8]"), kRange, "begins at byte 2");
  refuse("\"a\":" + Tensor("F32", "[4611686018427387904,4]", "[0,8]"), kShape, "addressed");
  refuse("\"a\":" + Tensor("F31", "[1]", "[0,4]"), ErrorCode::kDType, "F31");
  refuse("\"a\":" + Tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), ErrorCode::kOption, "too long");
  ExpectRefused(File("{}", 3), kRange, "end at byte 0");
}

TEST(Safetensors, RefusesMoreTensorsThanAreRead) {
  std::string header = "{";
  for (int n = 0; n <= 100'000; ++n) {
    header += (n > 0 ? ",\"" : "\"") + std::to_string(n) + "\":" + Tensor("U8", "[0]", "[0,0]");
  }
  ExpectRefused(File(header + "}", 0), ErrorCode::kOption, "more tensors");
}

// Bytes of a good file, each changed in turn, or cut off: an error or a file, never a crash.
TEST(Safetensors, SurvivesEveryChangedByte) {
  const std::vector<uint8_t> good = SaveSafetensors(TwoParameters(), {{"k", "v"}});
  Random random(4);
  int refused = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    std::vector<uint8_t> bad = good;
    bad[at] = static_cast<uint8_t>(random.Next());
    try {
      const SafetensorsFile file(bad);
    } catch (const Error&) {
      ++refused;
    }
    const std::vector<uint8_t> cut(good.begin(), good.begin() + static_cast<int64_t>(at));
    EXPECT_THROW(SafetensorsFile{cut}, Error) << at;
  }
  EXPECT_GT(refused, 100);
}

// What no reader would take back is refused when it is saved.
TEST(Safetensors, SavesNothingThatCannotBeRead) {
  const auto refused = [](const std::string& name, const std::vector<int64_t>& shape,
                          const std::map<std::string, std::string>& metadata = {}) {
    ParameterSet parameters(1);
    parameters.Add(name, shape, {});
    try {
      SafetensorsFile file(SaveSafetensors(parameters, metadata));
    } catch (const Error& error) {
      return std::string(error.what()).find("cannot be stored") != std::string::npos;
    }
    return false;
  };
  EXPECT_FALSE(refused("weight", {2, 3}, {{"note", "1"}}));
  EXPECT_TRUE(refused("__metadata__", {2}));
  EXPECT_TRUE(refused("\xff", {2}));
  EXPECT_TRUE(refused(std::string(5000, 'a'), {2}));
  EXPECT_TRUE(refused("weight", std::vector<int64_t>(9, 1)));
  EXPECT_TRUE(refused("weight", {2}, {{"note", "\xff"}}));
}

TEST(Safetensors, LoadsAllParametersOrNone) {
  ParameterSet saved = TwoParameters();
  saved.Add("more", {1}, {});
  const std::vector<uint8_t> more = SaveSafetensors(saved);
  ParameterSet loaded = TwoParameters();
  const std::vector<float> before = loaded.Find("a.weight")->value;
  EXPECT_THROW(LoadParameters(SafetensorsFile(more), loaded), Error);
  const std::vector<uint8_t> fewer = SaveSafetensors(TwoParameters());
  ParameterSet larger = TwoParameters();
  larger.Add("more", {1}, {});
  EXPECT_THROW(LoadParameters(SafetensorsFile(fewer), larger), Error);
  ParameterSet other(1);
  other.Add("a.weight", {5, 3}, {});
  EXPECT_THROW(LoadParameters(SafetensorsFile(fewer), other), Error);
  EXPECT_EQ(loaded.Find("a.weight")->value, before);
}

}  // namespace
}  // namespace heed::testing
