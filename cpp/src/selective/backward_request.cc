// Gradients of rows that attend to chosen keys: those of attention to the same keys. Choices are
// constant almost everywhere, and are made again on the way back.
#include "src/selective/backward_request.h"

#include <string_view>

#include "heed/gradient.h"
#include "src/gradient/problem.h"
#include "src/gradient/request.h"
#include "src/message.h"
#include "src/selective/request.h"
#include "src/selective/selective_problem.h"

namespace heed {
namespace {

// A row: how its requests are read, what its attention inside looks like, and its choice.
struct ChosenRow {
  std::string_view id;
  ComposedRequest (*read)(const RequestReader&);
  // Validates what the row adds to the options of attention, which are returned.
  AttentionOptions (*options)(const RequestReader&, const ComposedRequest&);
  void (*forward)(const RequestReader&, const ComposedRequest&, const AttentionOutputs&,
                  ThreadPool*);
  // Makes a call of attention see what forward chose.
  void (*keep)(const RequestReader&, const ComposedRequest&, AttentionProblem&, ThreadPool*);
};

constexpr ChosenRow kRows[] = {
    {"streaming", ReadCausal,
     [](const RequestReader& reader, const ComposedRequest& r) {
       return ValidateStreaming(ReadStreaming(reader, r), r.q.shape[0]);
     },
     [](const RequestReader& reader, const ComposedRequest& r, const AttentionOutputs& outputs,
        ThreadPool* pool) {
       StreamingAttention(r.q, r.k, r.v, ReadStreaming(reader, r), outputs, pool);
     },
     [](const RequestReader& reader, const ComposedRequest& r, AttentionProblem& p, ThreadPool*) {
       p.sink_keys = ReadStreaming(reader, r).sink_tokens;
     }},
    {"block_mixture", ReadComposed,
     [](const RequestReader& reader, const ComposedRequest& r) {
       const BlockMixtureOptions o = ReadBlockMixture(reader, r);
       ValidateBlockMixture(o, r.q.shape[0]);
       return o.attention;
     },
     [](const RequestReader& reader, const ComposedRequest& r, const AttentionOutputs& outputs,
        ThreadPool* pool) {
       BlockMixtureAttention(r.q, r.k, r.v, ReadBlockMixture(reader, r), outputs, pool);
     },
     [](const RequestReader& reader, const ComposedRequest& r, AttentionProblem& p,
        ThreadPool* pool) { KeepBlockMixture(r.q, r.k, ReadBlockMixture(reader, r), p, pool); }},
    {"quest", ReadCausal,
     [](const RequestReader& reader, const ComposedRequest& r) {
       return ValidateQuest(ReadQuest(reader, r), r.q.shape[0]);
     },
     [](const RequestReader& reader, const ComposedRequest& r, const AttentionOutputs& outputs,
        ThreadPool* pool) { QuestAttention(r.q, r.k, r.v, ReadQuest(reader, r), outputs, pool); },
     [](const RequestReader& reader, const ComposedRequest& r, AttentionProblem& p,
        ThreadPool* pool) { KeepQuest(r.q, r.k, ReadQuest(reader, r), p, pool); }},
    {"indexed", ReadComposed,
     [](const RequestReader& reader, const ComposedRequest& r) {
       const IndexedOptions o = ReadIndexed(reader, r);
       ValidateIndexed(r.q, r.k, ReadIndex(reader), o);
       return o.attention;
     },
     [](const RequestReader& reader, const ComposedRequest& r, const AttentionOutputs& outputs,
        ThreadPool* pool) {
       IndexedAttention(r.q, r.k, r.v, ReadIndex(reader), ReadIndexed(reader, r), outputs, pool);
     },
     [](const RequestReader& reader, const ComposedRequest& r, AttentionProblem& p,
        ThreadPool* pool) { KeepIndexed(ReadIndex(reader), ReadIndexed(reader, r), p, pool); }},
    {"heavy_hitter", ReadComposed,
     [](const RequestReader& reader, const ComposedRequest& r) {
       return ValidateHeavyHitter(r.q, r.k, r.v, ReadHeavyHitter(reader, r));
     },
     [](const RequestReader& reader, const ComposedRequest& r, const AttentionOutputs& outputs,
        ThreadPool* pool) {
       HeavyHitterAttention(r.q, r.k, r.v, ReadHeavyHitter(reader, r), outputs, pool);
     },
     [](const RequestReader& reader, const ComposedRequest& r, AttentionProblem& p,
        ThreadPool* pool) {
       KeepHeavyHitters(r.q, r.k, r.v, ReadHeavyHitter(reader, r), p, pool);
     }},
};

// A request and its row.
class ChosenRequest {
 public:
  explicit ChosenRequest(const Request& request)
      : row_(RowOf(request)), reader_(DifferentiableReader(request)), r_(row_.read(reader_)) {}

  const ComposedRequest& r() const { return r_; }
  AttentionOptions Options() const { return row_.options(reader_, r_); }
  void Forward(const AttentionOutputs& outputs, ThreadPool* pool) const {
    row_.forward(reader_, r_, outputs, pool);
  }
  void Keep(AttentionProblem& p, ThreadPool* pool) const { row_.keep(reader_, r_, p, pool); }

 private:
  static const ChosenRow& RowOf(const Request& request) {
    for (const ChosenRow& row : kRows) {
      if (row.id == request.id) return row;
    }
    RefuseMechanism(request);
  }

  const ChosenRow& row_;
  RequestReader reader_;
  ComposedRequest r_;
};

}  // namespace

RequestReader DifferentiableReader(const Request& request) {
  for (const std::string_view name : {"q", "k", "v"}) {
    const AnyTensor* tensor = FindTensor(request.inputs, name);
    if (tensor == nullptr || tensor->dtype == DType::kFloat32) continue;
    Fail(ErrorCode::kDType,
         "{} has element type {}; gradients of selective mechanisms are those of float32",
         {name, DTypeName(tensor->dtype)});
  }
  const RequestReader reader(*FindMechanism(request.id), request);
  if (reader.Flag("return_weights")) {
    Fail(ErrorCode::kUnsupported, "return_weights gives a result without a gradient");
  }
  return reader;
}

BackwardPlan PlanOfRow(const Request& request, const Extents& q, int64_t head_dim_v,
                       std::initializer_list<std::string_view> names) {
  return {{{"output", 4, {q[0], q[1], q[2], head_dim_v}}}, GradientsOf(request, names)};
}

namespace {

BackwardPlan PlanChosenBackward(const Request& request) {
  const ChosenRequest chosen(request);
  const ComposedRequest& r = chosen.r();
  const AttentionProblem p =
      ValidateAttentionInputs(r.rest.q, r.rest.k, r.rest.v, chosen.Options(), true);
  return {{{"output", 4, {p.batch, p.num_heads, p.q_len, p.head_dim_v}},
           {"lse", 3, {p.batch, p.num_heads, p.q_len, 0}}},
          GradientsOf(request, {"q", "k", "v", "bias", "alibi_slopes", "sinks"})};
}

void RunChosenForward(const Request& request, std::span<const NamedTensor> results,
                      ThreadPool* pool) {
  AttentionOutputs outputs;
  outputs.output = LeadingViewOf(FindTensor(results, "output"));
  outputs.lse = RowsOf(FindTensor(results, "lse"));
  ChosenRequest(request).Forward(outputs, pool);
}

void RunChosenBackward(const Request& request, std::span<const NamedTensor> results,
                       std::span<const NamedTensor> d_results,
                       std::span<const NamedTensor> gradients, ThreadPool* pool) {
  CheckAreFloats(d_results, gradients);
  CheckAreRows(gradients);
  const ChosenRequest chosen(request);
  const ComposedRequest& r = chosen.r();
  AttentionGradients to;
  to.d_lse = RowsOf(FindTensor(d_results, "lse"));
  to.d_q = StoredOutput(LeadingViewOf(FindTensor(gradients, "q")));
  to.d_k = StoredOutput(LeadingViewOf(FindTensor(gradients, "k")));
  to.d_v = StoredOutput(LeadingViewOf(FindTensor(gradients, "v")));
  to.d_bias = LeadingViewOf(FindTensor(gradients, "bias"));
  to.d_alibi_slopes = VectorOf(FindTensor(gradients, "alibi_slopes"));
  to.d_sinks = VectorOf(FindTensor(gradients, "sinks"));
  GradientProblem g = ValidateGradient(
      r.rest.q, r.rest.k, r.rest.v, StoredTensor(LeadingViewOf(FindTensor(results, "output"))),
      RowsOf(FindTensor(results, "lse")),
      StoredTensor(LeadingViewOf(FindTensor(d_results, "output"))), chosen.Options(), to);
  chosen.Keep(g.attention, pool);
  RunGradientProblem(g, pool);
}

}  // namespace

const GradientVerbs kChosenGradient = {PlanChosenBackward, RunChosenForward, RunChosenBackward};

}  // namespace heed
