// heed::RecurrentAttention and heed::RecurrentStep: scheduling and dispatch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/recurrent/recurrent.cc"
#include "heed/recurrent.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <memory>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/recurrent/inner_model-inl.h"
#include "src/recurrent/levels-inl.h"
#include "src/recurrent/loop-inl.h"
#include "src/recurrent/problem.h"
#include "src/view_checks.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

void PackProjection(const RecurrentPlan& plan) {
  const TensorView<const float>& rows = plan.problem->options.projection;
  for (size_t e = 0; e < plan.dim; e += PanelCols()) {
    PackTransposedPanel(Rows{&rows(0, 0, static_cast<int64_t>(e), 0), rows.strides[2]},
                        std::min(PanelCols(), plan.dim - e), plan.HeadDim(),
                        plan.projection.get() + e * plan.HeadDim());
  }
}

// Random features of the one key, relative to the largest so far, which is the state's last column;
// the rest of the state follows.
void RaisePeaksOfState(const RecurrentProblem& p, const TensorView<float>& state, int64_t b,
                       int64_t h, float* features) {
  for (int64_t c = 0; c < p.feature_dim; ++c) {
    float* row = &state(b, h, c, 0);
    float& peak = row[p.state_cols];
    const bool fresh = row[p.head_dim_v] == 0;  // no key has written it
    const float raised = fresh || features[c] > peak ? features[c] : peak;
    const float factor = fresh ? 0.0f : std::exp(peak - raised);
    for (int64_t e = 0; e < p.state_cols && factor != 1; ++e) row[e] *= factor;
    features[c] = std::exp(features[c] - raised);
    if (std::isfinite(raised)) peak = raised;
  }
}

// Random features of a query, relative to those peaks.
void RelativeToState(const RecurrentProblem& p, const TensorView<float>& state, int64_t b,
                     int64_t h, float* features) {
  HWY_ALIGN float peaks[kMaxStepDim];
  for (int64_t c = 0; c < p.feature_dim; ++c) {
    const float* row = &state(b, h, c, 0);
    peaks[c] = row[p.head_dim_v] == 0 ? kNoPeak : row[p.state_cols];
  }
  RelativeToPeaks(peaks, static_cast<size_t>(p.feature_dim), features);
}

// `head` is the query head of a query, the KV head of a key.
void FeaturesOfStep(const RecurrentProblem& p, Side side, const TensorView<float>& state, int64_t b,
                    int64_t head, float* to) {
  const bool is_key = side == Side::kKey;
  const float* from = is_key ? &p.k(b, head, 0, 0) : &p.q(b, head, 0, 0);
  if (!p.has_peaks()) return Features(p, side, from, {b, head, 0}, to);
  Exponents(p, side, from, to);
  if (is_key) {
    RaisePeaksOfState(p, state, b, head, to);
  } else {
    RelativeToState(p, state, b, head / p.group, to);
  }
}

// A vector of columns of the state of one KV head.
StateColumns ColumnsOf(const RecurrentProblem& p, const TensorView<float>& state, int64_t b,
                       int64_t h, size_t e) {
  return {&state(b, h, 0, static_cast<int64_t>(e)), static_cast<size_t>(state.strides[2]),
          std::min(hn::Lanes(DF()), static_cast<size_t>(p.state_cols) - e)};
}

// What a token erases by a key of its own, `token` being the other thing that it does.
void EraseStep(const RecurrentProblem& p, const TensorView<float>& state, int64_t b, int64_t h,
               const Token& token) {
  const DF d;
  HWY_ALIGN float eraser[kMaxStepDim];
  HWY_ALIGN float write[kMaxStepDim];
  EraserOf(p, b, h, 0, eraser, write);
  Token erase = token;
  erase.keys = write;
  erase.beta = 1;
  erase.erasers = eraser;
  erase.reads_undecayed = true;
  for (size_t e = 0; e < static_cast<size_t>(p.state_cols); e += hn::Lanes(d)) {
    WriteToken(erase, static_cast<size_t>(p.feature_dim), hn::Zero(d),
               ColumnsOf(p, state, b, h, e));
  }
}

// The one token of a KV head decays, erases and writes.
void WriteStep(const RecurrentProblem& p, const TensorView<float>& state, int64_t b, int64_t h) {
  const DF d;
  const RecurrentOptions& o = p.options;
  const size_t dim = static_cast<size_t>(p.feature_dim), lanes = hn::Lanes(d);
  const size_t width = static_cast<size_t>(p.head_dim_v), cols = static_cast<size_t>(p.state_cols);
  HWY_ALIGN float features[kMaxStepDim];
  HWY_ALIGN float decays[kMaxStepDim];
  FeaturesOfStep(p, Side::kKey, state, b, h, features);
  if (o.log_decay.has_value()) {
    DecayFactors(&o.log_decay(b, h, 0, 0), p.decays_channels ? dim : 1, decays);
  }
  Token token = {.keys = features,
                 .decays = o.log_decay.has_value() ? decays : nullptr,
                 .per_channel = p.decays_channels,
                 .beta = o.beta.has_value() ? o.beta(b, h, 0, 0) : 1.0f,
                 .erasers = o.delta ? features : nullptr,
                 .reads_undecayed = false};
  if (p.parts() > 1) {
    EraseStep(p, state, b, h, token);
    token.decays = nullptr;
  }
  const float strength = o.delta ? 1.0f : token.beta;
  for (size_t e = 0; e < cols; e += lanes) {
    HWY_ALIGN float value[hn::MaxLanes(DF())] = {};
    for (size_t x = 0; x < std::min(lanes, cols - e); ++x) {
      value[x] = strength * (e + x < width ? p.v(b, h, 0, static_cast<int64_t>(e + x)) : 1.0f);
    }
    WriteToken(token, dim, hn::Load(d, value), ColumnsOf(p, state, b, h, e));
  }
}

// A query head reads.
void ReadStep(const RecurrentProblem& p, const TensorView<float>& state, int64_t b, int64_t head) {
  const DF d;
  const RecurrentOptions& o = p.options;
  const int64_t h = head / p.group;
  const size_t dim = static_cast<size_t>(p.feature_dim), lanes = hn::Lanes(d);
  const size_t width = static_cast<size_t>(p.head_dim_v);
  HWY_ALIGN float features[kMaxStepDim];
  FeaturesOfStep(p, Side::kQuery, state, b, head, features);
  float sum = 1.0f;
  if (o.normalize) {
    HWY_ALIGN float last[hn::MaxLanes(DF())];
    StateColumns column = ColumnsOf(p, state, b, h, width);
    column.here = 1;
    hn::Store(ReadToken(features, dim, column), d, last);
    sum = last[0];
  }
  float* to = &p.outputs.output(b, head, 0, 0);
  for (size_t e = 0; e < width; e += lanes) {
    VF answer = ReadToken(features, dim, ColumnsOf(p, state, b, h, e));
    if (o.normalize) {
      answer = sum == 0.0f ? hn::Zero(d) : hn::Div(answer, hn::Set(d, sum));
    }
    hn::StoreN(answer, d, to + e, std::min(lanes, width - e));
  }
  AddOwnValue(p, b, head, 0, to);
}

// Of levels: the key and its decays, and what a query head reads from all states and from it.
struct LevelStep {
  const RecurrentProblem& p;
  const TensorView<float>& state;
  int64_t b, h;

  int64_t before() const { return p.Position(b, 0); }
  size_t lanes() const { return hn::Lanes(DF()); }
  StateColumns Columns(int64_t level, int64_t e) const {
    return {&state(b, h, level * p.feature_dim, e), static_cast<size_t>(state.strides[2]),
            std::min(lanes(), static_cast<size_t>(p.state_cols - e))};
  }

  void Decay() const {
    const TensorView<const float>& gates = p.options.log_decay;
    for (int64_t l = 0; l < p.num_states && gates.has_value(); ++l) {
      if ((before() >> l & 1) == 0) continue;
      for (int64_t c = 0; c < p.feature_dim; ++c) {
        const float factor = std::exp(gates(b, h, 0, p.decays_channels ? c : 0));
        for (int64_t e = 0; e < p.state_cols; ++e) {
          float& s = state(b, h, l * p.feature_dim + c, e);
          s *= factor;
          if (std::abs(s) < FLT_MIN) s = 0;  // see Faded()
        }
      }
    }
  }

  void Read(const float* key, int64_t head) const {
    const DF d;
    const size_t dim = static_cast<size_t>(p.feature_dim);
    HWY_ALIGN float query[kMaxStepDim];
    Features(p, Side::kQuery, &p.q(b, head, 0, 0), {b, head, 0}, query);
    float own = 0;
    for (size_t c = 0; c < dim; ++c) own += query[c] * key[c];
    own *= p.options.level_weights(b, head, 0, 0) * Strength();
    float* to = &p.outputs.output(b, head, 0, 0);
    for (int64_t e = 0; e < p.head_dim_v; e += static_cast<int64_t>(lanes())) {
      const size_t here = std::min(lanes(), static_cast<size_t>(p.head_dim_v - e));
      VF sum = hn::Mul(hn::Set(d, own), hn::LoadN(d, &p.v(b, h, 0, e), here));
      for (int64_t l = 0; l < p.num_states; ++l) {
        if ((before() >> l & 1) == 0) continue;
        const VF weight = hn::Set(d, p.options.level_weights(b, head, 0, l + 1));
        sum = Fma(weight, ReadToken(query, dim, Columns(l, e)), sum);
      }
      hn::StoreN(sum, d, to + e, here);
    }
    AddOwnValue(p, b, head, 0, to);
  }

  float Strength() const { return p.options.beta.has_value() ? p.options.beta(b, h, 0, 0) : 1.0f; }

  // The states of the lowest bits and the key's own become the one of the next bit, if it has one:
  // after 2^num_states tokens nothing can read their sum.
  void Write(const float* key) const {
    const int64_t free = std::countr_one(static_cast<uint64_t>(before()));
    for (int64_t c = 0; c < p.feature_dim; ++c) {
      for (int64_t e = 0; e < p.state_cols; ++e) {
        float sum = key[c] * (Strength() * p.v(b, h, 0, e));
        for (int64_t l = 0; l < free; ++l) {
          float& old = state(b, h, l * p.feature_dim + c, e);
          sum += old;
          old = 0;
        }
        if (free < p.num_states) state(b, h, free * p.feature_dim + c, e) = sum;
      }
    }
  }

  void Run() const {
    HWY_ALIGN float key[kMaxStepDim];
    Features(p, Side::kKey, &p.k(b, h, 0, 0), {b, h, 0}, key);
    Decay();
    for (int64_t g = 0; g < p.group && p.head_dim_v > 0; ++g) Read(key, h * p.group + g);
    Write(key);
  }
};

// One token of one KV head.
void StepHead(const RecurrentProblem& p, const TensorView<float>& state, int64_t b, int64_t h) {
  if (p.learns()) {
    if (p.head_dim > 0) InnerModelStep(p, state, b, h);
    return;
  }
  if (p.has_levels()) return LevelStep{p, state, b, h}.Run();
  const auto read = [&] {
    for (int64_t g = 0; g < p.group && p.head_dim_v > 0; ++g) {
      const int64_t head = h * p.group + g;
      if (p.feature_dim > 0) {
        ReadStep(p, state, b, head);
      } else {
        std::fill_n(&p.outputs.output(b, head, 0, 0), p.head_dim_v, 0.0f);
      }
    }
  };
  if (p.reads_first()) read();
  if (p.feature_dim > 0) WriteStep(p, state, b, h);
  if (!p.reads_first()) read();
}

void RunStep(const RecurrentProblem& p, const TensorView<float>& state) {
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.num_kv_heads; ++h) StepHead(p, state, b, h);
  }
}

// Is the call one token after a state? A state is better worked on where it lies than packed. Not
// with levels: a step leaves old numbers in those that it empties, a call zeros.
bool IsStep(const RecurrentProblem& p) {
  return !p.has_levels() && p.q_len == 1 && p.kv_len == 1 && p.options.causal &&
         p.options.key_lengths.empty() && p.outputs.final_state.has_value() &&
         p.feature_dim <= kMaxStepDim;
}

void RunStepOfCall(const RecurrentProblem& p, ThreadPool& pool) {
  const TensorView<float>& state = p.outputs.final_state;
  const TensorView<const float>& initial = p.options.initial_state;
  const int64_t rows = state.shape[2], cols = state.shape[3];
  pool.Run(p.batch * p.num_kv_heads, [&](int64_t task, int) {
    const int64_t b = task / p.num_kv_heads, h = task % p.num_kv_heads;
    for (int64_t c = 0; c < rows && cols > 0; ++c) {
      float* const to = &state(b, h, c, 0);
      if (!initial.has_value()) {
        std::fill_n(to, cols, 0.0f);
      } else if (const float* const from = &initial(b, h, c, 0); from != to) {
        std::copy_n(from, cols, to);
      }
    }
    StepHead(p, state, b, h);
  });
}

void RunRecurrent(const RecurrentProblem& p, ThreadPool& pool) {
  const int64_t tasks = p.batch * p.num_kv_heads;
  if (tasks == 0) return;
  if (DryRun* const dry = DryRun::Current()) dry->AddFlops(RecurrentFlops(p));
  if (IsStep(p)) return RunStepOfCall(p, pool);
  const RecurrentPlan plan(p);
  if (p.has_peaks()) pool.Run(1, [&](int64_t, int) { PackProjection(plan); });
  std::vector<std::unique_ptr<RecurrentScratch>> scratch;
  for (int w = 0; w < pool.NumThreads(); ++w) {
    scratch.push_back(std::make_unique<RecurrentScratch>(plan));
  }
  pool.Run(tasks, [&](int64_t task, int worker) {
    RecurrentScratch& own = *scratch[static_cast<size_t>(worker)];
    const int64_t b = task / p.num_kv_heads, h = task % p.num_kv_heads;
    if (p.learns()) return InnerModelLoop(plan, b, h, own).Run();
    if (p.has_levels()) return LevelLoop(plan, b, h, own).Run();
    RecurrentLoop(plan, b, h, own).Run();
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunRecurrent);
HWY_EXPORT(RunStep);

void RecurrentAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const RecurrentOptions& options,
                        const RecurrentOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("recurrent attention", [&] {
    RecurrentProblem p = ValidateRecurrent(q, k, v, options);
    CompleteRecurrent(p, outputs);
    HWY_DYNAMIC_DISPATCH(RunRecurrent)(p, pool != nullptr ? *pool : DefaultThreadPool());
  });
}

void RecurrentStep(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                   const RecurrentOptions& options, TensorView<float> state,
                   TensorView<float> output) {
  RecurrentProblem p = ValidateRecurrent(q, k, v, options);
  CompleteStep(p, state, output);
  HWY_DYNAMIC_DISPATCH(RunStep)(p, state);
}

}  // namespace heed
#endif  // HWY_ONCE
