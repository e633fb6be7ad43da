// Policies of caches behind heed::Run.
#include "src/selective/request.h"
#include "src/selective/selective_problem.h"

namespace heed {

ComposedRequest ReadCausal(const RequestReader& reader) {
  ComposedRequest r = ReadComposed(reader);
  r.rest.options.causal = true;
  return r;
}

StreamingOptions ReadStreaming(const RequestReader& reader, const ComposedRequest& r) {
  StreamingOptions o;
  o.attention = OptionsOf(r.rest);
  o.recent_tokens = reader.Count("recent_tokens").value_or(o.recent_tokens);
  o.sink_tokens = reader.Count("sink_tokens").value_or(o.sink_tokens);
  return o;
}

QuestOptions ReadQuest(const RequestReader& reader, const ComposedRequest& r) {
  QuestOptions o;
  o.attention = OptionsOf(r.rest);
  o.page_size = reader.Count("page_size").value_or(o.page_size);
  o.top_pages = reader.Count("top_pages").value_or(o.top_pages);
  return o;
}

std::vector<OutputSpec> PlanStreaming(const RequestReader& reader) {
  const ComposedRequest r = ReadCausal(reader);
  ValidateStreaming(ReadStreaming(reader, r), r.q.shape[0]);
  return PlanAttention(r.rest);
}

void RunStreaming(const RequestReader& reader, std::span<const NamedTensor> outputs,
                  ThreadPool* pool) {
  const ComposedRequest r = ReadCausal(reader);
  StreamingAttention(r.q, r.k, r.v, ReadStreaming(reader, r), FloatOutputs(r, outputs), pool);
}

std::vector<OutputSpec> PlanQuest(const RequestReader& reader) {
  const ComposedRequest r = ReadCausal(reader);
  ValidateQuest(ReadQuest(reader, r), r.q.shape[0]);
  return PlanAttention(r.rest);
}

void RunQuest(const RequestReader& reader, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  const ComposedRequest r = ReadCausal(reader);
  QuestAttention(r.q, r.k, r.v, ReadQuest(reader, r), FloatOutputs(r, outputs), pool);
}

HeavyHitterOptions ReadHeavyHitter(const RequestReader& reader, const ComposedRequest& r) {
  HeavyHitterOptions o;
  o.recent_tokens = reader.Count("recent_tokens").value_or(o.recent_tokens);
  o.heavy_tokens = reader.Count("heavy_tokens").value_or(o.heavy_tokens);
  o.scale = r.rest.options.scale;
  o.softcap = r.rest.options.softcap;
  o.sinks = r.rest.options.sinks;
  o.key_lengths = r.rest.options.key_lengths;
  return o;
}

std::vector<OutputSpec> PlanHeavyHitter(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  ValidateHeavyHitter(r.q, r.k, r.v, ReadHeavyHitter(reader, r));
  return PlanAttention(r.rest);
}

void RunHeavyHitter(const RequestReader& reader, std::span<const NamedTensor> outputs,
                    ThreadPool* pool) {
  const ComposedRequest r = ReadComposed(reader);
  HeavyHitterAttention(r.q, r.k, r.v, ReadHeavyHitter(reader, r), FloatOutputs(r, outputs), pool);
}

}  // namespace heed
