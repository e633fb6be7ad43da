// How a matrix product is cut: units, waves of packed rows, tasks, panels, register tiles.
#if defined(HEED_LINEAR_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_LINEAR_GEMM_INL_H_
#undef HEED_LINEAR_GEMM_INL_H_
#else
#define HEED_LINEAR_GEMM_INL_H_
#endif

#include <algorithm>
#include <vector>

#include "heed/thread_pool.h"
#include "src/linear/gemm.h"
#include "src/parallel/worker_scratch.h"
#include "src/simd/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows and columns of one task. A multiple of every kTileRows; of every PanelCols().
inline constexpr size_t kGemmRows = 96;
inline constexpr size_t kGemmCols = 256;
// Terms that are summed by themselves before they join the total: shorter chains, less rounding,
// and a panel of B of this depth stays in L1 while the rows of a task pass over it.
inline constexpr size_t kGemmDepth = 256;
// Packed rows of A in flight: 4 MiB.
inline constexpr size_t kGemmPackedFloats = size_t{1} << 20;

// Sizes, fixed before any thread starts. A unit is one matrix B and all the rows that it
// multiplies: where B broadcasts over batch or heads, rows run over those too.
struct GemmPlan {
  const GemmProblem* problem;
  size_t depth;      // k
  size_t cols;       // n
  size_t rows;       // of a unit
  size_t num_units;  // distinct matrices B
  size_t unit_batch, unit_heads, row_heads;
  size_t wave_rows;   // rows of a unit that are packed together
  size_t wave_units;  // units that are packed together
  bool shared_b;      // several row blocks read B: it is packed once for all

  GemmPlan(const GemmProblem& p, int threads) : problem(&p) {
    const auto [batch, heads, m, k] = p.a.shape;
    depth = static_cast<size_t>(k);
    cols = static_cast<size_t>(p.b.shape[3]);
    unit_batch = static_cast<size_t>(p.b.strides[0] == 0 ? 1 : batch);
    unit_heads = static_cast<size_t>(p.b.strides[1] == 0 ? 1 : heads);
    row_heads = static_cast<size_t>(p.b.strides[1] == 0 ? heads : 1);
    const size_t row_batch = static_cast<size_t>(p.b.strides[0] == 0 ? batch : 1);
    rows = row_batch * row_heads * static_cast<size_t>(m);
    num_units = batch == 0 || heads == 0 ? 0 : unit_batch * unit_heads;
    shared_b = rows > kGemmRows;
    // Every thread finds a block of rows, however long they are.
    const size_t floats =
        std::max(kGemmPackedFloats, static_cast<size_t>(threads) * kGemmRows * depth);
    wave_rows = std::min(rows, RoundUp(floats / std::max<size_t>(1, depth), kGemmRows));
    wave_units = 1;
    if (wave_rows == rows) {
      wave_units = floats / std::max<size_t>(1, PackedAFloats() + PackedBFloats());
      wave_units = std::clamp<size_t>(wave_units, 1, std::max<size_t>(1, num_units));
    }
  }

  size_t PackedAFloats() const { return wave_rows * depth; }
  size_t PackedBFloats() const { return shared_b ? RoundUp(cols, PanelCols()) * depth : 0; }
  size_t ColBlocks() const { return (cols + kGemmCols - 1) / kGemmCols; }

  // Offset of row r of a unit in a tensor with these strides.
  int64_t RowOffset(const Extents& strides, size_t unit, size_t r) const {
    const size_t m = static_cast<size_t>(problem->a.shape[2]);
    const size_t b = unit / unit_heads + r / m / row_heads;
    const size_t h = unit % unit_heads + r / m % row_heads;
    return static_cast<int64_t>(b) * strides[0] + static_cast<int64_t>(h) * strides[1] +
           static_cast<int64_t>(r % m) * strides[2];
  }

  // Packs rows [t0, t0 + count) of panel number `panel` of B as [count][PanelCols()].
  void PackPanel(size_t unit, size_t panel, size_t t0, size_t count, float* HWY_RESTRICT to) const {
    const TensorView<const float>& b = problem->b;
    const size_t first = panel * PanelCols();
    const size_t width = std::min(PanelCols(), cols - first);
    const float* from = b.data + static_cast<int64_t>(unit / unit_heads) * b.strides[0] +
                        static_cast<int64_t>(unit % unit_heads) * b.strides[1] +
                        static_cast<int64_t>(t0) * b.strides[2] +
                        static_cast<int64_t>(first) * b.strides[3];
    if (b.strides[3] == 1) {
      PackPanels({from, b.strides[2]}, count, width, count, to);
    } else {
      PackTransposedPanel({from, b.strides[3]}, width, count, to);
    }
  }
};

// One product. All memory is allocated by the constructor.
class GemmLoop {
 public:
  GemmLoop(const GemmPlan& plan, ThreadPool& pool)
      : plan_(plan),
        pool_(pool),
        a_(plan.wave_units * plan.PackedAFloats()),
        b_(plan.wave_units * plan.PackedBFloats()) {
    const size_t panel = plan.shared_b ? 0 : std::min(plan.depth, kGemmDepth) * PanelCols();
    const size_t rows = std::min(plan.wave_rows, kGemmRows);
    const size_t cols = std::min(RoundUp(plan.cols, PanelCols()), kGemmCols);
    for (int w = 0; w < pool.NumThreads(); ++w) {
      panels_.emplace_back(panel);
      products_.emplace_back(rows * cols);
    }
  }

  void Run() {
    for (size_t unit = 0; unit < plan_.num_units; unit += plan_.wave_units) {
      const size_t units = std::min(plan_.wave_units, plan_.num_units - unit);
      if (plan_.shared_b) PackB(unit, units);
      for (size_t row = 0; row < plan_.rows; row += plan_.wave_rows) {
        const size_t rows = std::min(plan_.wave_rows, plan_.rows - row);
        const size_t row_blocks = (rows + kGemmRows - 1) / kGemmRows;
        RunTasks(units * row_blocks, [&](size_t index, size_t) {
          PackA(unit, index / row_blocks, row, rows, index % row_blocks);
        });
        const size_t col_blocks = plan_.ColBlocks();
        RunTasks(units * row_blocks * col_blocks, [&](size_t index, size_t worker) {
          const size_t block = index / units;
          Multiply({unit, index % units, row, rows, block / col_blocks * kGemmRows,
                    block % col_blocks * kGemmCols},
                   worker);
        });
      }
    }
  }

 private:
  // Rows [row + row_begin, ..) and columns [col_begin, ..) of unit `first_unit + slot`, where the
  // wave holds `rows` rows from `row` on.
  struct Task {
    size_t first_unit, slot;
    size_t row, rows;
    size_t row_begin, col_begin;
  };

  template <class Body>
  void RunTasks(size_t count, Body&& body) {
    pool_.Run(static_cast<int64_t>(count), [&](int64_t index, int worker) {
      body(static_cast<size_t>(index), static_cast<size_t>(worker));
    });
  }

  void PackB(size_t first_unit, size_t units) {
    const size_t panels = (plan_.cols + PanelCols() - 1) / PanelCols();
    RunTasks(units * panels, [&](size_t index, size_t) {
      const size_t slot = index / panels;
      float* to =
          b_.get() + slot * plan_.PackedBFloats() + index % panels * plan_.depth * PanelCols();
      plan_.PackPanel(first_unit + slot, index % panels, 0, plan_.depth, to);
    });
  }

  // Packs a block of kGemmRows rows as groups [depth][kTileRows]; the last group may be narrower.
  void PackA(size_t first_unit, size_t slot, size_t row, size_t rows, size_t block) {
    const GemmProblem& p = *plan_.problem;
    const size_t end = std::min(rows, (block + 1) * kGemmRows);
    for (size_t group = block * kGemmRows; group < end; group += kTileRows) {
      const size_t count = std::min(kTileRows, end - group);
      const float* pointers[kTileRows];
      for (size_t i = 0; i < count; ++i) {
        pointers[i] = p.a.data + plan_.RowOffset(p.a.strides, first_unit + slot, row + group + i);
      }
      TransposeRows(pointers, count, plan_.depth,
                    a_.get() + slot * plan_.PackedAFloats() + group * plan_.depth, count);
    }
  }

  void Multiply(const Task& task, size_t worker) {
    const size_t num_rows = std::min(kGemmRows, task.rows - task.row_begin);
    const size_t num_cols = std::min(kGemmCols, plan_.cols - task.col_begin);
    const size_t stride = RoundUp(num_cols, PanelCols());
    const float* a = a_.get() + task.slot * plan_.PackedAFloats() + task.row_begin * plan_.depth;
    float* product = products_[worker].get();
    if (plan_.depth == 0) std::fill_n(product, num_rows * stride, 0.0f);
    for (size_t t0 = 0; t0 < plan_.depth; t0 += kGemmDepth) {
      const size_t depth = std::min(kGemmDepth, plan_.depth - t0);
      for (size_t c = 0; c < stride; c += PanelCols()) {
        const float* panel = Panel(task, (task.col_begin + c) / PanelCols(), t0, depth, worker);
        if (t0 == 0) {
          MultiplyPanel(a, panel, t0, depth, num_rows, product + c, stride, StoreOnly());
        } else {
          MultiplyPanel(a, panel, t0, depth, num_rows, product + c, stride, AddToStored());
        }
      }
    }
    WriteRows(task, num_rows, num_cols, product, stride);
  }

  const float* Panel(const Task& task, size_t panel, size_t t0, size_t depth, size_t worker) {
    if (plan_.shared_b) {
      return b_.get() + task.slot * plan_.PackedBFloats() +
             (panel * plan_.depth + t0) * PanelCols();
    }
    plan_.PackPanel(task.first_unit + task.slot, panel, t0, depth, panels_[worker].get());
    return panels_[worker].get();
  }

  // All rows of a task times one panel.
  template <class Store>
  void MultiplyPanel(const float* a, const float* panel, size_t t0, size_t depth, size_t num_rows,
                     float* to, size_t stride, Store store) {
    const size_t whole = num_rows / kTileRows * kTileRows;
    for (size_t r = 0; r < whole; r += kTileRows) {
      RegisterTile<ALayout<kTileRows, 1>, kTileRows>(MultiplyAccumulate(),
                                                     a + r * plan_.depth + t0 * kTileRows, panel,
                                                     depth, to + r * stride, stride, store);
    }
    if (whole == num_rows) return;
    WithRows<kTileRows - 1>(num_rows - whole, [&]<size_t kRows>() HWY_ATTR {
      RegisterTile<ALayout<kRows, 1>, kRows>(MultiplyAccumulate(),
                                             a + whole * plan_.depth + t0 * kRows, panel, depth,
                                             to + whole * stride, stride, store);
    });
  }

  void WriteRows(const Task& task, size_t num_rows, size_t num_cols, const float* product,
                 size_t stride) const {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    const GemmProblem& p = *plan_.problem;
    const bool has_bias = !p.bias.empty();
    const float* bias = has_bias ? p.bias.data() + task.col_begin : nullptr;
    for (size_t r = 0; r < num_rows; ++r) {
      const float* HWY_RESTRICT from = product + r * stride;
      float* HWY_RESTRICT to = p.out.data + static_cast<int64_t>(task.col_begin) +
                               plan_.RowOffset(p.out.strides, task.first_unit + task.slot,
                                               task.row + task.row_begin + r);
      if (!has_bias) {
        std::copy(from, from + num_cols, to);
        continue;
      }
      size_t c = 0;
      for (; c + lanes <= num_cols; c += lanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, from + c), hn::LoadU(d, bias + c)), d, to + c);
      }
      for (; c < num_cols; ++c) to[c] = from[c] + bias[c];
    }
  }

  const GemmPlan& plan_;
  ThreadPool& pool_;
  AlignedFloats a_;  // packed rows of a wave: [unit][group][depth][rows]
  AlignedFloats b_;  // packed matrices of a wave, if shared: [unit][panel][depth][columns]
  std::vector<AlignedFloats> panels_;    // per worker: one panel of B, kGemmDepth deep
  std::vector<AlignedFloats> products_;  // per worker: the product of one task
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_LINEAR_GEMM_INL_H_
