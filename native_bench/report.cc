#include "native_bench/report.h"

#include <algorithm>

namespace heed::bench {

const char* StatusName(Status status) {
  switch (status) {
    case Status::kVerified:
      return "verified";
    case Status::kTimed:
      return "timed";
    case Status::kWrong:
      return "wrong";
    case Status::kRefused:
      return "refused";
  }
  return "";
}

double BestPeak(const std::vector<FmaPeak>& peaks, int threads, DType dtype) {
  double best = 0;
  for (const FmaPeak& peak : peaks) {
    const bool reachable = peak.dtype.empty() || peak.dtype == DTypeName(dtype);
    if (peak.threads == threads && reachable) best = std::max(best, peak.gflops);
  }
  const bool widened = best == 0 && dtype == DType::kFloat8E4M3;
  return widened ? BestPeak(peaks, threads, DType::kBFloat16) : best;
}

std::vector<size_t> BestRows(const std::vector<Row>& rows) {
  std::vector<size_t> best;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].status != Status::kTimed) continue;
    const bool same_case = !best.empty() && rows[best.back()].shape == rows[i].shape;
    if (!same_case) {
      best.push_back(i);
    } else if (rows[i].seconds.median < rows[best.back()].seconds.median) {
      best.back() = i;
    }
  }
  return best;
}

double TimeOverHeed(const std::vector<Row>& rows, const Row& row) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
    return other.peer == "heed" && other.shape == row.shape && other.status == Status::kTimed;
  });
  if (found == rows.end() || row.status != Status::kTimed) return 0;
  return row.seconds.median / found->seconds.median;
}

}  // namespace heed::bench
