#include "native_bench/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "heed/error.h"

namespace heed::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CommandLine Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "heed-bench");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

TEST(Options, CountsAreParsedInOrder) {
  EXPECT_THAT(ParseCounts("--head-dims", "64,128,40"), ElementsAre(64, 128, 40));
}

TEST(Options, CountsRefuseWhatIsNotAPositiveNumber) {
  for (const char* text : {"", "64,", ",64", "a", "64x", "0", "-1", "1.5", " 64", "99999999999"}) {
    EXPECT_THROW(ParseCounts("--head-dims", text), Error) << text;
  }
}

TEST(Options, LengthsAreSquareUnlessTwoAreGiven) {
  EXPECT_THAT(ParseLengths("--lengths", "512,1x4096"),
              ElementsAre(Lengths{512, 512}, Lengths{1, 4096}));
  EXPECT_THROW(ParseLengths("--lengths", "1x"), Error);
  EXPECT_THROW(ParseLengths("--lengths", "1x2x3"), Error);
}

TEST(Options, HeadsMayBeGrouped) {
  EXPECT_THAT(ParseHeads("--heads", "8,32:8"), ElementsAre(Heads{8, 8}, Heads{32, 8}));
  EXPECT_THROW(ParseHeads("--heads", "8:3"), Error);
}

TEST(Options, ErrorsNameTheFlagAndTheItem) {
  try {
    ParseLengths("--lengths", "128,x7");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOption);
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("--lengths"),
                                               ::testing::HasSubstr("whole number")));
  }
}

TEST(Options, DecodeHasAShapeOfItsOwnUnlessGiven) {
  const CommandLine line = Parse({"--decode", "--head-dims", "64"});
  ASSERT_FALSE(line.exit_code.has_value());
  EXPECT_THAT(line.options.grid.heads, ElementsAre(Heads{32, 8}));
  EXPECT_THAT(line.options.grid.head_dims, ElementsAre(64));
  EXPECT_EQ(line.options.grid.lengths.back(), (Lengths{32768, 32768}));
}

TEST(Options, DefaultsTimeScaledDotProduct) {
  const CommandLine line = Parse({});
  ASSERT_FALSE(line.exit_code.has_value());
  EXPECT_THAT(line.options.grid.mechanisms, ElementsAre("scaled_dot_product"));
  EXPECT_THAT(line.options.grid.threads, ElementsAre(1));
  EXPECT_THAT(line.options.grid.masks, ElementsAre(Mask::kFull, Mask::kCausal));
  EXPECT_EQ(line.options.plan.min_reps, 10);
  EXPECT_EQ(line.options.plan.clock, Clock::kWall);
}

TEST(Options, AllMechanismsAreThoseOfTheRegistry) {
  const CommandLine line = Parse({"--mechanisms", "all"});
  EXPECT_THAT(line.options.grid.mechanisms,
              ::testing::IsSupersetOf({"scaled_dot_product", "kernel_regression"}));
}

TEST(Options, TypesAreStorageTypes) {
  EXPECT_THAT(ParseDTypes("--types", "float32,bfloat16"),
              ElementsAre(DType::kFloat32, DType::kBFloat16));
  EXPECT_THROW(ParseDTypes("--types", "int8"), Error);
}

TEST(Options, Float8IsForAGpu) {
  EXPECT_EQ(Parse({"--types", "float8_e4m3"}).exit_code, 2);
  EXPECT_EQ(Parse({"--backward", "--types", "float32,float8_e4m3"}).exit_code, 2);
  const CommandLine line = Parse({"--device", "cuda", "--types", "float8_e4m3"});
  ASSERT_FALSE(line.exit_code.has_value());
  EXPECT_THAT(line.options.grid.dtypes, ElementsAre(DType::kFloat8E4M3));
}

TEST(Options, ShapesTakeThePlaceOfTheAxes) {
  const CommandLine line = Parse({"--shapes", "gpt2", "--types", "float16", "--threads", "1,2"});
  ASSERT_FALSE(line.exit_code.has_value());
  EXPECT_EQ(MakeCases(line.options.grid, "").size(), 4u);
  EXPECT_EQ(Parse({"--shapes", "gpt2", "--lengths", "128"}).exit_code, 2);
  EXPECT_EQ(Parse({"--shapes", "gpt9"}).exit_code, 2);
}

TEST(Options, UsageMistakesExitWithTwo) {
  EXPECT_EQ(Parse({"--no-such-flag"}).exit_code, 2);
  EXPECT_EQ(Parse({"--causal", "maybe"}).exit_code, 2);
  EXPECT_EQ(Parse({"--reps", "0"}).exit_code, 2);
  EXPECT_EQ(Parse({"--threads", "1,zwei"}).exit_code, 2);
  EXPECT_EQ(Parse({"--clock", "cpu", "--threads", "2"}).exit_code, 2);
}

TEST(Options, AGpuHasCasesAndTimesOfItsOwn) {
  const CommandLine own = Parse({"--device", "cuda", "--filter", "d128"});
  ASSERT_FALSE(own.exit_code.has_value());
  EXPECT_EQ(own.options.device, Device::kCuda);
  EXPECT_TRUE(own.options.own_cases);
  EXPECT_EQ(own.options.plan.clock, Clock::kCudaEvents);
  EXPECT_LT(own.options.plan.min_seconds, 0.1);
  const CommandLine chosen = Parse({"--device", "cuda", "--lengths", "256", "--min-time", "0.3"});
  ASSERT_FALSE(chosen.exit_code.has_value());
  EXPECT_FALSE(chosen.options.own_cases);
  EXPECT_EQ(chosen.options.plan.min_seconds, 0.3);
}

TEST(Options, WhatIsOfTheCpuDoesNotGoWithAGpu) {
  for (const char* flag : {"--decode", "--curves", "--steps", "--products"}) {
    EXPECT_EQ(Parse({"--device", "cuda", flag}).exit_code, 2) << flag;
  }
  EXPECT_EQ(Parse({"--device", "cuda", "--threads", "2"}).exit_code, 2);
  EXPECT_EQ(Parse({"--device", "tpu"}).exit_code, 2);
  EXPECT_FALSE(Parse({"--device", "cuda", "--backward"}).exit_code.has_value());
}

// What the line is refused for.
std::string Refusal(const std::vector<const char*>& arguments) {
  ::testing::internal::CaptureStderr();
  const std::optional<int> exit_code = Parse(arguments).exit_code;
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(exit_code, exit_code ? 2 : exit_code);
  return text;
}

TEST(Options, ModesExcludeEachOther) {
  EXPECT_THAT(Refusal({"--decode", "--backward"}), HasSubstr("--decode: does not go with --back"));
  EXPECT_THAT(Refusal({"--list", "--steps"}), HasSubstr("--steps: does not go with --list"));
  EXPECT_THAT(Refusal({"--from", "a.json", "--html", "a.html", "--curves"}), HasSubstr("--from"));
}

TEST(Options, WhatAModeDoesNotReadIsRefusedByName) {
  EXPECT_THAT(Refusal({"--backward", "--types", "bfloat16"}),
              HasSubstr("--backward: does not read --types"));
  EXPECT_THAT(Refusal({"--backward", "--peers", "heed,xsimd"}), HasSubstr("--peers"));
  EXPECT_THAT(Refusal({"--steps", "--lengths", "128"}), HasSubstr("--lengths"));
  EXPECT_THAT(Refusal({"--decode", "--causal", "yes"}), HasSubstr("--causal"));
  EXPECT_THAT(Refusal({"--decode", "--mechanisms", "all"}), HasSubstr("--mechanisms"));
  EXPECT_THAT(Refusal({"--decode", "--csv", "a.csv"}), HasSubstr("--csv"));
  EXPECT_THAT(Refusal({"--products", "--seed", "2"}), HasSubstr("--seed"));
  EXPECT_THAT(Refusal({"--from", "a.json", "--html", "a.html", "--csv", "a.csv"}),
              HasSubstr("--from: does not read --csv"));
  EXPECT_THAT(Refusal({"--list", "--json", "a.json"}), HasSubstr("--json"));
  EXPECT_EQ(Refusal({"--device", "cuda", "--backward", "--types", "bfloat16", "--peers", "heed"}),
            "");
  EXPECT_EQ(Refusal({"--backward", "--shapes", "gpt2", "--csv", "a.csv", "--quiet"}), "");
  EXPECT_EQ(Refusal({"--approximation", "--causal", "both", "--clock", "cpu"}), "");
}

TEST(Options, ACacheAndACurveHaveOneLength) {
  EXPECT_THAT(Refusal({"--decode", "--lengths", "32,16x32"}), HasSubstr("'16x32'"));
  EXPECT_THAT(Refusal({"--curves", "--lengths", "16x32"}), HasSubstr("--curves takes one"));
}

TEST(Options, EmptyValuesAreRefusedByName) {
  for (const char* flag : {"--json", "--html", "--compare", "--simd", "--from", "--peers"}) {
    EXPECT_THAT(Refusal({flag, ""}), HasSubstr(std::string(flag) + ": is empty")) << flag;
  }
}

TEST(Options, SeedsAreWholeNumbersOf64Bits) {
  EXPECT_EQ(Parse({"--seed", "18446744073709551615"}).options.seed, 18446744073709551615u);
  for (const char* text : {"-1", "12345678901234567890123", "1.5", "x"}) {
    EXPECT_THAT(Refusal({"--seed", text}), HasSubstr("--seed: '" + std::string(text))) << text;
  }
}

TEST(Options, OutputsHavePlacesOfTheirOwn) {
  EXPECT_THAT(Refusal({"--json", "-", "--csv", "-"}), HasSubstr("both write '-'"));
  EXPECT_THAT(Refusal({"--html", "a", "--markdown", "a"}), HasSubstr("both write 'a'"));
}

TEST(Options, FromWantsSomethingToDo) {
  EXPECT_THAT(Refusal({"--from", "a.json", "--quiet"}), HasSubstr("wants --html or --compare"));
}

TEST(Options, AToleranceIsOfAComparison) {
  EXPECT_EQ(Parse({"--tolerance", "0.1"}).exit_code, 2);
  EXPECT_EQ(Parse({"--tolerance", "0.1", "--compare", "a.json"}).options.tolerance, 0.1);
}

TEST(Options, HelpExitsWithZero) { EXPECT_EQ(Parse({"--help"}).exit_code, 0); }

}  // namespace
}  // namespace heed::bench
