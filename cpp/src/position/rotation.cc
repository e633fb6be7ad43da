// heed::Rope and heed::Xpos: pairs of dimensions turned by tables of cosines and sines.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/position/rotation.cc"
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
#include "src/simd/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// (y1, y2) = (x1 cos - x2 sin, x2 cos + x1 sin) for dimensions t and pairs + t. y may be x.
void RotateHalf(const float* x, float* y, const float* HWY_RESTRICT cos,
                const float* HWY_RESTRICT sin, size_t pairs) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t t = 0;
  for (; t + lanes <= pairs; t += lanes) {
    const auto c = hn::LoadU(d, cos + t);
    const auto s = hn::LoadU(d, sin + t);
    const auto x1 = hn::LoadU(d, x + t);
    const auto x2 = hn::LoadU(d, x + pairs + t);
    hn::StoreU(Fma(x1, c, hn::Mul(x2, hn::Neg(s))), d, y + t);
    hn::StoreU(Fma(x2, c, hn::Mul(x1, s)), d, y + pairs + t);
  }
  if (t < pairs) {
    const size_t rest = pairs - t;
    const auto c = hn::LoadN(d, cos + t, rest);
    const auto s = hn::LoadN(d, sin + t, rest);
    const auto x1 = hn::LoadN(d, x + t, rest);
    const auto x2 = hn::LoadN(d, x + pairs + t, rest);
    hn::StoreN(Fma(x1, c, hn::Mul(x2, hn::Neg(s))), d, y + t, rest);
    hn::StoreN(Fma(x2, c, hn::Mul(x1, s)), d, y + pairs + t, rest);
  }
}

// The same for dimensions 2t and 2t + 1, with tables [c0 c0 c1 c1 ...] and [-s0 s0 -s1 s1 ...].
void RotateInterleaved(const float* x, float* y, const float* HWY_RESTRICT cos,
                       const float* HWY_RESTRICT sin, size_t dims) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t t = 0;
  for (; t + lanes <= dims; t += lanes) {
    const auto v = hn::LoadU(d, x + t);
    const auto swapped = hn::Mul(hn::Reverse2(d, v), hn::LoadU(d, sin + t));
    hn::StoreU(Fma(v, hn::LoadU(d, cos + t), swapped), d, y + t);
  }
  if (t < dims) {
    const size_t rest = dims - t;
    const auto v = hn::LoadN(d, x + t, rest);
    const auto swapped = hn::Mul(hn::Reverse2(d, v), hn::LoadN(d, sin + t, rest));
    hn::StoreN(Fma(v, hn::LoadN(d, cos + t, rest), swapped), d, y + t, rest);
  }
}

// The tables of one block, in the order that the kernel of the pairing reads.
class BlockTables {
 public:
  BlockTables(const RotationProblem& problem, int64_t rows)
      : p_(problem),
        pairs_(static_cast<size_t>(problem.pairs())),
        interleaved_(problem.pairing == RopePairing::kInterleaved),
        width_(interleaved_ ? 2 * pairs_ : pairs_),
        stride_(RoundUp(width_, 16)),
        memory_(2 * stride_ * static_cast<size_t>(rows)),
        one_row_(2 * pairs_),
        by_row_(pairs_),
        by_column_(pairs_) {}

  const float* cos(int64_t row) const { return Row(row); }
  const float* sin(int64_t row) const { return Row(row) + stride_; }

  void Fill(const PhaseTable& phases, const RowBlock& block) {
    const int64_t b = p_.x.shape[1] > 0 ? block.first_unit / p_.x.shape[1] : 0;
    for (int64_t i = block.first_row; i < block.last_row; ++i) {
      float* cos = Row(i - block.first_row);
      float* sin = cos + stride_;
      if (interleaved_) {
        FillRow(phases, b, i, one_row_.data(), one_row_.data() + pairs_);
        Interleave(cos, sin);
      } else {
        FillRow(phases, b, i, cos, sin);
      }
    }
  }

 private:
  float* Row(int64_t row) const { return memory_.get() + 2 * stride_ * static_cast<size_t>(row); }

  void FillRow(const PhaseTable& phases, int64_t b, int64_t i, float* cos, float* sin) {
    if (p_.cos.has_value()) {
      const int64_t position = p_.positions(b, i);
      for (size_t t = 0; t < pairs_; ++t) {
        cos[t] = p_.cos(b, 0, position, static_cast<int64_t>(t));
        sin[t] = p_.sign * p_.sin(b, 0, position, static_cast<int64_t>(t));
      }
    } else if (p_.grid_width > 0) {
      phases.Fill(i / p_.grid_width, 0, pairs_ / 2, by_row_, cos, sin);
      phases.Fill(i % p_.grid_width, pairs_ / 2, pairs_, by_column_, cos, sin);
    } else {
      phases.Fill(p_.positions(b, i), 0, pairs_, by_row_, cos, sin);
    }
  }

  void Interleave(float* HWY_RESTRICT cos, float* HWY_RESTRICT sin) const {
    for (size_t t = 0; t < pairs_; ++t) {
      cos[2 * t] = cos[2 * t + 1] = one_row_[t];
      sin[2 * t] = -one_row_[pairs_ + t];
      sin[2 * t + 1] = one_row_[pairs_ + t];
    }
  }

  const RotationProblem& p_;
  size_t pairs_;
  bool interleaved_;
  size_t width_, stride_;
  AlignedFloats memory_;  // [rows, {cos, sin}, stride]
  std::vector<float> one_row_;
  CoarsePhases by_row_, by_column_;
};

void RotateBlock(const RotationProblem& p, const BlockTables& tables, const RowBlock& block) {
  const size_t pairs = static_cast<size_t>(p.pairs());
  const size_t passing = static_cast<size_t>(p.x.shape[3] - p.rotary_dim);
  const bool interleaved = p.pairing == RopePairing::kInterleaved;
  for (int64_t unit = block.first_unit; unit < block.last_unit; ++unit) {
    const int64_t b = unit / p.x.shape[1];
    const int64_t h = unit % p.x.shape[1];
    for (int64_t i = block.first_row; i < block.last_row; ++i) {
      const float* x = &p.x(b, h, i, 0);
      float* y = &p.output(b, h, i, 0);
      const float* cos = tables.cos(i - block.first_row);
      const float* sin = tables.sin(i - block.first_row);
      if (interleaved) {
        RotateInterleaved(x, y, cos, sin, 2 * pairs);
      } else {
        RotateHalf(x, y, cos, sin, pairs);
      }
      if (x != y) std::memcpy(y + 2 * pairs, x + 2 * pairs, passing * sizeof(float));
    }
  }
}

void RunRotation(const RotationProblem& p, ThreadPool& pool) {
  if (p.output.size() == 0) return;
  const bool own_tables = p.cos.has_value() && (p.cos.shape[0] > 1 || p.sin.shape[0] > 1);
  const RowBlocks blocks(p.x.shape, p.positions.per_batch || own_tables, 2 * p.rotary_dim);
  const auto needed = p.grid_width > 0 ? std::vector<bool>(static_cast<size_t>(kPhaseStep), true)
                                       : NeededResidues(p.positions, p.x.shape[0]);
  const PhaseTable phases(p.spectrum, needed);
  const int workers = blocks.count() == 1 ? 1 : pool.NumThreads();
  std::vector<std::unique_ptr<BlockTables>> tables;
  for (int w = 0; w < workers; ++w) {
    tables.push_back(std::make_unique<BlockTables>(p, blocks.rows()));
  }
  if (DryRun* dry = DryRun::Current()) {  // a product with a 2 x 2 matrix for every pair
    const double rows = static_cast<double>(p.x.shape[0] * p.x.shape[1] * p.x.shape[2]);
    return dry->AddFlops(8 * rows * static_cast<double>(p.pairs()));
  }
  const auto task = [&](int64_t index, int worker) {
    const RowBlock block = blocks[index];
    BlockTables& table = *tables[static_cast<size_t>(worker)];
    table.Fill(phases, block);
    RotateBlock(p, table, block);
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

HWY_EXPORT(RunRotation);

void Rotate(RotationProblem problem, TensorView<float> output, ThreadPool* pool) {
  SetOutput(problem, output);
  HWY_DYNAMIC_DISPATCH(RunRotation)(problem, pool != nullptr ? *pool : DefaultThreadPool());
}

void Rope(TensorView<const float> x, RopePairing pairing, const RopeOptions& options,
          TensorView<float> output, ThreadPool* pool) {
  WithMemoryErrors("a rotation", [&] { Rotate(ValidateRope(x, pairing, options), output, pool); });
}

void Xpos(TensorView<const float> x, RopePairing pairing, XposSide side, const XposOptions& options,
          TensorView<float> output, ThreadPool* pool) {
  WithMemoryErrors("a rotation",
                   [&] { Rotate(ValidateXpos(x, pairing, side, options), output, pool); });
}

}  // namespace heed
#endif  // HWY_ONCE
