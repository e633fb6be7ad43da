// Recurrent attention as a pipeline: a rank takes up the states of some heads where the one before
// it has left them, while that one works at other heads.
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "heed/distributed.h"
#include "src/distributed/agreement.h"
#include "src/distributed/progressing_pool.h"
#include "src/distributed/whole.h"
#include "src/message.h"
#include "src/recurrent/problem.h"

namespace heed::distributed {
namespace {

constexpr const char* kWhat = "recurrent attention over ranks";

// This rank's tokens as a call of their own, but for the state that it begins with.
struct Part {
  RecurrentProblem problem;
  RecurrentOptions options;  // not broadcast
  std::vector<int32_t> key_lengths;
  std::vector<int64_t> position_offset;
  std::vector<float> states;  // [batch, num_kv_heads, rows, columns]
  Extents state_shape{};

  size_t StateSize() const { return static_cast<size_t>(state_shape[2] * state_shape[3]); }
};

void SetLengths(Part& part, const Sharding& sharding, const TokenSpan& tokens) {
  const std::span<const int32_t> whole = part.options.key_lengths;
  for (const int32_t length : whole) {
    if (length < 0 || length > sharding.kv_len) {
      Fail(ErrorCode::kRange, "key_lengths holds {}; lengths lie in [0, sharding.kv_len = {}]",
           {length, sharding.kv_len});
    }
    part.key_lengths.push_back(
        static_cast<int32_t>(std::clamp<int64_t>(length - tokens.begin, 0, tokens.len)));
  }
  part.options.key_lengths = part.key_lengths;
}

// Where this rank's tokens stand. Offsets that are not given stay so where tokens begin at 0: the
// call of the whole wants them with some states.
void SetPositions(Part& part, const TokenSpan& tokens, int64_t batch) {
  const std::span<const int64_t> whole = part.options.position_offset;
  if (whole.size() > 1 && whole.size() != static_cast<size_t>(batch)) {
    Fail(ErrorCode::kShape, "position_offset has {} values; expected 1 or batch = {}",
         {whole.size(), batch});
  }
  part.position_offset.assign(whole.begin(), whole.end());
  if (part.position_offset.empty()) part.position_offset.assign(1, 0);
  for (int64_t& offset : part.position_offset) offset += tokens.begin;
  if (!whole.empty() || tokens.begin > 0) part.options.position_offset = part.position_offset;
}

void Validate(const TensorView<const float>& q, const TensorView<const float>& k,
              const TensorView<const float>& v, const RecurrentOptions& options,
              const RecurrentOutputs& outputs, const Sharding& sharding,
              const Communicator& communicator, Part& part) {
  if (sharding.order != TokenOrder::kContiguous) {
    Fail(ErrorCode::kUnsupported,
         "sharding.order of recurrent attention: states pass from one run of tokens to the next; "
         "deal them as TokenOrder::kContiguous");
  }
  if (sharding.q_len != sharding.kv_len || !options.causal) {
    Fail(ErrorCode::kUnsupported,
         "recurrent attention over ranks is causal, with as many queries as keys; sharding has {} "
         "and {}",
         {sharding.q_len, sharding.kv_len});
  }
  if (options.feature_mod) {
    Fail(ErrorCode::kUnsupported,
         "feature_mod over ranks: it would be shown the heads of a part as if they were all. Map "
         "rows before the call, with kIdentity");
  }
  const int rank = communicator.Rank();
  const TokenSpan tokens =
      TokensOf(sharding.kv_len, rank, communicator.Size(), TokenOrder::kContiguous)[0];
  if (q.shape[2] != tokens.len) {
    Fail(ErrorCode::kShape, "q has {} tokens; this rank has {} of {} (TokensOf)",
         {q.shape[2], tokens.len, sharding.q_len});
  }
  part.options = options;
  if (rank != 0) part.options.initial_state = {};
  SetLengths(part, sharding, tokens);
  SetPositions(part, tokens, q.shape[0]);
  part.problem = ValidateRecurrent(q, k, v, part.options);
  part.options.position_offset = part.position_offset;  // states come from somewhere from here on
  CompleteRecurrent(part.problem, outputs);
  part.state_shape = StateShape(part.problem);
  const RecurrentProblem& p = part.problem;
  part.states.assign(static_cast<size_t>(p.batch * p.num_kv_heads) * part.StateSize(), 0.0f);
}

// A run of KV heads of a batch entry, at which a rank works while the others work at other ones.
struct Group {
  int64_t batch = 0;
  TokenSpan kv_heads;
};

// Calls visit(group) for groups of at most that many heads, in the order in which states pass.
template <typename Visit>
void ForEachGroup(const RecurrentProblem& p, int64_t most, const Visit& visit) {
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.num_kv_heads; h += most) {
      visit(Group{b, {h, std::min(most, p.num_kv_heads - h)}});
    }
  }
}

// The group's part of a tensor that broadcasts over batch entries and has one head for each of the
// group's, or one for all.
template <typename T>
TensorView<T> Slice(TensorView<T> view, int64_t batch, const TokenSpan& heads) {
  if (view.shape[0] != 1) {
    if (view.has_value()) view.data += batch * view.strides[0];
    view.shape[0] = 1;
  }
  if (view.shape[1] != 1) {
    if (view.has_value()) view.data += heads.begin * view.strides[1];
    view.shape[1] = heads.len;
  }
  return view;
}

std::span<const float> Slice(std::span<const float> values, const TokenSpan& heads, int64_t each) {
  if (values.empty()) return values;
  return values.subspan(static_cast<size_t>(heads.begin * each),
                        static_cast<size_t>(heads.len * each));
}

template <typename T>
std::span<const T> Entry(std::span<const T> values, int64_t batch) {
  return values.size() <= 1 ? values : values.subspan(static_cast<size_t>(batch), 1);
}

RecurrentOptions OptionsOf(const Part& part, const Group& group, const TokenSpan& heads) {
  RecurrentOptions o = part.options;
  const int64_t b = group.batch;
  o.log_decay = Slice(o.log_decay, b, group.kv_heads);
  o.beta = Slice(o.beta, b, group.kv_heads);
  o.erase_key = Slice(o.erase_key, b, group.kv_heads);
  o.erase_rate = Slice(o.erase_rate, b, group.kv_heads);
  o.level_weights = Slice(o.level_weights, b, heads);
  o.bonus = Slice(o.bonus, b, heads);
  o.skip = Slice(o.skip, heads, 1);
  o.norm_weight = Slice(o.norm_weight, group.kv_heads, part.problem.head_dim);
  o.norm_bias = Slice(o.norm_bias, group.kv_heads, part.problem.head_dim);
  o.key_lengths = Entry(o.key_lengths, b);
  o.position_offset = Entry(o.position_offset, b);
  return o;
}

std::span<float> StatesOf(Part& part, const Group& group) {
  const size_t size = part.StateSize();
  const size_t first =
      static_cast<size_t>(group.batch * part.problem.num_kv_heads + group.kv_heads.begin);
  return std::span(part.states)
      .subspan(first * size, static_cast<size_t>(group.kv_heads.len) * size);
}

void RunGroup(Part& part, const Group& group, ThreadPool& pool) {
  const RecurrentProblem& p = part.problem;
  const TokenSpan heads = {group.kv_heads.begin * p.group, group.kv_heads.len * p.group};
  RecurrentOptions options = OptionsOf(part, group, heads);
  const auto state = Contiguous(StatesOf(part, group).data(), 1, group.kv_heads.len,
                                part.state_shape[2], part.state_shape[3]);
  options.initial_state = state;
  TensorView<float> output = p.outputs.output;
  if (output.has_value()) output.data += group.batch * output.strides[0];
  output.shape[0] = 1;
  heed::RecurrentAttention(Slice(p.q, group.batch, heads), Slice(p.k, group.batch, group.kv_heads),
                           Slice(p.v, group.batch, group.kv_heads), options,
                           {.output = Slice(output, 0, heads), .final_state = state}, &pool);
}

template <typename From, typename To>
void CopyStates(const Part& part, const From& from, const To& to) {
  const Extents& shape = part.state_shape;
  for (int64_t b = 0; b < shape[0]; ++b) {
    for (int64_t h = 0; h < shape[1]; ++h) {
      for (int64_t r = 0; r < shape[2]; ++r) {
        for (int64_t c = 0; c < shape[3]; ++c) to(b, h, r, c) = from(b, h, r, c);
      }
    }
  }
}

// Rules and numbers that every rank was given.
Digest DigestOf(const RecurrentProblem& p) {
  const RecurrentOptions& o = p.options;
  Digest digest;
  for (const auto& view :
       {o.log_decay, o.beta, o.bonus, o.erase_key, o.erase_rate, o.level_weights, o.projection}) {
    digest.Add(IsGiven(view));
  }
  digest.Add(o.period);
  digest.Add(p.scale);
  digest.AddAll(o.skip);
  digest.AddAll(o.norm_weight);
  digest.AddAll(o.norm_bias);
  digest.AddAll(o.position_rate);
  return digest;
}

Terms TermsOf(const Part& part, const Sharding& sharding) {
  const RecurrentProblem& p = part.problem;
  Terms terms;
  terms.Add("batch", p.batch);
  terms.Add("num_heads", p.num_heads);
  terms.Add("num_kv_heads", p.num_kv_heads);
  terms.Add("head_dim", p.head_dim);
  terms.Add("head_dim_v", p.head_dim_v);
  terms.Add("rows of the state", part.state_shape[2]);
  terms.Add("columns of the state", part.state_shape[3]);
  terms.Add("sharding.q_len", sharding.q_len);
  terms.Add("feature_map", static_cast<int64_t>(p.options.feature_map));
  terms.Add("normalize", p.options.normalize ? 1 : 0);
  terms.Add("delta", p.options.delta ? 1 : 0);
  terms.Add("mini_batch", p.options.mini_batch);
  terms.Add("chunk_len", p.options.chunk_len);
  terms.Add("value of an option", DigestOf(p).value());
  return terms;
}

// The largest number of threads of a rank: heads that it works at together.
int64_t MostThreads(Communicator& communicator, const ThreadPool& pool, std::span<int64_t> all) {
  const int64_t mine = pool.NumThreads();
  AllGather<int64_t>(communicator, std::span(&mine, 1), all);
  return *std::max_element(all.begin(), all.end());
}

}  // namespace

void RecurrentAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const RecurrentOptions& options,
                        const RecurrentOutputs& outputs, const Sharding& sharding,
                        Communicator& communicator, ThreadPool* pool) {
  WithMemoryErrors(kWhat, [&] {
    CheckCommunicator(communicator);
    std::optional<ProgressingPool> threads;
    Part part;
    std::vector<int64_t> all_threads;
    Failure failure;
    failure.Catch(kWhat, [&] {
      threads.emplace(pool, communicator);
      all_threads.resize(static_cast<size_t>(communicator.Size()));
      Validate(q, k, v, options, outputs, sharding, communicator, part);
      const auto states = Contiguous(part.states.data(), part.state_shape[0], part.state_shape[1],
                                     part.state_shape[2], part.state_shape[3]);
      if (part.options.initial_state.has_value()) {
        CopyStates(part, part.options.initial_state, states);
      }
    });
    Agree(communicator, failure.error(), TermsOf(part, sharding));
    const int rank = communicator.Rank(), size = communicator.Size();
    const int64_t heads = MostThreads(communicator, *threads, all_threads);
    ForEachGroup(part.problem, heads, [&](const Group& group) {
      const std::span<float> states = StatesOf(part, group);
      if (rank > 0) communicator.BeginReceive(rank - 1, std::as_writable_bytes(states));
      communicator.Finish();
      failure.Catch(kWhat, [&] { RunGroup(part, group, *threads); });
      threads->Rethrow();
      if (rank + 1 < size) communicator.BeginSend(rank + 1, std::as_bytes(states));
    });
    communicator.Finish();
    Agree(communicator, failure.error(), Terms());
    if (!outputs.final_state.has_value()) return;
    CopyStates(part,
               Contiguous(part.states.data(), part.state_shape[0], part.state_shape[1],
                          part.state_shape[2], part.state_shape[3]),
               outputs.final_state);
  });
}

}  // namespace heed::distributed
