// The float64 reference for softmax attention whose tensors are elsewhere, in device memory: row by
// row, from what each row sees.
#ifndef HEED_NATIVE_BENCH_ROW_ORACLE_H_
#define HEED_NATIVE_BENCH_ROW_ORACLE_H_

#include <functional>
#include <vector>

#include "native_bench/cases.h"
#include "native_bench/verify.h"

namespace heed::bench {

// Every row of the output, for a small problem; SampledRows() has those of a large one.
std::vector<OutputRow> AllRows(const Case& c);

// What a row of the output is made of: numbers, in float8 times their scales.
struct RowInputs {
  std::vector<float> q;  // [head_dim]
  std::vector<float> k;  // [kv_len, head_dim]
  std::vector<float> v;  // [kv_len, head_dim_v]
};

// Rows of softmax attention with the sockets of the case, computed once, compared with every peer.
class RowOracle {
 public:
  // Each row by heed::reference::Run on the head that it sees.
  RowOracle(const Case& c, const std::vector<OutputRow>& rows,
            const std::function<RowInputs(const OutputRow&)>& fetch);

  // Compares rows of an output, [head_dim_v]. Those of float8 are also held to kFloat8Spread.
  Verdict Compare(const std::function<std::vector<float>(const OutputRow&)>& fetch) const;

 private:
  struct Row {
    OutputRow at;
    std::vector<double> values;
  };
  Case case_;
  std::vector<Row> rows_;
  double bound_ = 0;
};

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_ROW_ORACLE_H_
