// The derivatives of relative terms: of scores (score/relative-inl.h) and of values
// (relative_values-inl.h). A row of a tile is summed by table row first; what is left meets the
// table row by row, once for a query and a tile. For terms of keys a column is summed in the same
// way.
#if defined(HEED_EXACT_RELATIVE_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_RELATIVE_GRADIENT_INL_H_
#undef HEED_EXACT_RELATIVE_GRADIENT_INL_H_
#else
#define HEED_EXACT_RELATIVE_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <span>

#include "hwy/highway.h"
#include "src/exact/problem.h"
#include "src/exact/relative_tables-inl.h"
#include "src/exact/score_gradient-inl.h"
#include "src/simd/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Tables [1, 1 or num_heads, rows, dim] where they lie, by the rows of the index.
class TableView {
 public:
  TableView(const TensorView<const float>& table, const RelativeIndex& index)
      : table_(table), reversed_(index.reversed()) {}

  bool has_value() const { return table_.has_value(); }
  size_t num_tables() const { return has_value() ? static_cast<size_t>(table_.shape[1]) : 0; }
  size_t dim() const { return static_cast<size_t>(table_.shape[3]); }
  // Numbers of one table.
  size_t Size() const {
    return has_value() ? static_cast<size_t>(table_.shape[2] * table_.shape[3]) : 0;
  }
  size_t RowInTable(size_t n) const {
    return reversed_ ? static_cast<size_t>(table_.shape[2]) - 1 - n : n;
  }
  const float* Row(int64_t head, size_t n) const {
    const int64_t row = static_cast<int64_t>(RowInTable(n));
    return &table_(0, table_.shape[1] == 1 ? 0 : head, row, 0);
  }

 private:
  TensorView<const float> table_;
  bool reversed_;
};

// Calls visit(column, table row) for the keys of row r, in ascending order.
template <class Visit>
HWY_INLINE void ForEachTableRow(const RelativeIndex& index, const ScoreTile& tile, size_t r,
                                const Visit& visit) {
  constexpr size_t kRun = RelativeIndex::kMargin;
  const size_t last = std::min(tile.last, tile.num_keys);
  for (size_t c = tile.first; c < last; c += kRun) {
    const int32_t* rows = TableRowsFrom(index, tile, r, c);
    for (size_t x = 0; x < std::min(kRun, last - c); ++x) {
      visit(c + x, static_cast<size_t>(rows[x]));
    }
  }
}

// Calls visit(table row, sum of its cells) for row r of a tile, where the sum is not 0.
template <class Visit>
HWY_INLINE void ForEachSum(const RelativeIndex& index, const ScoreTile& tile, size_t r,
                           const Visit& visit) {
  const size_t last = std::min(tile.last, tile.num_keys);
  if (tile.first >= last) return;
  float sums[kTileTableRows];
  const TableRange range = TableRowsOf(index, tile, r, 1, tile.first, last);
  std::fill_n(sums, range.end - range.begin, 0.0f);
  const float* cells = tile.row_scores(r);
  ForEachTableRow(index, tile, r, [&](size_t c, size_t n) { sums[n - range.begin] += cells[c]; });
  for (size_t n = range.begin; n < range.end; ++n) {
    if (sums[n - range.begin] != 0) visit(n, sums[n - range.begin]);
  }
}

inline void AddScaled(float factor, const float* HWY_RESTRICT from, size_t count,
                      float* HWY_RESTRICT to) {
  for (size_t t = 0; t < count; ++t) to[t] += factor * from[t];
}
inline void AddScaled(float factor, const float* HWY_RESTRICT from, size_t count,
                      double* HWY_RESTRICT to) {
  for (size_t t = 0; t < count; ++t) {
    to[t] += static_cast<double>(factor) * static_cast<double>(from[t]);
  }
}

// With r and t the rows of relative_keys and relative_queries of a pair: dq_i gets
// scale sum_j d_s_ij r, r gets scale d_s_ij (q_i + position_bias), dk_j gets scale sum_i d_s_ij t,
// t gets scale d_s_ij k_j, position_bias the first and content_bias what dot products give to
// queries.
class RelativeDotGradient final : public ScoreGradient {
 public:
  // Packed queries are multiplied by `packed_scale`, the scale in the units of the tile.
  RelativeDotGradient(const AttentionProblem& p, float packed_scale)
      : p_(p),
        packed_scale_(packed_scale),
        unpack_(packed_scale == 0 ? 0 : p.scale / packed_scale),
        index_(p),
        keys_(p.options.relative_keys, index_),
        queries_(p.options.relative_queries, index_) {}

  bool HasTerms() const override { return keys_.has_value() || queries_.has_value(); }
  void AddTerms(const ScoreTile& d_scores, const float* queries, const PanelRows& keys,
                const TermSums& sums) const override {
    for (size_t r = 0; r < d_scores.num_rows; ++r) {
      double* const lane =
          sums.params == nullptr ? nullptr : LaneParams(sums.params, d_scores.rows[r]);
      if (keys_.has_value()) {
        if (lane != nullptr) GatherQuery(d_scores, queries, r, sums.row);
        AddQueryTerms(d_scores, r, keys.cols, sums, lane);
      }
    }
    if (queries_.has_value()) AddKeyTerms(d_scores, keys, sums);
  }

  void Query(const Row& row, const float*, const ScoreSums& sums, float* d_q,
             double* params) const override {
    double* const lane =
        params == nullptr ? nullptr : LaneParams(params, row) + keys_.Size() + queries_.Size();
    for (size_t t = 0; t < Dim(); ++t) {
      const float content = p_.scale * sums.vectors[t];
      const float position = sums.terms == nullptr ? 0.0f : p_.scale * sums.terms[t];
      d_q[t] = content + position;
      if (lane == nullptr) continue;
      lane[t] += static_cast<double>(content);
      lane[Dim() + t] += static_cast<double>(position);
    }
  }
  void Key(int64_t, const float*, const ScoreSums& sums, float* d_k, double*) const override {
    for (size_t t = 0; t < Dim(); ++t) d_k[t] = unpack_ * sums.vectors[t];
  }

  // Of each query head of a KV head: its tables of keys and queries, content and position bias.
  // In all: the tables of keys, of queries, then both biases of all heads.
  size_t QueryParams() const override { return static_cast<size_t>(p_.group) * LaneSize(); }
  size_t NumParams() const override {
    return BiasStart() + 2 * static_cast<size_t>(p_.num_heads) * Dim();
  }
  size_t QueryParamOf(int64_t kv_head, size_t n) const override {
    const size_t head = static_cast<size_t>(kv_head * p_.group) + n / LaneSize();
    size_t at = n % LaneSize();
    if (at < keys_.Size()) return at + (keys_.num_tables() == 1 ? 0 : head * keys_.Size());
    at -= keys_.Size();
    if (at < queries_.Size()) {
      return QueryStart() + at + (queries_.num_tables() == 1 ? 0 : head * queries_.Size());
    }
    at -= queries_.Size();
    const size_t which = at / Dim();  // content or position
    return BiasStart() + (which * static_cast<size_t>(p_.num_heads) + head) * Dim() + at % Dim();
  }

  void Store(std::span<const double> params, const AttentionGradients& to) const override {
    StoreTensor(params.data(), to.d_relative_keys);
    StoreTensor(params.data() + QueryStart(), to.d_relative_queries);
    const double* biases = params.data() + BiasStart();
    StoreTensor(biases, to.d_content_bias);
    StoreTensor(biases + static_cast<size_t>(p_.num_heads) * Dim(), to.d_position_bias);
  }

 private:
  size_t Dim() const { return static_cast<size_t>(p_.head_dim); }
  size_t LaneSize() const { return keys_.Size() + queries_.Size() + 2 * Dim(); }
  size_t QueryStart() const { return keys_.num_tables() * keys_.Size(); }
  size_t BiasStart() const { return QueryStart() + queries_.num_tables() * queries_.Size(); }
  double* LaneParams(double* params, const Row& row) const {
    return params + static_cast<size_t>(row.head % p_.group) * LaneSize();
  }

  // The packed position query of row r, which lies in its row group as a column.
  void GatherQuery(const ScoreTile& tile, const float* queries, size_t r, float* to) const {
    const size_t group = r / kTileRows * kTileRows;
    const size_t count = std::min(kTileRows, tile.num_rows - group);
    const float* from = queries + group * 2 * Dim() + Dim() * count + (r - group);
    for (size_t t = 0; t < Dim(); ++t) to[t] = from[t * count];
  }

  void AddQueryTerms(const ScoreTile& d_scores, size_t r, size_t cols, const TermSums& sums,
                     double* lane) const {
    const int64_t head = d_scores.rows[r].head;
    ForEachSum(index_, d_scores, r, [&](size_t n, float sum) {
      if (sums.queries != nullptr) {
        AddScaled(sum, keys_.Row(head, n), Dim(), sums.queries + r * cols);
      }
      if (lane == nullptr) return;
      AddScaled(sum * unpack_, sums.row, Dim(), lane + keys_.RowInTable(n) * Dim());
    });
  }

  // Keys whose columns are summed together, and the most positions that their queries lie apart.
  static constexpr size_t kRunKeys = 16, kRunPositions = 96;

  // Rows from r on that are no farther apart: all, but where two packed sequences meet.
  static size_t RowsOfRun(const ScoreTile& tile, size_t r) {
    int64_t near = tile.rows[r].position, far = near;
    size_t end = r + 1;
    for (; end < tile.num_rows; ++end) {
      near = std::min(near, tile.rows[end].position);
      far = std::max(far, tile.rows[end].position);
      if (far - near >= static_cast<int64_t>(kRunPositions)) break;
    }
    return end - r;
  }

  void AddKeyTerms(const ScoreTile& d_scores, const PanelRows& keys, const TermSums& to) const {
    const size_t last = std::min(d_scores.last, d_scores.num_keys);
    const int64_t lanes = queries_.num_tables() == 1 ? 1 : p_.group;
    for (size_t r = 0; r < d_scores.num_rows;) {
      const size_t count = RowsOfRun(d_scores, r);
      for (size_t c = d_scores.first; c < last; c += kRunKeys) {
        const size_t width = std::min(kRunKeys, last - c);
        for (int64_t lane = 0; lane < lanes; ++lane) {
          AddKeyRun(d_scores, {r, r + count}, {c, c + width}, lane, keys, to);
        }
      }
      r += count;
    }
  }

  struct Run {
    size_t begin, end;
  };

  // Columns of a tile, of the rows whose heads share a table.
  void AddKeyRun(const ScoreTile& d_scores, const Run& rows, const Run& columns, int64_t lane,
                 const PanelRows& keys, const TermSums& to) const {
    float sums[kRunKeys][kRunKeys + kRunPositions];
    const TableRange range = TableRowsOf(index_, d_scores, rows.begin, rows.end - rows.begin,
                                         columns.begin, columns.end);
    const size_t width = columns.end - columns.begin;
    for (size_t x = 0; x < width; ++x) std::fill_n(sums[x], range.end - range.begin, 0.0f);
    for (size_t r = rows.begin; r < rows.end; ++r) {
      if (queries_.num_tables() > 1 && d_scores.rows[r].head % p_.group != lane) continue;
      const int32_t* const at = TableRowsFrom(index_, d_scores, r, columns.begin);
      const float* const cells = d_scores.row_scores(r) + columns.begin;
      for (size_t x = 0; x < width; ++x) {
        sums[x][static_cast<size_t>(at[x]) - range.begin] += cells[x];
      }
    }
    const int64_t head = d_scores.rows[rows.begin].head / p_.group * p_.group + lane;
    for (size_t x = 0; x < width; ++x) {
      for (size_t n = range.begin; n < range.end; ++n) {
        const float sum = sums[x][n - range.begin];
        if (sum != 0) AddKeySum(sum, head, n, columns.begin + x, keys, to);
      }
    }
  }

  // What a key and a row of the table give each other.
  void AddKeySum(float sum, int64_t head, size_t n, size_t key, const PanelRows& keys,
                 const TermSums& to) const {
    if (to.keys != nullptr) {
      AddScaled(sum * packed_scale_, queries_.Row(head, n), Dim(), to.keys + key * keys.cols);
    }
    if (to.params == nullptr) return;
    double* const lane = to.params + static_cast<size_t>(head % p_.group) * LaneSize();
    double* const row = lane + keys_.Size() + queries_.RowInTable(n) * Dim();
    for (size_t t = 0; t < Dim(); t += PanelCols()) {
      AddScaled(sum * p_.scale, keys.At(key, t), std::min(PanelCols(), Dim() - t), row + t);
    }
  }

  const AttentionProblem& p_;
  float packed_scale_, unpack_;
  RelativeIndex index_;
  TableView keys_, queries_;
};

// With w the row of relative_values of a pair: d_p_ij gets d_out_i . w, and w gets p_ij d_out_i.
class RelativeValuesGradient final : public ValueTermsGradient {
 public:
  explicit RelativeValuesGradient(const AttentionProblem& p)
      : p_(p), index_(p), values_(p.options.relative_values, index_) {}

  size_t Size() const override { return values_.Size(); }

  void AddDots(const ScoreTile& d_weights, const PanelRows& d_out) const override {
    float dots[kTileTableRows];
    const size_t last = std::min(d_weights.last, d_weights.num_keys);
    for (size_t r = 0; r < d_weights.num_rows && d_weights.first < last; ++r) {
      const TableRange range = TableRowsOf(index_, d_weights, r, 1, d_weights.first, last);
      for (size_t n = range.begin; n < range.end; ++n) {
        dots[n - range.begin] = Dot(values_.Row(d_weights.rows[r].head, n), d_out, r);
      }
      float* cells = d_weights.row_scores(r);
      ForEachTableRow(index_, d_weights, r,
                      [&](size_t c, size_t n) { cells[c] += dots[n - range.begin]; });
    }
  }

  void AddSums(const ScoreTile& weights, const PanelRows& d_out, double* sums) const override {
    const size_t dim = values_.dim();
    for (size_t r = 0; r < weights.num_rows; ++r) {
      double* table = sums + static_cast<size_t>(weights.rows[r].head % p_.group) * Size();
      ForEachSum(index_, weights, r, [&](size_t n, float sum) {
        double* row = table + values_.RowInTable(n) * dim;
        for (size_t t = 0; t < dim; t += PanelCols()) {
          AddScaled(sum, d_out.At(r, t), std::min(PanelCols(), dim - t), row + t);
        }
      });
    }
  }

 private:
  float Dot(const float* row, const PanelRows& d_out, size_t r) const {
    float sum = 0;
    for (size_t t = 0; t < values_.dim(); t += PanelCols()) {
      const float* HWY_RESTRICT panel = d_out.At(r, t);
      const size_t count = std::min(PanelCols(), values_.dim() - t);
      for (size_t x = 0; x < count; ++x) sum += row[t + x] * panel[x];
    }
    return sum;
  }

  const AttentionProblem& p_;
  RelativeIndex index_;
  TableView values_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_RELATIVE_GRADIENT_INL_H_
