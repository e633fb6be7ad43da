// heed::RecurrentBackward: scheduling and dispatch to the best SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/recurrent/backward.cc"
#include <algorithm>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "heed/gradient.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/recurrent/backward_loop-inl.h"
#include "src/recurrent/backward_problem.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Sums that batch entries, heads or tokens share: of each KV head apart, then added in ascending
// order.
class SharedSums {
 public:
  explicit SharedSums(const RecurrentBackwardProblem& g) : g_(g), p_(g.forward) {
    const auto resize = [&](ScratchVector<double>& sums, int64_t each, bool wanted) {
      if (wanted) sums.assign(static_cast<size_t>(p_.batch * p_.num_kv_heads * each), 0.0);
    };
    const auto cells = [](const FactorGradient& factor) { return factor.len * factor.channels; };
    resize(log_decay_, cells(g.d_log_decay), g.d_log_decay.is_shared);
    resize(beta_, cells(g.d_beta), g.d_beta.is_shared);
    resize(skip_, p_.group, !g.gradients.d_skip.empty());
    resize(bonus_, p_.group * p_.head_dim, g.gradients.d_bonus.has_value());
  }

  HeadGradients Of(int64_t unit) {
    return {Part(log_decay_, unit), Part(beta_, unit), Part(skip_, unit), Part(bonus_, unit)};
  }

  void Write() {
    WriteFactor(g_.d_log_decay, log_decay_);
    WriteFactor(g_.d_beta, beta_);
    for (size_t h = 0; h < g_.gradients.d_skip.size(); ++h) {
      g_.gradients.d_skip[h] = OverBatch(skip_, static_cast<int64_t>(h), 1, 0);
    }
    const TensorView<float>& d_bonus = g_.gradients.d_bonus;
    for (int64_t h = 0; h < p_.num_heads && d_bonus.has_value(); ++h) {
      for (int64_t c = 0; c < p_.head_dim; ++c) {
        d_bonus(0, h, 0, c) = OverBatch(bonus_, h, p_.head_dim, c);
      }
    }
  }

 private:
  int64_t Units() const { return p_.batch * p_.num_kv_heads; }

  std::span<double> Part(ScratchVector<double>& sums, int64_t unit) const {
    const size_t each = sums.empty() ? 0 : sums.size() / static_cast<size_t>(Units());
    return {sums.data() + static_cast<size_t>(unit) * each, each};
  }

  // Of a query head, which has `each` numbers in the sums of its KV head: number `at`.
  float OverBatch(ScratchVector<double>& sums, int64_t head, int64_t each, int64_t at) const {
    double sum = 0;
    for (int64_t b = 0; b < p_.batch; ++b) {
      const std::span<double> part = Part(sums, b * p_.num_kv_heads + head / p_.group);
      sum += part[static_cast<size_t>(head % p_.group * each + at)];
    }
    return static_cast<float>(sum);
  }

  void WriteFactor(const FactorGradient& factor, ScratchVector<double>& sums) const {
    if (!factor.is_shared) return;
    const Extents& strides = factor.to.strides;
    const int64_t batch = strides[0] == 0 ? 1 : p_.batch;
    const int64_t heads = strides[1] == 0 ? 1 : p_.num_kv_heads;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t n = 0; n < factor.len * factor.channels; ++n) {
          double sum = 0;
          for (int64_t unit = 0; unit < Units(); ++unit) {
            const bool is_of = (batch == 1 || unit / p_.num_kv_heads == b) &&
                               (heads == 1 || unit % p_.num_kv_heads == h);
            if (is_of) sum += Part(sums, unit)[static_cast<size_t>(n)];
          }
          factor.to(b, h, n / factor.channels, n % factor.channels) = static_cast<float>(sum);
        }
      }
    }
  }

  const RecurrentBackwardProblem& g_;
  const RecurrentProblem& p_;
  ScratchVector<double> log_decay_, beta_, skip_, bonus_;
};

// In a dry run allocates what it would, and no more.
void RunRecurrentBackward(const RecurrentBackwardProblem& g, ThreadPool& pool) {
  const RecurrentProblem& p = g.forward;
  SharedSums sums(g);
  const RecurrentPlan plan(p, PanelCols());
  const size_t chunks = BackwardScratch::NumChunks(plan);
  const size_t segments = (chunks + kSegmentChunks - 1) / kSegmentChunks;
  struct Worker {
    RecurrentScratch forward;
    BackwardScratch backward;
  };
  std::vector<std::unique_ptr<Worker>> workers;
  const int64_t tasks = p.batch * p.num_kv_heads;
  for (int w = 0; w < pool.NumThreads() && tasks > 0; ++w) {
    workers.push_back(
        std::make_unique<Worker>(Worker{RecurrentScratch(plan), BackwardScratch(plan, segments)}));
  }
  if (DryRun::Current() != nullptr) return;
  pool.Run(tasks, [&](int64_t task, int worker) {
    Worker& own = *workers[static_cast<size_t>(worker)];
    BackwardLoop(plan, g, task / p.num_kv_heads, task % p.num_kv_heads, own.forward, own.backward,
                 sums.Of(task))
        .Run();
  });
  sums.Write();
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunRecurrentBackward);

void RecurrentBackward(TensorView<const float> q, TensorView<const float> k,
                       TensorView<const float> v, TensorView<const float> d_out,
                       const RecurrentOptions& options, const RecurrentGradients& gradients,
                       ThreadPool* pool) {
  const RecurrentBackwardProblem problem =
      ValidateRecurrentBackward(q, k, v, d_out, options, gradients);
  try {
    HWY_DYNAMIC_DISPATCH(RunRecurrentBackward)
    (problem, pool != nullptr ? *pool : DefaultThreadPool());
  } catch (const std::bad_alloc&) {
    Fail(ErrorCode::kMemory, "could not allocate the scratch memory of recurrent gradients");
  } catch (const std::length_error&) {
    Fail(ErrorCode::kMemory, "the scratch memory of recurrent gradients cannot be addressed");
  }
}

}  // namespace heed
#endif  // HWY_ONCE
