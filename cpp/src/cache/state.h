// The inside of a KvCache: blocks of tokens, and which blocks make up a sequence.
#ifndef HEED_SRC_CACHE_STATE_H_
#define HEED_SRC_CACHE_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "heed/cache.h"
#include "src/exact/problem.h"

namespace heed {

// Where things lie in a block: K rows [num_kv_heads, block_size], V rows, then the scales of both.
struct BlockLayout {
  DType dtype = DType::kFloat32;
  int64_t block_size = 1;
  int64_t num_kv_heads = 1;
  int64_t k_row_bytes = 0;
  int64_t v_row_bytes = 0;
  int64_t v_offset = 0;
  int64_t k_scale_offset = -1;  // -1: the type has no scales
  int64_t v_scale_offset = -1;
  // Bounds of pages [num_kv_heads, pages of a block, 2 * head_dim]: largest keys, then smallest.
  int64_t bounds_offset = -1;  // -1: there are none
  int64_t page_size = 0;
  int64_t head_dim = 0;
  int64_t bytes = 0;

  int64_t bounds_floats() const { return 2 * head_dim; }
  int64_t bounds_bytes() const {
    if (bounds_offset < 0) return 0;
    return num_kv_heads * (block_size / page_size) * bounds_floats() *
           static_cast<int64_t>(sizeof(float));
  }
  // Of the page that holds a token.
  float* BoundsOf(char* block, int64_t head, int64_t token) const {
    const int64_t page = head * (block_size / page_size) + token % block_size / page_size;
    return reinterpret_cast<float*>(block + bounds_offset) + page * bounds_floats();
  }

  int64_t Slot(int64_t head, int64_t token) const { return head * block_size + token % block_size; }
};

// Throws Error(kShape) when a block could not be addressed.
BlockLayout MakeLayout(const KvCacheOptions& options);

// Aligned memory of one block.
class Block {
 public:
  explicit Block(const BlockLayout& layout);  // throws Error(kMemory)
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  char* data() const { return data_; }

 private:
  int64_t bytes_;
  char* data_;
};

struct Sequence {
  int64_t length = 0;
  // Tokens [sink_tokens, evicted) are gone. Entries of their blocks are empty.
  int64_t evicted = 0;
  std::vector<std::shared_ptr<Block>> blocks;

  // With heavy hitters each head holds tokens of its own, equally many, in slots: what a token is
  // to blocks otherwise. Slots of the last `appended` tokens are in their order.
  int64_t dropped = 0;  // tokens that no slot holds
  int64_t appended = 0;
  std::vector<int64_t> tokens;       // [slots, num_kv_heads]
  mutable std::vector<double> sums;  // the weights that they have received: decoding adds to them

  int64_t slots() const { return length - dropped; }
};

struct KvCache::State {
  KvCacheOptions options;
  BlockLayout layout;
  std::vector<Sequence> sequences;

  bool weighs() const { return options.heavy_tokens > 0; }
  int64_t MostSlots() const {
    int64_t most = 0;
    for (const Sequence& sequence : sequences) most = std::max(most, sequence.slots());
    return most;
  }
  // The first recent token that a query at `position` sees.
  int64_t RecentBegin(int64_t position) const {
    const int64_t recent = options.recent_tokens;
    return recent == 0 ? 0 : std::max<int64_t>(0, position - recent + 1);
  }
};

// Writes one row of floats in the storage type, and reads one.
void StoreRow(const BlockLayout& layout, const float* from, int64_t width, void* to, float* scale);
void LoadRow(const BlockLayout& layout, const void* from, float scale, int64_t width, float* to);

// The row as floats; `converted` is used when it is stored otherwise.
const float* FloatRow(const StoredTensor& from, int64_t b, int64_t h, int64_t i, float* converted);

// Bounds of the pages of a sequence that end in [begin, end), from the keys as they are stored.
// `row` has head_dim floats.
void BoundPages(const BlockLayout& layout, const Sequence& sequence, int64_t begin, int64_t end,
                float* row);

// With heavy hitters, before more is appended: the slots of each head whose tokens go, equally
// many, ascending. The first, the last recent_tokens - 1 and the heaviest of the others stay.
struct Forgetting {
  int64_t count = 0;
  std::vector<std::vector<int32_t>> slots;
};
// Makes blocks that slots will move in the sequence's own; what it holds does not change. Throws
// Error(kMemory), std::bad_alloc.
Forgetting ChooseForgotten(const KvCache::State& state, Sequence& sequence);
void ForgetTokens(const KvCache::State& state, const Forgetting& forgetting,
                  Sequence& sequence) noexcept;
// The next `count` tokens take the slots behind all others, for which there is room.
void ReserveTokens(const KvCache::State& state, int64_t slots, Sequence& sequence);
void NoteTokens(const KvCache::State& state, int64_t count, Sequence& sequence) noexcept;

// Decodes some queries from `first` on with their weights over slots, and adds these to the sums.
using DecodeRows =
    std::function<void(const StoredTensor& q, int64_t first, const AttentionOutputs& outputs)>;
void DecodeWeighing(const StoredTensor& q, const KvCache::State& state,
                    const AttentionOutputs& outputs, const DecodeRows& decode_rows);

// Decode() that also gives weights [batch, num_heads, q_len, slots], for caches of heavy hitters.
void DecodeSlots(const StoredTensor& q, const KvCache::State& state, const DecodeOptions& options,
                 const AttentionOutputs& outputs, ThreadPool* pool);

// Lets each query of a completed problem see the pages that it chooses. Throws std::bad_alloc.
void ChoosePages(AttentionProblem& p, const KvCache::State& state, int64_t pages,
                 std::span<const int32_t> query_lengths, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_CACHE_STATE_H_
