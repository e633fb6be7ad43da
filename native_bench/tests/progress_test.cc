#include "native_bench/progress.h"

#include <gtest/gtest.h>

namespace heed::bench {
namespace {

TEST(Progress, DurationsReadAsAClock) {
  EXPECT_EQ(DurationText(0.2), "0 s");
  EXPECT_EQ(DurationText(59.4), "59 s");
  EXPECT_EQ(DurationText(59.6), "1:00 min");
  EXPECT_EQ(DurationText(200), "3:20 min");
  EXPECT_EQ(DurationText(3900), "1:05 h");
}

TEST(Progress, TheRestTakesAsLongAsWhatIsDone) {
  EXPECT_EQ(ProgressLine("case", 10, 40, 30), "10/40 case, 1:30 min left");
  EXPECT_EQ(ProgressLine("case", 40, 40, 30), "40/40 case, 0 s left");
}

TEST(Progress, NothingIsForetoldBeforeTheFirstCase) {
  EXPECT_EQ(ProgressLine("case", 0, 40, 30), "0/40 case");
}

TEST(Progress, WhatIsKeptIsToldByFileAndNumber) {
  EXPECT_EQ(KeptLine("r.json.part", 4, 8), "heed-bench: r.json.part holds 4 of 8 cases\n");
  EXPECT_EQ(KeptLine("r.json.part", 0, 8), "");
  EXPECT_EQ(KeptLine("", 4, 8), "");
}

}  // namespace
}  // namespace heed::bench
