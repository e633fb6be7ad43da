#include "native_bench/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace heed::bench {
namespace {

#if defined(__unix__) || defined(__APPLE__)
TEST(InterruptDeathTest, TheLastTextIsSaidBeforeTheProgramEnds) {
  const auto interrupt = [] {
    SayWhenInterrupted("a.json.part holds 3 of 8 cases\n");
    SayWhenInterrupted("a.json.part holds 4 of 8 cases\n");
    std::raise(SIGINT);
  };
  EXPECT_EXIT(interrupt(), ::testing::KilledBySignal(SIGINT), "^a.json.part holds 4 of 8 cases\n$");
}

TEST(InterruptDeathTest, WhatIsNotInterruptedStaysSo) {
  const auto interrupt = [] {
    std::signal(SIGINT, SIG_IGN);
    SayWhenInterrupted("not said\n");
    std::raise(SIGINT);
    std::exit(7);
  };
  EXPECT_EXIT(interrupt(), ::testing::ExitedWithCode(7), "^$");
}
#endif

}  // namespace
}  // namespace heed::bench
