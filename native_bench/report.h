// A report: everything that one run of heed-bench found out, and its renderings.
#ifndef HEED_NATIVE_BENCH_REPORT_H_
#define HEED_NATIVE_BENCH_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "heed/cost.h"
#include "native_bench/cases.h"
#include "native_bench/gpu.h"
#include "native_bench/machine.h"
#include "native_bench/measure.h"
#include "native_bench/probes.h"
#include "native_bench/verify.h"

namespace heed::bench {

enum class Status {
  kVerified,  // right, and not timed because --verify-only asked for that
  kTimed,     // right and timed
  kWrong,     // outside its bound, or threw: no speed
  kRefused,   // the peer cannot run this case
};

// "verified", "timed", "wrong", "refused".
const char* StatusName(Status status);

// One peer on one case.
struct Row {
  Case shape;
  std::string peer;
  Status status = Status::kRefused;
  std::string reason;          // of kWrong and kRefused
  Verdict verdict;             // the worse of the small problem and the timed one, rows of both
  Summary seconds;             // per call; on a GPU with warm caches, calls back to back
  Summary cold_seconds;        // on a GPU, single calls after its L2 was overwritten
  double sending_seconds = 0;  // on a GPU, what the host takes to send a call; 0 = not measured
  double peak_gflops = 0;      // FMA peak of the machine with this row's threads; 0 = not measured
  GpuSensors load;             // of the GPU while it ran this row again and again
  Cost cost;                   // of the problem; scratch_bytes only speaks for heed
  std::optional<int64_t> peak_bytes = {};  // high water of preparing and one call; HighWater

  // 0 = not known.
  double Gflops() const { return Rate(cost.flops.value_or(0)); }
  double Gbps() const { return Rate(static_cast<double>(cost.bytes_read + cost.bytes_written)); }
  double PeakFraction() const { return peak_gflops > 0 ? Gflops() / peak_gflops : 0; }
  // Billions a second.
  double Rate(double count) const { return seconds.count ? count / seconds.median * 1e-9 : 0; }
};

struct PeerInfo {
  std::string id;
  std::string summary;
  std::string details;
};

struct Report {
  Machine machine;
  Build build;
  std::string command;
  std::string simd_chosen;
  std::vector<std::string> simd_supported;
  uint64_t seed = 0;
  MeasurePlan plan;
  std::vector<PeerInfo> peers;
  std::optional<Gpu> gpu;      // of rows on one
  std::vector<FmaPeak> peaks;  // before the rows
  std::vector<FmaPeak>
      peaks_after;  // the best target once more, after them: how steady the clock was
  std::vector<StreamRate> streams;
  std::vector<Row> rows;
};

// The highest peak of any target that products of this type can reach with so many threads, 0 when
// none was measured. Where no product of float8 was measured, that of bfloat16, as which heed::cuda
// multiplies float8 there.
double BestPeak(const std::vector<FmaPeak>& peaks, int threads, DType dtype = DType::kFloat32);

// Indices of the fastest timed row of every case.
std::vector<size_t> BestRows(const std::vector<Row>& rows);

// Median of this row over that of heed's row of the same case: above 1 heed is faster. 0 = unknown.
double TimeOverHeed(const std::vector<Row>& rows, const Row& row);

// Version of the JSON layout: grows by one when a field changes its meaning or goes away.
inline constexpr int kJsonSchemaVersion = 2;

// What the JSON of every report begins with: date, command, machine, build, seed, plan and peaks.
nlohmann::json ContextJson(const Report& report);
nlohmann::json TimesJson(const Summary& seconds);

// Machine-readable, complete. Times in milliseconds, rates in GFLOP/s and GB/s; docs in README.md.
nlohmann::json ToJson(const Report& report);

enum class Style { kPlain, kColour };

// What was measured on, by which formula, at which peaks.
void PrintContext(std::ostream& out, const Report& report);
// Aligned columns; the best peer of each case is marked with * and, in colour, bold.
void PrintTable(std::ostream& out, const Report& report, Style style);
void PrintCsv(std::ostream& out, const Report& report);
void PrintMarkdown(std::ostream& out, const Report& report);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_REPORT_H_
