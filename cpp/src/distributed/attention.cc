// Ring attention: keys and values go around, and every rank merges what its queries make of them.
#include <algorithm>
#include <optional>
#include <vector>

#include "heed/distributed.h"
#include "src/distributed/agreement.h"
#include "src/distributed/kept_array.h"
#include "src/distributed/key_ring.h"
#include "src/distributed/partial_sums.h"
#include "src/distributed/progressing_pool.h"
#include "src/distributed/whole.h"
#include "src/exact/attention_spans.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed::distributed {
namespace {

constexpr const char* kWhat = "attention over ranks";

void CheckOutputs(Whole& whole, const AttentionOutputs& outputs) {
  if (outputs.weights.has_value() || outputs.scores.has_value() ||
      outputs.running_max.has_value() || outputs.running_sum.has_value() ||
      outputs.rescale.has_value()) {
    Fail(
        ErrorCode::kUnsupported,
        "weights, scores, running_max, running_sum and rescale over ranks: no rank has whole rows. "
        "With lse, exp(score - lse) is a weight");
  }
  CompleteOutputs(whole.attention, outputs);
  SpansOf(outputs).ApartFrom("k", whole.k).ApartFrom("v", whole.v);
}

// Everything that a rank computes with, made before the ranks agree to begin.
struct Work {
  explicit Work(const Whole& w)
      : ring(w),
        sums(
            {w.attention.batch, w.attention.num_heads, w.attention.q_len, w.attention.head_dim_v}) {
    int64_t longest = 0;
    for (const Rows& rows : w.queries) longest = std::max(longest, rows.tokens.len);
    const int64_t rows = w.attention.batch * w.attention.num_heads * longest;
    part_output = KeptArray<float>(static_cast<size_t>(rows * w.attention.head_dim_v));
    part_lse = KeptArray<float>(static_cast<size_t>(rows));
    sinks.assign(w.options.sinks.begin(), w.options.sinks.end());
    // A sink of 0 for every head.
    const size_t heads = static_cast<size_t>(w.attention.num_heads);
    if (w.options.normalize == Normalize::kSoftmax1) sinks.assign(heads, 0.0f);
  }

  KeyRing ring;
  PartialSums sums;
  KeptArray<float> part_output, part_lse;
  std::vector<float> sinks;
};

void AddPart(const Whole& whole, const Rows& queries, const Rows& keys, Work& work,
             ThreadPool& pool) {
  const AttentionProblem& p = whole.attention;
  const int64_t len = queries.tokens.len;
  const auto output = Contiguous(work.part_output.data(), p.batch, p.num_heads, len, p.head_dim_v);
  const auto lse = Contiguous(work.part_lse.data(), p.batch, p.num_heads, len, 1);
  const PartOptions options(whole, queries, keys.tokens);
  heed::Attention(RowsOf(p.q, queries.begin, len),
                  RowsOf(work.ring.k(), keys.begin, keys.tokens.len),
                  RowsOf(work.ring.v(), keys.begin, keys.tokens.len), options.get(),
                  {.output = output, .lse = lse}, &pool);
  work.sums.Add(queries.begin, output, lse, pool);
}

// What this rank's queries make of the keys that are held.
void AddHeldKeys(const Whole& whole, Work& work, ThreadPool& pool) {
  ForEachPart(whole, work.ring.owner(), [&](const Rows& queries, const Rows& keys) {
    AddPart(whole, queries, keys, work, pool);
  });
}

}  // namespace

void Attention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
               const AttentionOptions& options, const AttentionOutputs& outputs,
               const Sharding& sharding, Communicator& communicator, ThreadPool* pool) {
  WithMemoryErrors(kWhat, [&] {
    CheckCommunicator(communicator);
    std::optional<ProgressingPool> threads;
    Whole whole;
    std::optional<Work> work;
    Failure failure;
    failure.Catch(kWhat, [&] {
      threads.emplace(pool, communicator);
      whole = ValidateWhole(q, k, v, options, outputs.lse.has_value(), sharding, communicator);
      CheckOutputs(whole, outputs);
      if (whole.size > 1) work.emplace(whole);
    });
    Agree(communicator, failure.error(), TermsOf(whole));
    if (whole.size == 1) return heed::Attention(q, k, v, OneRankOptions(whole), outputs, pool);
    for (;;) {
      work->ring.BeginPass(communicator);
      failure.Catch(kWhat, [&] { AddHeldKeys(whole, *work, *threads); });
      threads->Rethrow();
      if (work->ring.IsLast()) break;
      communicator.Finish();
      work->ring.Advance();
    }
    Agree(communicator, failure.error(), Terms());
    work->sums.Write(work->sinks, whole.attention.output, outputs.lse, *threads);
  });
}

}  // namespace heed::distributed
