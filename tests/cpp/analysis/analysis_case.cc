#include "analysis_case.h"

#include "random.h"

namespace heed::testing {
namespace {

AttentionCase Grouped() {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 6,
                              .num_kv_heads = 2,
                              .q_len = 70,
                              .kv_len = 300,
                              .head_dim = 16,
                              .head_dim_v = 8},
                             3, Layout::kPadded);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(-4);  // the first four rows are empty
  c.sinks = {0.5f, -1, 2, 0, 1, -2};
  return c;
}

AttentionCase Masked() {
  AttentionCase c = MakeCase({.num_heads = 2,
                              .num_kv_heads = 2,
                              .q_len = 65,
                              .kv_len = 129,
                              .head_dim = 24,
                              .head_dim_v = 5},
                             4);
  Random random(9);
  c.keep = MakeKeep({1, 2, 65, 129}, random, 0.6);
  c.bias = MakeBias({1, 1, 65, 129}, random, 0.1);
  c.alibi_slopes = {0.25f, 0.0625f};
  c.scalars.query_offset = QueryOffset::End();
  c.scalars.softcap = 4.0;
  return c;
}

AttentionCase Distances() {
  AttentionCase c = MakeCase({.batch = 2, .q_len = 40, .kv_len = 40, .head_dim = 3}, 5);
  c.scalars.score = Score::kSquaredDistance;
  c.scalars.normalize = Normalize::kKernelSum;
  c.scalars.kernel = Kernel::kTriangular;
  c.width = {2.5f};
  return c;
}

}  // namespace

std::vector<AttentionCase> AnalysisCases() {
  std::vector<AttentionCase> cases = {Grouped(), Masked(), Distances()};
  for (const int64_t len : {1, 3, 64, 257}) {
    cases.push_back(MakeCase({.q_len = len, .kv_len = len}, static_cast<uint64_t>(len)));
  }
  return cases;
}

std::vector<RowBound> BoundsOf(const AttentionCase& c) { return RowBounds(c, RunOracle(c)); }

}  // namespace heed::testing
