// heed::AddSinusoidal and heed::AddLearnedPosition: a row of numbers per position, added to x.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/position/addition.cc"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "heed/position.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/worker_scratch.h"
#include "src/position/phases-inl.h"
#include "src/position/problem.h"
#include "src/position/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y = x + code. y may be x.
void AddRow(const float* x, const float* HWY_RESTRICT code, float* y, size_t dim) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t t = 0;
  for (; t + lanes <= dim; t += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + t), hn::LoadU(d, code + t)), d, y + t);
  }
  if (t < dim) {
    const size_t rest = dim - t;
    hn::StoreN(hn::Add(hn::LoadN(d, x + t, rest), hn::LoadN(d, code + t, rest)), d, y + t, rest);
  }
}

// The codes of one block of rows.
class BlockCodes {
 public:
  BlockCodes(const AdditionProblem& problem, int64_t rows)
      : p_(problem),
        dim_(static_cast<size_t>(problem.output.shape[3])),
        pairs_(problem.spectrum.frequency.size()),
        stride_(RoundUp(dim_, 16)),
        memory_(stride_ * static_cast<size_t>(rows)),
        one_row_(2 * pairs_),
        coarse_(pairs_) {}

  const float* operator[](int64_t row) const { return Row(row); }

  void Fill(const PhaseTable& phases, const RowBlock& block) {
    const int64_t b = p_.output.shape[1] > 0 ? block.first_unit / p_.output.shape[1] : 0;
    for (int64_t i = block.first_row; i < block.last_row; ++i) {
      float* row = Row(i - block.first_row);
      if (!p_.table.has_value()) {
        Sinusoidal(phases, p_.positions(b, i), row);
      } else if (p_.interpolate) {
        Interpolate(i, row);
      } else {
        const float* from = &p_.table(0, 0, p_.positions(b, i), 0);
        std::memcpy(row, from, dim_ * sizeof(float));
      }
    }
  }

 private:
  float* Row(int64_t row) const { return memory_.get() + stride_ * static_cast<size_t>(row); }

  void Sinusoidal(const PhaseTable& phases, int64_t position, float* row) {
    const float* cos = one_row_.data();
    const float* sin = cos + pairs_;
    phases.Fill(position, 0, pairs_, coarse_, one_row_.data(), one_row_.data() + pairs_);
    if (p_.interleaved) {
      for (size_t c = 0; c < dim_; ++c) row[c] = c % 2 == 0 ? sin[c / 2] : cos[c / 2];
      return;
    }
    std::copy(sin, sin + pairs_, row);
    std::copy(cos, cos + pairs_, row + pairs_);
    if (dim_ % 2 != 0) row[dim_ - 1] = 0;
  }

  void Interpolate(int64_t i, float* row) const {
    const auto [below, above, weight] = TableSharesOf(p_, i);
    const float* low = &p_.table(0, 0, below, 0);
    const float* high = &p_.table(0, 0, above, 0);
    // A row of weight 0 is not read: its NaN or Inf cannot matter.
    if (weight == 0) {
      std::memcpy(row, low, dim_ * sizeof(float));
      return;
    }
    for (size_t c = 0; c < dim_; ++c) row[c] = (1 - weight) * low[c] + weight * high[c];
  }

  const AdditionProblem& p_;
  size_t dim_, pairs_, stride_;
  AlignedFloats memory_;  // [rows, stride]
  std::vector<float> one_row_;
  CoarsePhases coarse_;
};

void AddBlock(const AdditionProblem& p, const BlockCodes& codes, const RowBlock& block) {
  const size_t dim = static_cast<size_t>(p.output.shape[3]);
  for (int64_t unit = block.first_unit; unit < block.last_unit; ++unit) {
    const int64_t b = unit / p.output.shape[1];
    const int64_t h = unit % p.output.shape[1];
    for (int64_t i = block.first_row; i < block.last_row; ++i) {
      const float* code = codes[i - block.first_row];
      float* y = &p.output(b, h, i, 0);
      if (p.x.has_value()) {
        AddRow(&p.x(b, h, i, 0), code, y, dim);
      } else {
        std::memcpy(y, code, dim * sizeof(float));
      }
    }
  }
}

void RunAddition(const AdditionProblem& p, ThreadPool& pool) {
  if (p.output.size() == 0) return;
  const RowBlocks blocks(p.output.shape, p.positions.per_batch, p.output.shape[3]);
  const PhaseTable phases(p.spectrum, NeededResidues(p.positions, p.output.shape[0]));
  const int workers = blocks.count() == 1 ? 1 : pool.NumThreads();
  std::vector<std::unique_ptr<BlockCodes>> codes;
  for (int w = 0; w < workers; ++w) {
    codes.push_back(std::make_unique<BlockCodes>(p, blocks.rows()));
  }
  if (DryRun::Current() != nullptr) return;
  const auto task = [&](int64_t index, int worker) {
    const RowBlock block = blocks[index];
    codes[static_cast<size_t>(worker)]->Fill(phases, block);
    AddBlock(p, *codes[static_cast<size_t>(worker)], block);
  };
  if (workers == 1) {
    for (int64_t index = 0; index < blocks.count(); ++index) task(index, 0);
  } else {
    pool.Run(blocks.count(), task);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunAddition);

TableShares TableSharesOf(const AdditionProblem& p, int64_t i) {
  const int64_t max_len = p.table.shape[2];
  const double ratio = static_cast<double>(max_len) / static_cast<double>(p.positions.len);
  const double at = std::clamp((static_cast<double>(i) + 0.5) * ratio - 0.5, 0.0,
                               static_cast<double>(max_len - 1));
  const int64_t low = static_cast<int64_t>(at);
  return {low, std::min(low + 1, max_len - 1), static_cast<float>(at - static_cast<double>(low))};
}

void Add(AdditionProblem problem, TensorView<float> output, ThreadPool* pool) {
  SetOutput(problem, output);
  HWY_DYNAMIC_DISPATCH(RunAddition)(problem, pool != nullptr ? *pool : DefaultThreadPool());
}

void AddSinusoidal(TensorView<const float> x, const SinusoidalOptions& options,
                   TensorView<float> output, ThreadPool* pool) {
  WithMemoryErrors("a position code", [&] {
    if (!x.has_value()) x.shape = output.shape;
    Add(ValidateSinusoidal(x, options), output, pool);
  });
}

void AddLearnedPosition(TensorView<const float> x, TensorView<const float> table,
                        const LearnedPositionOptions& options, TensorView<float> output,
                        ThreadPool* pool) {
  WithMemoryErrors("a position code",
                   [&] { Add(ValidateLearned(x, table, options), output, pool); });
}

}  // namespace heed
#endif  // HWY_ONCE
