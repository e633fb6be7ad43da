// heed::Explain: the keep plugs as a picture.
#include <algorithm>
#include <limits>
#include <vector>

#include "heed/attention.h"
#include "src/exact/attention_spans.h"
#include "src/exact/keep/plugs.h"
#include "src/exact/keep/range.h"
#include "src/exact/problem.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// What the row sees of the tile of keys at `begin`.
KeyBits SeenKeys(const AttentionProblem& p, const KeepPlugs& plugs, int64_t batch, const Row& row,
                 int64_t begin) {
  const size_t count =
      static_cast<size_t>(std::min(p.kv_len - begin, static_cast<int64_t>(kTileKeys)));
  const KeepTile tile = {batch, &row, 1, begin, count};
  const ColumnRange columns = VisibleColumns(row, begin, count);
  KeyBits bits;
  for (const auto& plug : plugs) {
    if (!plug->MayMeet(tile)) return bits;
  }
  bits.SetRange(columns.begin, columns.end);
  for (const auto& plug : plugs) plug->Narrow(tile, &bits);
  return bits;
}

void ExplainRow(const AttentionProblem& p, const KeepPlugs& plugs, int64_t batch, const Row& row,
                const TensorView<uint8_t>& picture) {
  const float hidden = -std::numeric_limits<float>::infinity();
  const auto& bias = p.options.bias;
  KeyBits bits;
  for (int64_t j = 0; j < p.kv_len; ++j) {
    const size_t c = static_cast<size_t>(j) % kTileKeys;
    if (c == 0) bits = SeenKeys(p, plugs, batch, row, j);
    const bool biased_away = bias.has_value() && bias(batch, row.head, row.query, j) == hidden;
    picture(batch, row.head, row.query, j) = bits.Test(c) && !biased_away ? 1 : 0;
  }
}

void ExplainProblem(const AttentionProblem& p, const TensorView<uint8_t>& picture) {
  const KeepPlugs plugs = MakeKeepPlugs(p);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.num_heads; ++h) {
      for (int64_t i = 0; i < p.q_len; ++i) {
        Row row = {h, i, p.Position(b, i), VisibleKeys(p, b, i)};
        NarrowToHulls(plugs, b, row);
        ExplainRow(p, plugs, b, row, picture);
      }
    }
  }
}

}  // namespace

void Explain(const AttentionOptions& options, TensorView<uint8_t> picture) {
  WithMemoryErrors("a picture of keep rules", [&] {
    CheckInput("picture", picture);
    const AttentionProblem p = ValidateKeepRules(picture.shape, options);
    OutputSpans({{"picture", picture}}).ApartFrom(options);
    ExplainProblem(p, picture);
  });
}

}  // namespace heed
