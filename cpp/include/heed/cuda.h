// Exact, recurrent and low-rank attention on an NVIDIA GPU: the options of the functions of the
// same names in heed, device pointers and a stream. Every other mechanism by its name.
//
// In a build without -DHEED_CUDA=ON these functions exist and say what is missing. docs/cuda.md
// lists what has been compiled, run and measured.
#ifndef HEED_CUDA_H_
#define HEED_CUDA_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/attention.h"
#include "heed/error.h"
#include "heed/gradient.h"
#include "heed/low_rank.h"
#include "heed/recurrent.h"
#include "heed/request.h"
#include "heed/tensor.h"

struct CUstream_st;  // what cudaStream_t points to

namespace heed::cuda {

using Stream = CUstream_st*;  // cudaStream_t; nullptr is the default stream

// What multiplying in the storage type adds to the bound of Attention() of stored tensors, relative
// to the sum of the weights times max |v|: weights are rounded to the type of v before they meet
// the values. float32 adds nothing: its products are float32.
inline constexpr double kFloat16Products = 0x1p-10;
inline constexpr double kBFloat16Products = 0x1p-8;

// The same of q, k and v of float8_e4m3, which the Hopper kernel multiplies as they are. A weight
// has 4 significant bits, so rounding errs by 2^-4 of it; one below 2^-14 of the row's largest by
// up to 2^-18 of that, each key once (kFloat8Lost). kFloat8Scores allows for tensor cores, which
// add products of float8 in fewer bits than float32 has: a score errs by it times the sum of its
// absolute terms, an output by twice that times max |v|; an H200 stayed within it. Sums of the
// weighted values of 32 keys lose up to 2^-8 of them so, which is within kFloat8Products unless all
// weights are rounded by the most. Other kernels multiply these tensors as bfloat16, or in float32.
inline constexpr double kFloat8Products = 0x1p-4;
inline constexpr double kFloat8Lost = 0x1p-18;
inline constexpr double kFloat8Scores = 0x1p-10;

// Whether attention can run on the current device, and if not, why not.
struct Availability {
  bool usable = false;
  std::string found;   // "NVIDIA H100, sm_90, driver 13.0", "no CUDA device", ...
  std::string needed;  // "a GPU of compute capability 8.0 or newer", ...; empty when usable
};
Availability Available();

// Arrays of a call that lie in device memory, in place of the host arrays of the options. The host
// cannot check them: a kernel treats a length outside of [0, kv_len] as the nearest one inside and
// records it for Check(). Giving an array here and in the options is an error.
//
// The scales are what numbers of float8_e4m3 tensors are multiplied by, [batch, num_kv_heads, 1, 1]
// with any strides (0 shares them): a query head has that of its KV head. Absent: 1. Any finite
// number is legal; NaN makes the rows of its heads NaN.
struct DeviceArrays {
  const int32_t* key_lengths = nullptr;      // [batch]; QueryOffset::End() follows them
  const int32_t* query_documents = nullptr;  // [q_len]
  const int32_t* key_documents = nullptr;    // [kv_len]; both or none
  TensorView<const float> q_scales{}, k_scales{}, v_scales{};  // of tensors of float8_e4m3 alone
};

// Computes o = softmax(...) v as Attention() does: same shapes, meaning, empty rows, dropout bits
// and errors. Tensor views (q, k, v, bias, keep, outputs) are device memory; spans of the options
// (alibi_slopes, sinks, key_lengths, ...) are host memory, read before the call returns and sent
// with it.
//
// Takes    every option but the user functions score_mod, keep_mod and prob_mod; up to 2^23 - 1
//          queries, keys, and heads of all batch entries; dimensions up to 4096; q, k and v of
//          float32, float16, bfloat16 or float8_e4m3 (with scales in `arrays`), each its own, an
//          output of any but the last; lse, weights and scores, not the running statistics. What it
//          lacks is an Error(kUnsupported) that names the option. Lists of keep patterns
//          (BlockList::keep included) are host memory. log_gates above 0 and relative_values that
//          are not finite are not found, as the host cannot read them. The tile kernel runs
//          Score::kDot with softmax, softmax1, sigmoid, relu, relu_squared or average; causal,
//          window, query_offset, key_lengths, prefix_lengths, documents, keep, patterns, bias,
//          alibi_slopes, softcap, sinks, dropout; grouped heads; dimensions up to 256; q, k and v
//          of one type. All else, and relu and relu_squared of float16, takes the row kernel, which
//          is plain: it reads every key for every query.
// Errors   as Attention(), before anything is launched; kUnsupported without a GPU of compute
//          capability 8.0, kMemory when the device is out of memory. What the device finds, Check()
//          tells.
// Accuracy kAttentionMaxError in float32; what kFloat16Products or kBFloat16Products and rounding
//          the output add in those types. The row kernel computes in float32. float8_e4m3 adds what
//          bfloat16 adds, on Hopper what kFloat8Products says. There lse with alibi_slopes, which
//          is as large as the bias of the nearest key that is seen, adds two units of its last
//          place.
// Cost     that of Attention(): tiles of 64 or 32 keys that causal, window, lengths, documents or
//          patterns hide from 64 packed rows are skipped; `keep` and `bias` skip none. Allocates
//          scratch (ReleaseMemory()) for the host arrays and, where keys are split, splits * batch
//          * num_heads * q_len * (head_dim_v + 2) floats; the row kernel at most 256 MiB of scores
//          (never less than one row), and key_weight a projected copy of the keys. Patterns are
//          spread out on the host: 4 bytes a query and head, 12 for each 64 keys that a row sees
//          one of. More than 1 MB of arrays are copied, which waits for the stream.
//          The same launch merges splits for the first 256 streams of the program that ask, except
//          captured streams and cudaStreamPerThread. For those, for later streams, and where rows
//          are many, a second launch does. Counters take 1 MiB of device memory, always allocated.
// Threads  any; asynchronous to the host, never synchronises, may be captured in a graph (call it
//          once before, so that CUDA has loaded the kernels).
//          Deterministic: splits depend on shapes, the device and host key_lengths, and merge in
//          ascending order. Lengths in DeviceArrays are not known to the host, and kv_len decides:
//          the same lengths here and there may give different bits.
// Source   Dao 2023 (FlashAttention-2, arXiv:2307.08691); split keys: Dao et al. 2023,
//          Flash-Decoding.
void Attention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
               const AttentionOptions& options, const AttentionOutputs& outputs, Stream stream,
               const DeviceArrays& arrays = {});
inline void Attention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const AttentionOptions& options,
                      const AttentionOutputs& outputs, Stream stream,
                      const DeviceArrays& arrays = {}) {
  Attention(StoredTensor(q), StoredTensor(k), StoredTensor(v), options, outputs, stream, arrays);
}

// Keys and values of many sequences in pages of a pool, device memory: token j of sequence b is row
// j % page_size of page table[b][j / page_size]. A page number outside of [0, num_pages) counts as
// a page of zeros and is recorded for Check().
//
// Pages may also be int8 or float8_e4m3, keys and values each, as in a KvCache: a row is its
// numbers times its scale. They meet the queries as they are (exact in every type), scales multiply
// scores and weights in float32. A contiguous cache is one page a sequence.
struct PagedKeys {
  StoredTensor k_pages;                // [num_pages, num_kv_heads, page_size, head_dim]
  StoredTensor v_pages;                // [num_pages, num_kv_heads, page_size, head_dim_v]
  const int32_t* table = nullptr;      // [batch, table_width], dense
  int64_t table_width = 0;             // pages of the longest sequence; kv_len = it * page_size
  TensorView<const float> k_scales{};  // [num_pages, num_kv_heads, page_size, 1], device memory:
  TensorView<const float> v_scales{};  // of int8 and float8_e4m3 pages, and of no others
};

// The same over a paged cache. Entries of the table for tokens beyond the key lengths are not read.
void Attention(const StoredTensor& q, const PagedKeys& keys, const AttentionOptions& options,
               const AttentionOutputs& outputs, Stream stream, const DeviceArrays& arrays = {});

// Computes gradients as heed::AttentionBackward() does: same shapes, meaning, empty rows, dropout
// bits and errors. Tensor views and `lse` are device memory, spans of the options host memory. So
// that nothing waits, the spans of `gradients` (d_alibi_slopes, d_sinks) are device memory too.
//
// Takes    what the tile kernel of Attention() takes, with softmax or softmax1: Score::kDot; causal
//          masks, window, query_offset, key_lengths, prefix_lengths, documents, keep, patterns,
//          bias, alibi_slopes, softcap, sinks, dropout; grouped heads; dimensions up to 256; q, k,
//          v and d_out of one type, out and results of any. Gradients of q, k, v, bias,
//          alibi_slopes and sinks. What it lacks is an Error(kUnsupported) that names the option.
// Errors   as heed::AttentionBackward(), before anything is launched; kUnsupported without a GPU of
//          compute capability 8.0, and where a block needs more shared memory than the GPU has;
//          kMemory when the device is out of memory. What the device finds, Check() tells.
// Accuracy kGradientMaxError in float32. The 16-bit types add kFloat16Products or kBFloat16Products
//          times the sum of the absolute terms of a gradient: weights and gradients of scores are
//          rounded to the type before they meet rows. Those above 65504 overflow in float16: scale
//          the loss.
// Cost     3.5 times the FLOPs of Attention(): q k^T and d_out v^T are computed once for queries,
//          once for keys; above 128 columns 4 times, as keys and values take a pass each. A bias
//          takes one more pass, 1 time, by one block for each tile of its own cells: the fewer
//          cells, the fewer multiprocessors are at work. Tiles that masks hide are skipped.
//          Allocates scratch for the host arrays and batch * num_heads * q_len floats, twice as
//          many for d_alibi_slopes; nothing grows with q_len * kv_len.
// Threads  any; asynchronous to the host, never synchronises, may be captured in a graph.
//          Deterministic: every number is summed by one block, in an order that shapes decide.
// Source   Dao 2023 (FlashAttention-2, arXiv:2307.08691), with a pass for queries of its own in
//          place of atomic additions.
void AttentionBackward(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                       const StoredTensor& out, TensorView<const float> lse,
                       const StoredTensor& d_out, const AttentionOptions& options,
                       const AttentionGradients& gradients, Stream stream,
                       const DeviceArrays& arrays = {});
inline void AttentionBackward(TensorView<const float> q, TensorView<const float> k,
                              TensorView<const float> v, TensorView<const float> out,
                              TensorView<const float> lse, TensorView<const float> d_out,
                              const AttentionOptions& options, const AttentionGradients& gradients,
                              Stream stream, const DeviceArrays& arrays = {}) {
  AttentionBackward(StoredTensor(q), StoredTensor(k), StoredTensor(v), StoredTensor(out), lse,
                    StoredTensor(d_out), options, gradients, stream, arrays);
}

// Recurrent attention as RecurrentAttention() and RecurrentStep() compute it: same shapes, meaning
// and errors. Tensor views are device memory, spans of the options host memory.
//
// Takes    every option but feature_mod; up to 256 features, with mini_batch a head_dim up to 4096;
//          up to 2^23 - 1 tokens, and as many heads of all batch entries.
//          What it lacks is an Error(kUnsupported) that names the option. Gates above 0 are not
//          found. `projection` is device memory as all tensors are: DrawRandomFeatures() draws it
//          on the host, once, and every call and the CPU then have the same features.
// Errors   as the functions of the CPU, before anything is launched; kUnsupported without a GPU,
//          kMemory when the device is out of memory.
// Accuracy kRecurrentMaxError; states and sums are float32.
// Cost     token by token, also where the CPU multiplies chunks: chunk_len has no effect. One block
//          for each 8 to 32 columns of the state of a KV head; with mini_batch one for the head.
//          Random features are made anew by each of these blocks: features * head_dim
//          multiply-adds a row. Allocates the host arrays, for an initial state with normalize its
//          sums of keys, and for level_weights and mini_batch the state, where final_state is
//          absent.
// Threads  any; asynchronous to the host, never synchronises, deterministic.
void RecurrentAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const RecurrentOptions& options,
                        const RecurrentOutputs& outputs, Stream stream);
void RecurrentStep(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                   const RecurrentOptions& options, TensorView<float> state,
                   TensorView<float> output, Stream stream);

// What 16-bit tensors add to the error of an output or state of recurrent attention, relative to
// the sum of the absolute values of its terms, scale * decays * beta * feature of q * feature of k
// * v (of a state without scale and q): features, weights (or what values become until the end of
// their chunk) and states before a chunk are rounded to the type before they are multiplied. Twice
// as much with normalize, of the sum divided as the output is. float16 has no more than 2^-24 of
// precision: numbers below 2^-14 lose some.
inline constexpr double kFloat16Recurrent = 0x1p-9;
inline constexpr double kBFloat16Recurrent = 0x1p-6;

// The same of delta rules in chunks, relative to the largest absolute value of the same output or
// state of the call, for keys of length 1 and beta up to 1, or erase_rate from 0 to 1.
inline constexpr double kBFloat16Delta = 0x1p-5;

// Where results of the call below go.
struct StoredRecurrentOutputs {
  StoredOutput output{};            // as RecurrentOutputs::output, of any of the three types
  TensorView<float> final_state{};  // as RecurrentOutputs::final_state: states are float32
};

// The same of q, k and v of float32, float16 or bfloat16.
//
// Takes    the same. Prompts of 16-bit tensors of one type take chunks of 64 tokens on tensor
//          cores: causal, from 64 tokens on, head_dim up to 128, kIdentity, kEluPlusOne or kRelu,
//          no decay or one a head and token, beta, skip, normalize, key_lengths, states, grouped
//          heads. Those of bfloat16 also with a decay for each channel, delta, erase_key, bonus,
//          kUnit and kComplement, and then without normalize. All else is computed token by token,
//          in float32.
// Errors   the same; kDType for tensors of other types.
// Accuracy kRecurrentMaxError and rounding of the output; chunks add kFloat16Recurrent or
//          kBFloat16Recurrent, with delta or erase_key kBFloat16Delta. States and sums are float32.
// Cost     chunks: three kernels; head_dim * head_dim_v multiply-adds a token and KV head for each
//          query head, and once or twice to write, and for each query head and 64 columns of
//          values 64 * (head_dim + 64). Allocates the host arrays, and for each KV head and span a
//          state and a float: as many spans as fill the GPU twice, of 256 tokens or more. With a
//          decay for each channel or delta one kernel more prepares chunks: some 4 F + 128 bytes a
//          token and KV head, F = 64 or 128 for up to as many features, with delta 6 F + 256, and 2
//          F + 128 for each further query head of a group; with erase_key 8 F + 512 and 4 F + 256;
//          of as many tokens at a time as 64 MiB have room for, but two chunks of 64 (with
//          erase_key 32) at least. Where that is not all of them, they are prepared on the call's
//          stream and read on one of the library's own, for which the call's waits; captured calls
//          have no other. Spans with delta or erase_key take features^2 floats besides. Others: 4
//          bytes for each number of a tensor that is not float32, and what the call of float32
//          tensors allocates.
// Threads  as there. The number of spans, and with it rounding, depends on shapes and the device.
// Source   Yang et al. 2023, arXiv:2312.06635; Dao and Gu 2024, arXiv:2405.21060; delta rules:
//          Yang et al. 2024, arXiv:2406.06484 and arXiv:2412.06464; Kimi Team 2025,
//          arXiv:2510.26692; Peng et al. 2025, arXiv:2503.14456.
void RecurrentAttention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                        const RecurrentOptions& options, const StoredRecurrentOutputs& outputs,
                        Stream stream);

// The low-rank family, as the functions of the same names in heed compute it: calls of Attention()
// with float32 products and means of tokens between them. Tensor views are device memory
// (projections and weights of convolutions too), spans of the options host memory.
//
// Takes    every option; of the results all but the weights of EfficientAttention(), which are an
//          Error(kUnsupported).
// Errors   as the functions of the CPU, and those of Attention(), before anything is launched;
//          kUnsupported when a step needs more blocks than a grid has.
// Accuracy kLowRankMaxError as there.
// Cost     that of the functions of the CPU; projections and convolutions are plain tiles of
//          multiply-adds, and convolutions read the blocks once for each token of a block.
//          Allocates what those functions allocate, for EfficientAttention() a copy of all keys.
//          NystromAttention() with key_lengths works through one batch entry after the other, and
//          gives back what each allocated.
// Threads  as Attention().
void Linformer(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
               const LinformerOptions& options, const AttentionOutputs& outputs, Stream stream);
void EfficientAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const EfficientOptions& options,
                        const AttentionOutputs& outputs, Stream stream);
void MemoryCompressedAttention(TensorView<const float> q, TensorView<const float> k,
                               TensorView<const float> v, const MemoryCompressedOptions& options,
                               const AttentionOutputs& outputs, Stream stream);
void NystromAttention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const NystromOptions& options,
                      const NystromOutputs& outputs, Stream stream);

// A mechanism by its name, as heed::Run() and heed::PlanOutputs() take it: every row of the
// registry. Tensors of the request and its outputs are device memory, but for the inputs of which
// IsHostInput() is true: lists that are read at the call, and sent with it. Random numbers by a
// seed (a projection of performer, rotations of reformer, centroids of routing) are drawn on the
// host at every call, and sent; given as tensors they are not.
//
// Errors   as heed::Run(), before anything is launched; Error(kUnsupported) for what the typed
//          functions lack, and for steps beyond 2^31 numbers a side or blocks a launch;
//          Error(kDType) for 16-bit tensors of rows that read float32.
// Accuracy of the rows of heed. What selective rows choose is what they choose on the CPU, equal
//          scores included; near ties of native_sparse and heavy_hitter may fall differently, as
//          exponentials decide there.
// Cost     of the calls of Attention() that a row is made of, and plain kernels between them. What
//          each query chooses is a list for each head, for each KV head (native_sparse,
//          heavy_hitter) or for all: 12 bytes for each word of 64 keys that it may touch (at most
//          3/16 byte a pair), 16 a list, and 4 a query head. Attention skips tiles that no row of a
//          block keeps. Scores that choose take 256 MiB, or those of one query of all heads and
//          batch entries if more. Queries of routing have a length of 4 bytes in each cluster.
//          talking_heads allocates three to five matrices of floats a head; hopfield runs all its
//          steps; heavy_hitter takes one block a KV head for all tokens.
std::vector<OutputSpec> PlanOutputs(const Request& request);
void Run(const Request& request, std::span<const NamedTensor> outputs, Stream stream);
bool IsHostInput(std::string_view name);

// Waits for the stream, and throws Error(kRange) for the first bad value that a kernel of the
// current device found in device memory since the last check, Error(kUnsupported) for an error of
// CUDA itself.
void Check(Stream stream);

// Returns the scratch memory of the current device that no call is using to the system.
//
// Every call takes its scratch from a pool of the library's own, in the order of its stream, and
// gives it back to the pool in that order. After a wait up to 128 MiB stay mapped on each device,
// so that the next call need not map memory again; what is above goes back to the system. The pool
// of others (cudaMallocAsync(), torch) is left alone, but for captured calls: memory of a graph is
// the graph's (cudaDeviceGraphMemTrim()).
//
// Errors   kUnsupported without a GPU of compute capability 8.0. A GPU or driver without memory
//          pools refuses every call that needs scratch, as kUnsupported.
// Cost     does not wait: scratch of calls that the host has not waited for (Check()) stays.
// Threads  any.
void ReleaseMemory();

}  // namespace heed::cuda

#endif  // HEED_CUDA_H_
