#include "native_bench/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

namespace heed::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct Ended {
  int status = 0;
  std::string out, err;
};

Ended RunWith(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "heed-bench");
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Ended run;
  run.status = RunProgram(static_cast<int>(argv.size()), argv.data());
  run.out = ::testing::internal::GetCapturedStdout();
  run.err = ::testing::internal::GetCapturedStderr();
  return run;
}

// Two cases, checked and not timed.
std::vector<std::string> SmallLine(const std::vector<std::string>& more) {
  std::vector<std::string> line = {"--verify-only", "--peers", "heed",      "--heads", "2",
                                   "--head-dims",   "8",       "--lengths", "16"};
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

std::vector<std::string> SmallSteps(const std::vector<std::string>& more) {
  std::vector<std::string> line = {"--steps", "--verify-only", "--filter", "^linear$", "--heads",
                                   "2",       "--head-dims",   "8"};
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

class Program : public ::testing::Test {
 protected:
  Program()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("heed_bench_" +
                 std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~Program() override { std::filesystem::remove_all(folder_); }

  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  std::string Text(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(At(name)).rdbuf();
    return text.str();
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(At(name)) << text;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(Program, WhatCannotBeWrittenIsToldBeforeAnythingIsMeasured) {
  for (const char* flag : {"--json", "--csv", "--markdown", "--html"}) {
    const Ended run = RunWith(SmallLine({flag, At("missing/report")}));
    EXPECT_EQ(run.status, 2) << flag;
    EXPECT_THAT(run.err, HasSubstr("cannot write '" + At("missing/report"))) << flag;
    EXPECT_THAT(run.out, IsEmpty()) << flag;
  }
  EXPECT_EQ(RunWith(SmallSteps({"--json", At("missing/report")})).out, "");
  EXPECT_EQ(RunWith(SmallLine({"--json", At("")})).status, 2) << "a folder";
}

TEST_F(Program, ALookAtAnOutputChangesNoFile) {
  Write("old.csv", "kept");
  EXPECT_EQ(RunWith(SmallLine({"--csv", At("old.csv"), "--json", At("new.json"), "--html",
                               At("missing/a.html")}))
                .status,
            2);
  EXPECT_EQ(Text("old.csv"), "kept");
  EXPECT_THAT(Names(), ::testing::ElementsAre("old.csv"));
}

TEST_F(Program, EveryOutputIsWrittenAndNothingElseStays) {
  const Ended run = RunWith(SmallLine({"--json", At("a.json"), "--csv", At("a.csv"), "--markdown",
                                       At("a.md"), "--html", At("a.html"), "--quiet"}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(Names(), ::testing::UnorderedElementsAre("a.json", "a.csv", "a.md", "a.html"));
  EXPECT_THAT(nlohmann::json::parse(Text("a.json")).at("rows"), SizeIs(2));
  EXPECT_THAT(run.out, IsEmpty());
}

TEST_F(Program, TheTableGoesToStandardErrorWhereAnOutputTakesStandardOutput) {
  const Ended json = RunWith(SmallSteps({"--json", "-"}));
  EXPECT_EQ(nlohmann::json::parse(json.out).at("schema"), "heed-bench-steps");
  EXPECT_THAT(json.err, HasSubstr("one token"));
  const Ended csv = RunWith(SmallLine({"--csv", "-"}));
  EXPECT_THAT(csv.out, Not(HasSubstr("FLOP =")));
  EXPECT_THAT(csv.err, HasSubstr("FLOP ="));
  EXPECT_THAT(RunWith(SmallLine({})).out, HasSubstr("FLOP ="));
}

TEST_F(Program, WhatComparesIsReadBeforeAnythingIsMeasured) {
  Write("package.json", R"({"name": "heed"})");
  Write("decode.json", R"({"schema": "heed-bench-decode", "schema_version": 2})");
  const std::string cases[][2] = {{"package.json", "no report of heed-bench"},
                                  {"decode.json", "heed-bench-decode"},
                                  {"missing.json", "cannot be read"},
                                  {"", "is a folder"}};
  for (const auto& [name, reason] : cases) {
    const Ended run = RunWith(SmallLine({"--compare", At(name), "--json", At("new.json")}));
    EXPECT_EQ(run.status, 2) << name;
    EXPECT_THAT(run.err, HasSubstr(reason)) << name;
    EXPECT_FALSE(std::filesystem::exists(At("new.json"))) << name;
  }
}

TEST_F(Program, AReportIsDrawnAgainFromItsFile) {
  ASSERT_EQ(RunWith(SmallLine({"--json", At("a.json")})).status, 0);
  EXPECT_EQ(RunWith({"--from", At("a.json"), "--html", At("a.html")}).status, 0);
  EXPECT_THAT(Text("a.html"), HasSubstr("scaled_dot_product"));
  ASSERT_EQ(RunWith(SmallSteps({"--json", At("steps.json")})).status, 0);
  EXPECT_EQ(RunWith({"--from", At("steps.json"), "--html", At("steps.html")}).status, 2);
  EXPECT_FALSE(std::filesystem::exists(At("steps.html"))) << "an empty page was left";
}

TEST_F(Program, OnlyRefusalsAreAFailure) {
  // Self-attention has as many queries as keys.
  const Ended run = RunWith({"--verify-only", "--peers", "heed", "--mechanisms", "reformer",
                             "--lengths", "8x16", "--heads", "2", "--head-dims", "8"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("every row was refused"));
  EXPECT_THAT(run.out, HasSubstr("refused"));
}

TEST_F(Program, AFilterThatLeavesNothingIsAMistake) {
  for (const char* mode : {"--patterns", "--decode", "--curves", "--steps", "--approximation"}) {
    const Ended run = RunWith({mode, "--verify-only", "--filter", "nothing like that"});
    EXPECT_EQ(run.status, 2) << mode;
    EXPECT_THAT(run.err, HasSubstr("--filter leaves no")) << mode;
  }
}

// A disk that is full.
class Full : public std::streambuf {
 protected:
  int_type overflow(int_type) override { return traits_type::eof(); }
  int sync() override { return -1; }
};

TEST_F(Program, AFullStandardOutputIsTold) {
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"--list"}, SmallLine({}), SmallLine({"--quiet", "--json", "-"})}) {
    Full full;
    std::streambuf* const before = std::cout.rdbuf(&full);
    const Ended run = RunWith(line);
    std::cout.rdbuf(before);  // clears the state too
    EXPECT_EQ(run.status, 2) << line.front();
    EXPECT_THAT(run.err, HasSubstr("cannot write to standard output")) << line.front();
  }
}

}  // namespace
}  // namespace heed::bench
