// What the kernels of gated chunks are given: plain numbers and device pointers, passed by value;
// and what they leave each other of a chunk.
#ifndef HEED_SRC_CUDA_GATED_CHUNK_PARAMS_H_
#define HEED_SRC_CUDA_GATED_CHUNK_PARAMS_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// Blocks that take states past chunks that share a multiprocessor, for registers.
inline constexpr int kResidentGated = 2;

// With erase_key a token counts as two, of which the first erases and the second writes. The first
// asks what the state before its decay answers to the direction of erase_key, decays it, and writes
// minus the answer, by erase_rate times the direction. The second is the token itself without a
// decay. So a chunk of kChunkTokens has half as many tokens of the sequence; those that erase are
// its even ones.
//
// What is prepared of a chunk of kChunkTokens tokens of a KV head, in bytes from its beginning:
// rows of `dim` and of kChunkTokens bfloat16 numbers, and floats. All are multiples of 16 bytes.
//
//   write      [tokens, dim]     k, decayed to the end of the chunk
//   erase      [tokens, dim]     -k, decayed from the beginning of the chunk
//   solution   [tokens, tokens]  (1 + A)^-1 beta (SolveChunk): what is written of values less what
//                                the state before the chunk answers to their keys
//   decays     [dim]             of the state, by the whole chunk
//   reads      [tokens, dim]     q, decayed from the beginning of the chunk; of each query head.
//                                With erase_key even rows of the first one are what `erase` is
//                                otherwise, and those of others are of no use
//   weights    [tokens, tokens]  of the values that are written, for each query; 16 x 16 blocks
//                                above the diagonal stay as they are
struct PreparedChunk {
  int64_t write, erase, solution, decays, reads, weights;
  int64_t head;   // bytes of a query head: reads and weights
  int64_t bytes;  // of all of it
};

struct GatedChunkParams {
  DeviceRows q, k, v;
  DeviceOutput output;
  FloatRows<const float> begin;  // the state before the first chunk; data == nullptr: zeros
  FloatRows<float> end;          // the state behind the last one; nullptr: not wanted
  FloatRows<const float> bonus, erase_key, erase_rate;
  DevicePairs<float> log_decay, beta;
  const float* skip;           // [num_heads] or nullptr
  const int32_t* key_lengths;  // [batch] or nullptr
  char* prepared;              // [units, chunks] of PreparedChunk
  // [units, spans, features, width]: what a span makes of a state of zeros, then the state before
  // the span; not used where there is no scan.
  float* states;
  // [units, spans, features, features], where tokens erase: column m is what a span without values
  // makes of a state with a 1 at feature m.
  float* models;

  int32_t num_kv_heads, group, len, features, width;
  int32_t units, slices;        // batch * num_kv_heads; of kSliceCols columns of values
  int32_t model_slices;         // of columns of a model; 0 where nothing erases
  int32_t first_chunk, chunks;  // of the sequence, that this launch takes
  int32_t spans, span_chunks;   // all spans but the last are as long
  PreparedChunk place;
  FeatureMap feature_map;
  float scale;
  bool decays_channels;
  bool has_decay_pairs;  // may decays of two channels be loaded together, from an even one on?
  bool delta;            // do tokens erase, by their own keys or by erase_key?
  bool scans;            // else there is one span, which begins with `begin` itself

  HEED_DEVICE bool erases_apart() const { return erase_key.data != nullptr; }
  HEED_DEVICE int tokens_of_chunk() const {
    return erases_apart() ? kChunkTokens / 2 : kChunkTokens;
  }
  // Of the sequence.
  HEED_DEVICE int TokenOf(int chunk, int token_of_chunk) const {
    return (first_chunk + chunk) * tokens_of_chunk() +
           (erases_apart() ? token_of_chunk / 2 : token_of_chunk);
  }
  HEED_DEVICE char* ChunkAt(int unit, int chunk) const {
    return prepared + (int64_t{unit} * chunks + chunk) * place.bytes;
  }
  HEED_DEVICE float* StateOf(int unit, int span) const {
    return states + (int64_t{unit} * spans + span) * features * width;
  }
  HEED_DEVICE float* ModelOf(int unit, int span) const {
    return models + (int64_t{unit} * spans + span) * features * features;
  }
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHUNK_PARAMS_H_
