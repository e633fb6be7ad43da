#include "native_bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

namespace heed::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Row MakeRow(const std::string& peer, int64_t length, double seconds) {
  Row row;
  row.shape.mechanism = "scaled_dot_product";
  row.shape.heads = {8, 8};
  row.shape.lengths = {length, length};
  row.shape.head_dim = 64;
  row.peer = peer;
  row.status = Status::kTimed;
  row.verdict.bound = 1e-5;
  row.verdict.rows = 100;
  row.seconds = {.count = 10, .min = seconds, .p10 = seconds, .median = seconds, .p90 = seconds};
  row.peak_gflops = 100;
  row.cost.flops = 4.0 * 8 * 64 * static_cast<double>(length * length);
  row.cost.bytes_read = 3000;
  row.cost.bytes_written = 1000;
  row.cost.scratch_bytes = 5120;
  return row;
}

Report MakeReport() {
  Report report;
  report.peers = {{"heed", "", ""}, {"xsimd", "", ""}};
  report.peaks = {{"AVX2", 1, 100}, {"SSE4", 1, 50}, {"AVX2", 2, 190}};
  report.rows = {MakeRow("heed", 1024, 0.010), MakeRow("xsimd", 1024, 0.015),
                 MakeRow("heed", 128, 0.002), MakeRow("xsimd", 128, 0.001)};
  return report;
}

TEST(Report, RatesFollowTheFormula) {
  const Row row = MakeRow("heed", 1024, 0.010);
  EXPECT_NEAR(row.Gflops(), 4.0 * 8 * 1024 * 1024 * 64 / 0.010 * 1e-9, 1e-9);
  EXPECT_NEAR(row.PeakFraction(), row.Gflops() / 100, 1e-12);
}

TEST(Report, BestPeakIsOfTheSameThreads) {
  EXPECT_EQ(BestPeak(MakeReport().peaks, 1), 100);
  EXPECT_EQ(BestPeak(MakeReport().peaks, 2), 190);
  EXPECT_EQ(BestPeak(MakeReport().peaks, 3), 0);
}

TEST(Report, BestRowIsTheFastestTimedOneOfItsCase) {
  Report report = MakeReport();
  EXPECT_THAT(BestRows(report.rows), ElementsAre(0, 3));
  report.rows[3].status = Status::kWrong;
  EXPECT_THAT(BestRows(report.rows), ElementsAre(0, 2));
}

TEST(Report, TimeOverHeedComparesWithinTheCase) {
  const Report report = MakeReport();
  EXPECT_DOUBLE_EQ(TimeOverHeed(report.rows, report.rows[1]), 1.5);
  EXPECT_DOUBLE_EQ(TimeOverHeed(report.rows, report.rows[3]), 0.5);
}

TEST(Report, JsonHasTheDocumentedFields) {
  const nlohmann::json json = ToJson(MakeReport());
  EXPECT_EQ(json.at("schema"), "heed-bench");
  EXPECT_EQ(json.at("schema_version"), kJsonSchemaVersion);
  for (const char* key : {"date", "command", "machine", "build", "flop_formula", "inputs", "plan",
                          "probes", "peers", "rows"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  const nlohmann::json& row = json.at("rows").at(0);
  EXPECT_EQ(row.at("case"), "scaled_dot_product/h8/d64/l1024/full/t1");
  EXPECT_EQ(row.at("status"), "timed");
  EXPECT_EQ(row.at("shape").at("q_len"), 1024);
  EXPECT_DOUBLE_EQ(row.at("ms").at("median"), 10);
  EXPECT_EQ(row.at("reps"), 10);
  EXPECT_NEAR(row.at("fraction_of_fma_peak"), 2.147, 1e-3);
}

TEST(Report, JsonGivesAWrongPeerNoSpeed) {
  Report report = MakeReport();
  report.rows[0].status = Status::kWrong;
  report.rows[0].reason = "off";
  report.rows[0].verdict.max_error = std::numeric_limits<double>::infinity();
  const nlohmann::json row = ToJson(report).at("rows").at(0);
  EXPECT_EQ(row.at("reason"), "off");
  EXPECT_FALSE(row.contains("ms"));
  EXPECT_FALSE(row.contains("gflops"));
  EXPECT_EQ(nlohmann::json::parse(row.dump()).at("max_error"), nullptr);
}

TEST(Report, TableMarksTheBestAndIsPlainWhenPiped) {
  std::ostringstream out;
  PrintTable(out, MakeReport(), Style::kPlain);
  EXPECT_THAT(out.str(), Not(HasSubstr("\x1b")));
  std::istringstream lines(out.str());
  std::vector<std::string> starred;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('*')) starred.push_back(line);
  }
  ASSERT_EQ(starred.size(), 2u);
  EXPECT_THAT(starred[0], HasSubstr("heed"));
  EXPECT_THAT(starred[1], HasSubstr("xsimd"));
}

TEST(Report, TableColumnsAlign) {
  std::ostringstream out;
  PrintTable(out, MakeReport(), Style::kPlain);
  std::istringstream lines(out.str());
  std::string titles;
  std::getline(lines, titles);
  const size_t end_of_ms = titles.find("  p10") == std::string::npos
                               ? 0
                               : titles.find(" ms ") + std::string(" ms").size();
  ASSERT_GT(end_of_ms, 0u);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    EXPECT_NE(line[end_of_ms - 1], ' ') << line;
    EXPECT_EQ(line[end_of_ms], ' ') << line;
  }
}

TEST(Report, WhatNobodyCountedIsADash) {
  Report report = MakeReport();
  report.rows = {report.rows[0]};
  report.rows[0].cost.flops.reset();
  std::ostringstream csv;
  PrintCsv(csv, report);
  // GFLOP/s and % of peak; then GB/s, x heed and scratch, which are known.
  EXPECT_THAT(csv.str(), HasSubstr(",-,-,0.0,1.00,5 KiB,-,10,"));
  const nlohmann::json row = ToJson(report).at("rows").at(0);
  EXPECT_FALSE(row.contains("gflops"));
  EXPECT_FALSE(row.contains("fraction_of_fma_peak"));
  EXPECT_EQ(row.at("bytes"), 4000);
  EXPECT_EQ(row.at("scratch_bytes"), 5120);
}

TEST(Report, NamedShapesTellTheirOptions) {
  Report report = MakeReport();
  Case& shape = report.rows[0].shape;
  shape.model = "gemma2-2b:prefill";
  shape.window_left = 4095;
  shape.softcap = 50;
  shape.dtype = DType::kBFloat16;
  report.rows[0].peak_bytes = 3 << 20;
  const nlohmann::json row = ToJson(report).at("rows").at(0);
  EXPECT_EQ(row.at("model"), "gemma2-2b:prefill");
  EXPECT_EQ(row.at("dtype"), "bfloat16");
  EXPECT_EQ(row.at("shape").at("window_left"), 4095);
  EXPECT_EQ(row.at("shape").at("softcap"), 50);
  EXPECT_EQ(row.at("peak_bytes"), 3 << 20);
  std::ostringstream csv;
  PrintCsv(csv, report);
  EXPECT_THAT(csv.str(), HasSubstr("gemma2-2b:prefill,8,64,1024,full w4095 cap50,bfloat16,1,heed"));
}

TEST(Report, SocketsOfADeviceAreTold) {
  Report report = MakeReport();
  Case& shape = report.rows[0].shape;
  shape.alibi = true;
  shape.key_length = 900;
  shape.device_lengths = true;
  const nlohmann::json row = ToJson(report).at("rows").at(0).at("shape");
  EXPECT_EQ(row.at("alibi"), true);
  EXPECT_EQ(row.at("key_length"), 900);
  EXPECT_EQ(row.at("device_lengths"), true);
  std::ostringstream csv;
  PrintCsv(csv, report);
  EXPECT_THAT(csv.str(), HasSubstr(",1024,full alibi device_keys900,"));
}

// bfloat16 on a GPU, beside a peak of its type and one of float32.
Report MakeDeviceReport() {
  Report report;
  report.peers = {{"heed", "", ""}};
  report.gpu.emplace();
  report.gpu->name = "NVIDIA H200";
  report.gpu->compute_capability = "9.0";
  report.peaks = {{"fma", 1, 60000, "float32"},
                  {"mma.sync", 1, 600000, "bfloat16"},
                  {"wgmma", 1, 800000, "bfloat16"}};
  report.streams = {{.threads = 1, .read_gbps = 4300, .copy_gbps = 4200}};
  Row row = MakeRow("heed", 1024, 0.001);
  row.shape.device = Device::kCuda;
  row.shape.dtype = DType::kBFloat16;
  row.cost.scratch_bytes.reset();
  row.cold_seconds = {.count = 20, .min = 2, .p10 = 2, .median = 0.002, .p90 = 2};
  row.sending_seconds = 7e-6;
  row.load.power_w = 650;
  report.rows = {row};
  return report;
}

TEST(Report, EveryTypeHasAPeakOfItsOwnOnAGpu) {
  const Report report = MakeDeviceReport();
  EXPECT_EQ(BestPeak(report.peaks, 1, DType::kBFloat16), 800000);
  EXPECT_EQ(BestPeak(report.peaks, 1, DType::kFloat32), 60000);
  EXPECT_EQ(BestPeak(report.peaks, 1, DType::kFloat16), 0);
}

TEST(Report, Float8IsMeasuredByItsOwnProductsWhereAGpuHasThem) {
  std::vector<FmaPeak> peaks = MakeDeviceReport().peaks;
  EXPECT_EQ(BestPeak(peaks, 1, DType::kFloat8E4M3), BestPeak(peaks, 1, DType::kBFloat16));
  peaks.push_back({.target = "wgmma", .gflops = 1'600'000, .dtype = "float8_e4m3"});
  EXPECT_EQ(BestPeak(peaks, 1, DType::kFloat8E4M3), 1'600'000);
  EXPECT_EQ(BestPeak(peaks, 1, DType::kBFloat16), 800'000);
}

TEST(Report, SaysWhyAGpuHasNoSensors) {
  Report report = MakeDeviceReport();
  std::ostringstream with, without;
  PrintContext(with, report);
  report.gpu->missing = "NVML was not found";
  PrintContext(without, report);
  EXPECT_THAT(with.str(), Not(HasSubstr("no sensors")));
  EXPECT_THAT(without.str(), HasSubstr("no sensors: NVML was not found\n"));
}

TEST(Report, RowsOfAGpuTellColdTimesAndLoad) {
  const nlohmann::json json = ToJson(MakeDeviceReport());
  EXPECT_EQ(json.at("schema"), "heed-bench");
  EXPECT_EQ(json.at("machine").at("gpu").at("name"), "NVIDIA H200");
  EXPECT_EQ(json.at("probes").at("fma").at(2).at("dtype"), "bfloat16");
  EXPECT_EQ(json.at("probes").at("stream").at(0).at("copy_gbps"), 4200);
  EXPECT_FALSE(json.at("probes").at("stream").at(0).contains("triad_gbps"));
  const nlohmann::json row = json.at("rows").at(0);
  EXPECT_EQ(row.at("case"), "scaled_dot_product/h8/d64/l1024/full/bfloat16/cuda");
  EXPECT_EQ(row.at("device"), "cuda");
  EXPECT_EQ(row.at("cold_ms").at("median"), 2);
  EXPECT_EQ(row.at("cold_reps"), 20);
  EXPECT_DOUBLE_EQ(row.at("sending_ms"), 0.007);
  EXPECT_EQ(row.at("load").at("power_w"), 650);
  EXPECT_FALSE(row.contains("scratch_bytes"));
}

TEST(Report, ColumnsWithoutEntriesAreLeftOut) {
  std::ostringstream cpu, gpu;
  PrintTable(cpu, MakeReport(), Style::kPlain);
  PrintTable(gpu, MakeDeviceReport(), Style::kPlain);
  EXPECT_THAT(cpu.str(), Not(HasSubstr("cold ms")));
  EXPECT_THAT(gpu.str(), HasSubstr("cold ms"));
  EXPECT_THAT(gpu.str(), HasSubstr("2.0000"));
  EXPECT_THAT(gpu.str(), HasSubstr("0.0070"));
}

TEST(Report, TheContextNamesTheGpu) {
  std::ostringstream out;
  PrintContext(out, MakeDeviceReport());
  EXPECT_THAT(out.str(), HasSubstr("NVIDIA H200, compute capability 9.0"));
  EXPECT_THAT(out.str(), HasSubstr("FMA peak wgmma, bfloat16: 800000.0 GFLOP/s"));
  EXPECT_THAT(out.str(), HasSubstr("memory, GPU: read 4300.0 GB/s, copy 4200.0 GB/s"));
}

TEST(Report, CsvAndMarkdownHaveOneLineARow) {
  std::ostringstream csv, markdown;
  PrintCsv(csv, MakeReport());
  PrintMarkdown(markdown, MakeReport());
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(csv.str()), 1 + 4);
  EXPECT_EQ(lines(markdown.str()), 2 + 4);
}

}  // namespace
}  // namespace heed::bench
