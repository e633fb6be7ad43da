// heed-bench --decode: one new token against a cache of keys and values, which is all reading.
#ifndef HEED_NATIVE_BENCH_DECODE_H_
#define HEED_NATIVE_BENCH_DECODE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "heed/dtype.h"
#include "native_bench/report.h"
#include "native_bench/run.h"

namespace heed::bench {

struct DecodeRow {
  DType dtype = DType::kFloat32;  // of the cache; queries and output are float32
  Heads heads;
  int64_t head_dim = 0;
  int64_t length = 0;  // tokens in the cache
  int threads = 1;
  Verdict verdict;
  Summary seconds;
  double bytes = 0;             // of keys, values and their scales
  double fraction_of_read = 0;  // of the stream-read rate with as many threads

  // "decode/int8/h32:8/d128/l4096/t1"
  std::string Name() const;
  double Gbps() const { return seconds.count ? bytes / seconds.median * 1e-9 : 0; }
};

struct DecodeReport {
  Report context;
  std::vector<DecodeRow> rows = {};
};

// The grid's heads, head sizes, key lengths and thread counts with every storage type of the cache.
// A row is verified against the reference on what its cache holds, and timed in turn with the other
// storage types. `context` is OpenReport()'s; the stream-read rates join it.
DecodeReport MeasureDecode(const Options& options, Report context, const Progress& progress,
                           const CheckpointOf<DecodeReport>& checkpoint = {});

bool AnyWrong(const DecodeReport& report);
void PrintDecode(std::ostream& out, const DecodeReport& report);
nlohmann::json ToJson(const DecodeReport& report);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_DECODE_H_
