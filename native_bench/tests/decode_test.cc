#include "native_bench/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace heed::bench {
namespace {

using ::testing::HasSubstr;

const Progress kSilent = [](const std::string&, size_t, size_t) {};

Options SmallOptions() {
  Options options;
  options.grid.heads = {{4, 2}};
  options.grid.head_dims = {32};
  options.grid.lengths = {{128, 128}, {1024, 1024}};
  options.grid.threads = {1, 2};
  options.plan = {.min_reps = 1, .min_seconds = 0, .max_seconds = 0};
  return options;
}

TEST(Decode, EveryStorageTypeIsRight) {
  Options options = SmallOptions();
  options.verify_only = true;
  const DecodeReport report = MeasureDecode(options, {}, kSilent);
  EXPECT_EQ(report.rows.size(), 2u * 2 * 5);
  for (const DecodeRow& row : report.rows) {
    EXPECT_TRUE(row.verdict.Passed()) << row.Name() << " " << row.verdict.failure;
    EXPECT_EQ(row.verdict.rows, 4);
    EXPECT_EQ(row.seconds.count, 0);
  }
  EXPECT_FALSE(AnyWrong(report));
}

TEST(Decode, BytesAreThoseOfTheStorage) {
  Options options = SmallOptions();
  options.verify_only = true;
  options.filter = "l1024/t1";
  const DecodeReport report = MeasureDecode(options, {}, kSilent);
  const double numbers = 2.0 * 2 * 1024 * 32;
  ASSERT_EQ(report.rows.size(), 5u);
  EXPECT_EQ(report.rows[0].Name(), "decode/float32/h4:2/d32/l1024/t1");
  EXPECT_EQ(report.rows[0].bytes, 4 * numbers);
  EXPECT_EQ(report.rows[1].bytes, 2 * numbers);
  EXPECT_EQ(report.rows[3].bytes, numbers + 4 * numbers / 32);  // a scale for each row
}

TEST(Decode, ReportsTimes) {
  Options options = SmallOptions();
  options.grid.threads = {1};
  options.filter = "int8/h4:2/d32/l128";
  const DecodeReport report = MeasureDecode(options, {}, kSilent);
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_GT(report.rows[0].Gbps(), 0);
  EXPECT_GT(report.rows[0].fraction_of_read, 0);
  std::ostringstream out;
  PrintDecode(out, report);
  EXPECT_THAT(out.str(), HasSubstr("decode/int8/h4:2/d32/l128/t1"));
  EXPECT_EQ(ToJson(report).at("rows").at(0).at("status"), "timed");
  options.filter = "nothing like that";
  EXPECT_THROW(MeasureDecode(options, {}, kSilent), Error);
}

}  // namespace
}  // namespace heed::bench
