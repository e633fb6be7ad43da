// Ring attention backwards: keys, values and the sums of their gradients go around.
#include <algorithm>
#include <optional>
#include <vector>

#include "heed/distributed.h"
#include "src/distributed/agreement.h"
#include "src/distributed/kept_array.h"
#include "src/distributed/key_gradients.h"
#include "src/distributed/key_ring.h"
#include "src/distributed/parameter_sums.h"
#include "src/distributed/progressing_pool.h"
#include "src/distributed/row_sums.h"
#include "src/distributed/whole.h"
#include "src/gradient/problem.h"
#include "src/message.h"

namespace heed::distributed {
namespace {

constexpr const char* kWhat = "gradients of attention over ranks";

// What a rank has of the forward call, and where its gradients go.
struct Problem {
  Whole whole;
  GradientProblem gradient;
};

Problem Validate(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                 const StoredTensor& out, TensorView<const float> lse, const StoredTensor& d_out,
                 const AttentionOptions& options, const AttentionGradients& gradients,
                 const Sharding& sharding, const Communicator& communicator) {
  Problem p;
  p.whole = ValidateWhole(q, k, v, options, false, sharding, communicator);
  if (gradients.d_bias.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "d_bias over ranks: cells that broadcast are sums over ranks of what none has whole. "
         "SequenceToHeads() brings whole sequences together");
  }
  p.gradient.attention = p.whole.attention;
  p.gradient.attention.k = k;  // what d_k and d_v are shaped as
  p.gradient.attention.v = v;
  p.gradient.out = out;
  p.gradient.lse = lse;
  p.gradient.d_out = d_out;
  p.gradient.gradients = gradients;
  CompleteGradient(p.gradient, options);
  return p;
}

// Is the gradient asked for? An array without elements may lie nowhere.
bool IsWanted(const StoredOutput& gradient, const StoredTensor& of) {
  return gradient.has_value() || (gradient.size() == 0 && gradient.shape == of.shape);
}

// Gradients of keys and values go around on every rank, or on none.
bool WantsK(const Problem& p) { return IsWanted(p.gradient.gradients.d_k, p.whole.k); }
bool WantsV(const Problem& p) { return IsWanted(p.gradient.gradients.d_v, p.whole.v); }

struct Work {
  Work(const Problem& p, const AttentionGradients& wanted)
      : ring(p.whole),
        d_q_sums(wanted.d_q.has_value() ? p.whole.attention.q.shape : Extents{}),
        key_gradients(p.whole, WantsK(p), WantsV(p)),
        parameters(p.whole.options, wanted, p.whole.size) {
    const AttentionProblem& a = p.whole.attention;
    int64_t queries = 0, keys = 0;
    for (const Rows& rows : p.whole.queries) queries = std::max(queries, rows.tokens.len);
    for (int rank = 0; rank < p.whole.size; ++rank) {
      for (const Rows& rows : p.whole.KeysOf(rank)) keys = std::max(keys, rows.tokens.len);
    }
    const auto array = [&](bool is_wanted, int64_t heads, int64_t rows, int64_t width) {
      return KeptArray<float>(is_wanted ? static_cast<size_t>(a.batch * heads * rows * width) : 0);
    };
    d_q = array(wanted.d_q.has_value(), a.num_heads, queries, a.head_dim);
    d_k = array(WantsK(p), a.num_kv_heads, keys, a.head_dim_k);
    d_v = array(WantsV(p), a.num_kv_heads, keys, a.head_dim_v);
  }

  KeyRing ring;
  RowSums d_q_sums;
  KeyGradients key_gradients;
  ParameterSums parameters;
  KeptArray<float> d_q, d_k, d_v;  // of a part
};

// Gradients of some queries against some keys. The lse is that of whole rows, so weights are too.
void AddPart(const Problem& p, const Rows& queries, const Rows& keys, Work& work,
             ThreadPool& pool) {
  const AttentionProblem& a = p.whole.attention;
  const AttentionGradients& wanted = p.gradient.gradients;
  const int64_t len = queries.tokens.len, kv_len = keys.tokens.len;
  AttentionGradients part;
  part.d_lse = RowsOf(wanted.d_lse, queries.begin, len);
  part.score_mod_slope = Shifted(wanted.score_mod_slope, queries.tokens.begin, keys.tokens.begin);
  const auto d_q = Contiguous(work.d_q.data(), a.batch, a.num_heads, len, a.head_dim);
  const auto d_k = Contiguous(work.d_k.data(), a.batch, a.num_kv_heads, kv_len, a.head_dim_k);
  const auto d_v = Contiguous(work.d_v.data(), a.batch, a.num_kv_heads, kv_len, a.head_dim_v);
  if (wanted.d_q.has_value()) part.d_q = d_q;
  if (WantsK(p)) part.d_k = d_k;
  if (WantsV(p)) part.d_v = d_v;
  work.parameters.Place(part);
  const PartOptions options(p.whole, queries, keys.tokens);
  heed::AttentionBackward(
      RowsOf(a.q, queries.begin, len), RowsOf(work.ring.k(), keys.begin, kv_len),
      RowsOf(work.ring.v(), keys.begin, kv_len), RowsOf(p.gradient.out, queries.begin, len),
      RowsOf(p.gradient.lse, queries.begin, len), RowsOf(p.gradient.d_out, queries.begin, len),
      options.get(), part, &pool);
  work.parameters.Add();
  const int owner = work.ring.owner();
  if (wanted.d_q.has_value()) work.d_q_sums.Add(queries.begin, d_q);
  if (WantsK(p)) {
    AddTo(RowsOf(work.key_gradients.d_k(owner), keys.begin, kv_len), d_k);
  }
  if (WantsV(p)) {
    AddTo(RowsOf(work.key_gradients.d_v(owner), keys.begin, kv_len), d_v);
  }
}

void AddHeldKeys(const Problem& p, Work& work, ThreadPool& pool) {
  ForEachPart(p.whole, work.ring.owner(), [&](const Rows& queries, const Rows& keys) {
    AddPart(p, queries, keys, work, pool);
  });
}

void CopyRows(const TensorView<float>& from, const StoredOutput& to) {
  for (int64_t b = 0; b < from.shape[0]; ++b) {
    for (int64_t h = 0; h < from.shape[1]; ++h) {
      for (int64_t i = 0; i < from.shape[2]; ++i) {
        void* row = to.Row(b, h, i);
        for (int64_t d = 0; d < from.shape[3]; ++d) {
          StoreElement(static_cast<double>(from(b, h, i, d)), to.dtype, row, d);
        }
      }
    }
  }
}

void WriteGradients(const Problem& p, Work& work) {
  const AttentionGradients& to = p.gradient.gradients;
  if (to.d_q.has_value()) work.d_q_sums.Write(to.d_q);
  if (to.d_k.has_value()) CopyRows(work.key_gradients.HomeK(), to.d_k);
  if (to.d_v.has_value()) CopyRows(work.key_gradients.HomeV(), to.d_v);
  work.parameters.Write(to);
}

// Of a problem that is not valid there is no work.
Terms BackwardTerms(const Problem& p, const std::optional<Work>& work) {
  Terms terms = TermsOf(p.whole);
  const int64_t of_keys = (WantsK(p) ? 1 : 0) + (WantsV(p) ? 2 : 0);
  terms.Add("list of gradients", of_keys + 4 * ParameterSums::Wanted(p.gradient.gradients));
  terms.Add("number of gradients", work ? work->parameters.Count() : 0);
  return terms;
}

}  // namespace

void AttentionBackward(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                       const StoredTensor& out, TensorView<const float> lse,
                       const StoredTensor& d_out, const AttentionOptions& options,
                       const AttentionGradients& gradients, const Sharding& sharding,
                       Communicator& communicator, ThreadPool* pool) {
  WithMemoryErrors(kWhat, [&] {
    CheckCommunicator(communicator);
    std::optional<ProgressingPool> threads;
    Problem p;
    std::optional<Work> work;
    Failure failure;
    failure.Catch(kWhat, [&] {
      threads.emplace(pool, communicator);
      p = Validate(q, k, v, out, lse, d_out, options, gradients, sharding, communicator);
      if (p.whole.size == 1) return;
      work.emplace(p, gradients);
      work->parameters.AddSinks(p.gradient);
    });
    Agree(communicator, failure.error(), BackwardTerms(p, work));
    if (p.whole.size == 1) {
      return heed::AttentionBackward(q, k, v, out, lse, d_out, OneRankOptions(p.whole), gradients,
                                     pool);
    }
    for (bool last = false; !last;) {
      const int owner = work->ring.owner();
      last = work->ring.IsLast();
      work->ring.BeginPass(communicator);
      work->key_gradients.Begin(owner);
      failure.Catch(kWhat, [&] { AddHeldKeys(p, *work, *threads); });
      threads->Rethrow();
      communicator.Finish();
      work->key_gradients.Pass(owner, communicator);
      if (!last) work->ring.Advance();
    }
    communicator.Finish();
    work->parameters.Gather(communicator);
    Agree(communicator, failure.error(), Terms());
    WriteGradients(p, *work);
  });
}

}  // namespace heed::distributed
