// Several machines: attention over a sequence whose tokens are dealt to processes ("ranks"), each
// with its part of q, k and v. Nothing here knows a network: a Communicator does, and heed/mpi.h
// has one for MPI.
//
// Every function of this page but TokensOf() and HeadsOf() is collective: all ranks call it, with
// the same options. What one finds wrong is an Error on all of them, and so is what they disagree
// in: sizes, types, and every option but what tensors hold and functions do.
#ifndef HEED_DISTRIBUTED_H_
#define HEED_DISTRIBUTED_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heed/attention.h"
#include "heed/gradient.h"
#include "heed/merge.h"
#include "heed/recurrent.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed::distributed {

// How the ranks of a call reach each other. Derive from it to bring a network of your own: heed
// calls only these functions, on the thread that called heed, and never two of them at once.
//
// Failures are thrown, as whatever type suits the network; heed lets them pass, and the memory of
// messages goes with them. What other ranks then wait for is the network's to end.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // This process, in [0, Size()), and how many there are; at least 1.
  virtual int Rank() const = 0;
  virtual int Size() const = 0;

  // Begins to send to, or to receive from, another rank. The memory is left alone until Finish().
  // What one rank sends to another arrives in the order in which it was begun, each message in the
  // memory of the receive that was begun as the same one, which is as long: 0 bytes too, of ranks
  // without tokens, and then at no address.
  virtual void BeginSend(int to, std::span<const std::byte> bytes) = 0;
  virtual void BeginReceive(int from, std::span<std::byte> bytes) = 0;

  // Returns when everything that was begun is done.
  virtual void Finish() = 0;

  // Moves on what was begun, without waiting. Called between the tasks of a computation, for
  // networks that move nothing by themselves.
  virtual void Progress() {}
};

// In which order tokens are dealt.
//
//   4 ranks, causal; each digit is the rank that has the token:
//   kContiguous   00112233   rank 3 sees almost twice what the average rank sees
//   kZigzag       01233210   every rank sees as much
enum class TokenOrder {
  kContiguous,  // each rank one run of tokens, in the order of ranks
  // Twice as many runs as ranks, there and back: rank r has runs r and 2 * size - 1 - r. Why some
  // such order is needed: Brandon et al. 2023 (striped attention), arXiv:2311.09431.
  kZigzag,
};

// Tokens [begin, begin + len).
struct TokenSpan {
  int64_t begin = 0;
  int64_t len = 0;
  bool operator==(const TokenSpan&) const = default;
};

// Which of `len` tokens a rank has, in the order in which its tensors hold them: one span, or two
// with kZigzag. Runs begin at multiples of 4 and differ by 4 tokens at most; the last one ends with
// the tokens. Some are empty where there are more runs than fours of tokens.
//
//   14 tokens, 2 ranks, kZigzag:   rank 0: 0 1 2 3 12 13     rank 1: 4 5 6 7 8 9 10 11
//
// Errors   Error(kRange | kOption | kMemory): len >= 0, 0 <= rank < size.
std::vector<TokenSpan> TokensOf(int64_t len, int rank, int size, TokenOrder order);

// The whole of which every rank has a part.
struct Sharding {
  int64_t q_len = 0;   // queries of all ranks together
  int64_t kv_len = 0;  // keys of all ranks together
  TokenOrder order = TokenOrder::kZigzag;
};

// Attention of this rank's queries over the keys of all ranks: heed::Attention() of the whole, of
// which each rank gives and gets the rows that TokensOf() says. Keys and values go around in a
// ring, a rank's at a time, while every rank computes with those that it has; results are merged by
// their sums, exactly.
//
// Shapes   q [batch, num_heads, this rank's queries, head_dim], k and v [batch, num_kv_heads, this
//          rank's keys, head_dim and head_dim_v]; as Attention() otherwise. Options are about the
//          whole: what counts queries (key_lengths of [batch, q_len], query_documents, bias, keep)
//          has this rank's queries, what counts keys (the other extent of bias and keep,
//          key_documents) has all keys; lengths and positions are those of the whole, and so are
//          the places that score_mod and keep_mod see.
// Takes    every score, relative tables and biases by distance; softmax, softmax1, sinks; causal,
//          window, all lengths, documents, bias, keep, ALiBi, softcap, dropout (the same bits as
//          the whole call); score_mod and keep_mod; the patterns DilatedWindow and Strided. Of the
//          results output, stored_output and lse. The rest (other normalisers and patterns,
//          log_gates, prob_mod) is an Error(kUnsupported) that names it: SequenceToHeads() takes
//          every mechanism.
// Empty rows, masked NaN  as Attention().
// Errors   Error(kShape | kRange | kOption | kUnsupported | kMemory) on every rank, before outputs
//          are written.
// Accuracy kAttentionMaxError, and a rounding of each part's lse.
// Cost     FLOPs as Attention(), dealt as the order says, always in float32: the processor's
//          products of bfloat16 are not used. Parts that causal, window or the lengths of batch
//          entries hide are skipped, but go around. Each rank sends its keys and values, in their
//          type, size - 1 times over while it computes, and twice half a KiB to each other rank.
//          Allocates two times the keys and values of a rank, a float64 for each number of its
//          output and two a row, and a float for each number of a part's; where one rank is alone
//          what Attention() does.
// Threads  as Attention(). The same bits for any number of threads; another number of ranks, or
//          another order, rounds differently.
// Source   Liu, Zaharia & Abbeel 2023 (ring attention), arXiv:2310.01889.
void Attention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
               const AttentionOptions& options, const AttentionOutputs& outputs,
               const Sharding& sharding, Communicator& communicator, ThreadPool* pool = nullptr);
inline void Attention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const AttentionOptions& options,
                      const AttentionOutputs& outputs, const Sharding& sharding,
                      Communicator& communicator, ThreadPool* pool = nullptr) {
  Attention(StoredTensor(q), StoredTensor(k), StoredTensor(v), options, outputs, sharding,
            communicator, pool);
}

// Gradients of the above: heed::AttentionBackward() of the whole. Keys and values go around once
// more, and the sums of their gradients go with them.
//
// Shapes   q, k, v, options as in the call of Attention() that gave `out` and `lse`; d_out as out.
// Takes    what Attention() takes, d_lse and score_mod_slope. Gives d_q, d_k and d_v of this rank's
//          tokens, and the gradients of everything that all ranks share (slopes, sinks, tables,
//          weights of scores), which are sums over ranks, the same bits on each. d_bias is an
//          Error(kUnsupported). All ranks ask for the same ones.
// Errors   as Attention(); kUnsupported for a score_mod without its slope.
// Accuracy kGradientMaxError, and for d_k and d_v a rounding to float32 for each rank.
// Cost     2.5 times the FLOPs of Attention(). Each rank sends its keys and values size - 1 times
//          over and sums of their gradients (float32) size times, all but the last while it
//          computes. Allocates two times keys and values of a rank and four times their gradients,
//          a float64 and a float for each number of d_q, and what AttentionBackward() of one part
//          does.
// Threads  as Attention().
void AttentionBackward(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                       const StoredTensor& out, TensorView<const float> lse,
                       const StoredTensor& d_out, const AttentionOptions& options,
                       const AttentionGradients& gradients, const Sharding& sharding,
                       Communicator& communicator, ThreadPool* pool = nullptr);
inline void AttentionBackward(TensorView<const float> q, TensorView<const float> k,
                              TensorView<const float> v, TensorView<const float> out,
                              TensorView<const float> lse, TensorView<const float> d_out,
                              const AttentionOptions& options, const AttentionGradients& gradients,
                              const Sharding& sharding, Communicator& communicator,
                              ThreadPool* pool = nullptr) {
  AttentionBackward(StoredTensor(q), StoredTensor(k), StoredTensor(v), StoredTensor(out), lse,
                    StoredTensor(d_out), options, gradients, sharding, communicator, pool);
}

// heed::Merge() over ranks: each has attended with the same queries to keys of its own, in any
// split, and all get attention over all keys. For decoding: every rank keeps a part of the KV
// cache, calls Decode() with its own and merges. Same bits on every rank, those of heed::Merge() of
// the states in the order of ranks.
//
// Shapes   mine.output [batch, num_heads, q_len, head_dim_v], mine.lse [batch, num_heads, q_len,
//          1], the same on every rank; output and lse as theirs, and they may be the same views.
//          lse may be absent.
// Sinks    belong to one rank's keys: each would add its own. What counts positions (ALiBi,
//          windows) has to count those of the whole, which a cache of some tokens does not know.
// Errors   Error(kShape | kOption | kMemory) on every rank, before anything is written; kMemory of
//          heed::Merge() itself is this rank's alone.
// Cost     every rank sends its state to every other. Allocates the states of all ranks.
void Merge(const PartialAttention& mine, TensorView<float> output, TensorView<float> lse,
           Communicator& communicator, ThreadPool* pool = nullptr);

// The heads that SequenceToHeads() gives to a rank: heads [begin, begin + len) of num_heads. The
// number of heads is a multiple of that of ranks, or divides it: then several ranks have the same
// head, as KV heads that fewer ranks would share.
//
// Errors   Error(kRange), also where neither is a multiple of the other.
TokenSpan HeadsOf(int64_t num_heads, int rank, int size);

// From some tokens of all heads to all tokens of some heads, and back. In between, every function
// that computes heads by themselves does it as on one machine, to the same bits. Grouped heads stay
// together: give q and k, each with its own number of heads.
//
// The caller says which heads these are. What options have for each head (slopes, sinks, tables,
// bias) is cut to HeadsOf(); dropout.origin[1] is its begin, and BigBird's seed is raised by it;
// user functions count heads from 0. Talking heads mix all of them, and are not for this.
//
// Shapes   by_token [batch, num_heads, this rank's tokens, dim], as TokensOf(len, ...) says,
//          by_head [batch, HeadsOf(num_heads, ...).len, len, dim]; one type on both sides, any
//          strides with a contiguous last dimension.
// Errors   Error(kShape | kDType | kRange | kOption | kMemory) on every rank, before anything is
//          written; kMemory may leave results half written. Back only where ranks have heads of
//          their own, else kUnsupported.
// Cost     each rank sends its tensor once, but for what it keeps; size / num_heads times where
//          ranks share heads. Allocates both sides once.
// Source   Jacobs et al. 2023 (DeepSpeed-Ulysses), arXiv:2309.14509.
void SequenceToHeads(const StoredTensor& by_token, const StoredOutput& by_head, int64_t len,
                     TokenOrder order, Communicator& communicator);
void HeadsToSequence(const StoredTensor& by_head, const StoredOutput& by_token, int64_t len,
                     TokenOrder order, Communicator& communicator);

// Recurrent attention over a sequence in contiguous parts (TokenOrder::kContiguous): each rank
// takes up the states that the one before it left, some heads after the other, so that all ranks
// are at work at once on different heads.
//
// Shapes   q, k, v and the tensors of options that count tokens have this rank's tokens (log_decay,
//          beta, erase_key, erase_rate, level_weights); key_lengths and position_offset are those
//          of the whole, initial_state is read on rank 0, final_state is the state after this
//          rank's tokens. q_len = kv_len = sharding.q_len.
// Takes    causal options, but no feature_mod, which is an Error(kUnsupported).
// Errors   as RecurrentAttention(), on every rank, before anything is written; kMemory may leave
//          outputs half written.
// Accuracy kRecurrentMaxError; where parts begin at multiples of chunk_len, and have more than one
//          token, the bits of one machine.
// Cost     that of the rank's tokens; with n groups of heads, of which a rank works at one after
//          the other, (n + size - 1) / n times as long. A group is as many KV heads of a batch
//          entry as the rank with most threads has. A rank sends its states once. Allocates them
//          once.
// Threads  as RecurrentAttention().
void RecurrentAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const RecurrentOptions& options,
                        const RecurrentOutputs& outputs, const Sharding& sharding,
                        Communicator& communicator, ThreadPool* pool = nullptr);

}  // namespace heed::distributed

#endif  // HEED_DISTRIBUTED_H_
