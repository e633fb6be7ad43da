// Functions of rows: tasks and dispatch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rows/kernels.cc"
#include <algorithm>
#include <limits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/parallel/dry_run.h"
#include "src/rows/norm-inl.h"
#include "src/rows/problem.h"
#include "src/rows/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Elements that one task handles, at least: less is not worth waking a thread for.
constexpr int64_t kTaskElements = 16384;

// Calls body(index) for every index in [0, count), each of which is so many elements of work.
template <class Body>
void ForEachInTasks(int64_t count, int64_t elements, ThreadPool& pool, const Body& body) {
  const int64_t per_task = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, elements));
  const auto task = [&](int64_t index, int) {
    const int64_t end = std::min(count, (index + 1) * per_task);
    for (int64_t at = index * per_task; at < end; ++at) body(at);
  };
  if (count <= per_task) {
    if (count > 0) task(0, 0);
  } else {
    pool.Run((count + per_task - 1) / per_task, task);
  }
}

struct Place {
  int64_t b, h, i;
};

template <class T>
Place PlaceOf(const TensorView<T>& x, int64_t row) {
  const int64_t unit = row / x.shape[2];
  return {unit / x.shape[1], unit % x.shape[1], row % x.shape[2]};
}

// A row of which some entries do not count: they are hidden in the output first, so that what x
// holds there is never looked at.
void MaskedRow(const SoftmaxProblem& p, const Place& at) {
  const float* x = &p.x(at.b, at.h, at.i, 0);
  float* out = &p.out(at.b, at.h, at.i, 0);
  const size_t dim = static_cast<size_t>(p.x.shape[3]);
  const size_t length = static_cast<size_t>(p.Length(at.b, at.i));
  std::fill(out + length, out + dim, 0.0f);
  if (!p.keep.has_value()) {
    SoftmaxRow(x, length, out);
    return;
  }
  const uint8_t* keep = &p.keep(at.b, at.h, at.i, 0);
  if (p.keep.strides[3] == 0) {  // one decision for the row
    if (*keep != 0) {
      SoftmaxRow(x, length, out);
    } else {
      std::fill_n(out, length, 0.0f);
    }
    return;
  }
  HideEntries(x, keep, length, out);
  if (!SoftmaxRow(out, length, out)) return;
  for (size_t j = 0; j < length; ++j) {
    if (keep[j] == 0) out[j] = 0;
  }
}

void RunAlongRows(const SoftmaxProblem& p, ThreadPool& pool) {
  const Extents& shape = p.x.shape;
  const size_t dim = static_cast<size_t>(shape[3]);
  const bool masked = !p.lengths.empty() || p.keep.has_value();
  ForEachInTasks(shape[0] * shape[1] * shape[2], shape[3], pool, [&](int64_t row) {
    const Place at = PlaceOf(p.x, row);
    if (masked) return MaskedRow(p, at);
    const float* x = &p.x(at.b, at.h, at.i, 0);
    float* out = &p.out(at.b, at.h, at.i, 0);
    if (p.result == SoftmaxResult::kLogs) {
      LogSoftmaxRow(x, dim, out);
    } else {
      SoftmaxRow(x, dim, out);
    }
  });
}

// Vectors of columns that pass over the rows together: whole cache lines of every row.
constexpr size_t kColumnVectors = 8;

template <size_t kCount>
void RunColumns(SoftmaxResult result, const Columns<kCount, const float>& x,
                const Columns<kCount, float>& out) {
  if (result == SoftmaxResult::kLogs) {
    LogSoftmaxColumns(x, out);
  } else {
    SoftmaxColumns(x, out);
  }
}

// Along another axis than the last: columns are vectors of the last dimension.
void RunAlongColumns(const SoftmaxProblem& p, ThreadPool& pool) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const int64_t wide = static_cast<int64_t>(kColumnVectors) * lanes;
  TensorView<const float> x = p.x;
  TensorView<float> out = p.out;
  const size_t n = static_cast<size_t>(x.shape[p.axis]);
  x.shape[p.axis] = out.shape[p.axis] = 1;
  const int64_t blocks = (x.shape[3] + wide - 1) / wide;
  const int64_t count = x.shape[0] * x.shape[1] * x.shape[2] * blocks;
  const int64_t elements = p.x.shape[p.axis] * wide;
  ForEachInTasks(count, elements, pool, [&](int64_t index) {
    const Place at = PlaceOf(x, index / blocks);
    const int64_t first = index % blocks * wide;
    const int64_t end = std::min(x.shape[3], first + wide);
    const int64_t stride = x.strides[p.axis], out_stride = out.strides[p.axis];
    const float* from = &x(at.b, at.h, at.i, first);
    float* to = &out(at.b, at.h, at.i, first);
    if (end - first == wide) {
      const size_t all = static_cast<size_t>(wide);
      return RunColumns<kColumnVectors>(p.result, {from, stride, n, all}, {to, out_stride, n, all});
    }
    for (int64_t c = 0; c < end - first; c += lanes) {
      const size_t some = static_cast<size_t>(std::min(lanes, end - first - c));
      RunColumns<1>(p.result, {from + c, stride, n, some}, {to + c, out_stride, n, some});
    }
  });
}

void RunSoftmax(const SoftmaxProblem& p, ThreadPool& pool) {
  if (p.x.size() == 0 || DryRun::Current() != nullptr) return;
  if (p.axis == 3) {
    RunAlongRows(p, pool);
  } else {
    RunAlongColumns(p, pool);
  }
}

void RunNorm(const NormProblem& p, ThreadPool& pool) {
  const size_t dim = static_cast<size_t>(p.x.shape[3]);
  if (p.x.size() == 0 || DryRun::Current() != nullptr) return;
  const RowNormOptions& o = p.options;
  const float* weight = o.weight.empty() ? nullptr : o.weight.data();
  const float* bias = o.bias.empty() ? nullptr : o.bias.data();
  ForEachInTasks(p.x.shape[0] * p.x.shape[1] * p.x.shape[2], p.x.shape[3], pool, [&](int64_t row) {
    const auto [b, h, i] = PlaceOf(p.x, row);
    const float* x = &p.x(b, h, i, 0);
    const RowMoments moments = p.kind == NormKind::kLayer ? LayerMoments(x, dim, o.epsilon)
                                                          : RmsMoments(x, dim, o.epsilon);
    NormaliseRow(x, dim, moments, weight, bias, &p.out(b, h, i, 0));
    const auto show = [&](const TensorView<float>& to, double value) {
      if (to.has_value()) to(b, h, i, 0) = static_cast<float>(value);
    };
    show(p.statistics.mean, moments.mean);
    show(p.statistics.inverse_deviation, moments.inverse_deviation);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunSoftmax);
HWY_EXPORT(RunNorm);

namespace {

ThreadPool& PoolOrDefault(ThreadPool* pool) {
  return pool != nullptr ? *pool : DefaultThreadPool();
}

}  // namespace

void RunRows(const SoftmaxProblem& problem, ThreadPool* pool) {
  HWY_DYNAMIC_DISPATCH(RunSoftmax)(problem, PoolOrDefault(pool));
}

void RunRows(const NormProblem& problem, ThreadPool* pool) {
  HWY_DYNAMIC_DISPATCH(RunNorm)(problem, PoolOrDefault(pool));
}

}  // namespace heed
#endif  // HWY_ONCE
