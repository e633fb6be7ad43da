// KvCache: append, rewind, fork and eviction on blocks.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "heed/cache.h"
#include "src/cache/state.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/output_spans.h"
#include "src/sort.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// Tokens of a block where nobody says: few where only recent ones stay, as whole blocks are freed.
constexpr int64_t kFewTokens = 64;
constexpr int64_t kManyTokens = 1024;
// Lengths are 32-bit numbers on their way through attention.
constexpr int64_t kMaxLength = std::numeric_limits<int32_t>::max();

void CheckAtLeast(const char* name, int64_t value, int64_t least) {
  if (value < least || value > kMaxLength) {
    Fail(ErrorCode::kRange, "{} = {}; expected {} to 2^31 - 1", {name, value, least});
  }
}

int64_t BlockCount(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// A token is read with all that lie before it: from blocks of a huge page, in runs of many tokens,
// they come at the rate of memory, from blocks of 64 at half of it (Zen 4, 8 heads of 128 floats).
int64_t DefaultBlockSize(const KvCacheOptions& o) {
  if (o.recent_tokens > 0) return kFewTokens;
  if (o.capacity > 0) return o.capacity;
  constexpr int64_t kHugePage = int64_t{2} << 20;
  // Bounded, so that sizes that are refused later do not overflow here.
  const auto bytes = static_cast<double>(o.num_kv_heads) *
                     static_cast<double>(o.head_dim + o.head_dim_v) *
                     static_cast<double>(ElementSize(o.dtype));
  int64_t tokens = kFewTokens;
  while (tokens < kManyTokens && static_cast<double>(tokens) * bytes < kHugePage) tokens *= 2;
  return tokens;
}

KvCacheOptions Complete(KvCacheOptions o) {
  if (o.head_dim_v == 0) o.head_dim_v = o.head_dim;
  CheckAtLeast("batch", o.batch, 1);
  CheckAtLeast("num_kv_heads", o.num_kv_heads, 1);
  CheckAtLeast("head_dim", o.head_dim, 1);
  CheckAtLeast("head_dim_v", o.head_dim_v, 1);
  CheckAtLeast("capacity", o.capacity, 0);
  CheckAtLeast("block_size", o.block_size, 0);
  CheckAtLeast("recent_tokens", o.recent_tokens, 0);
  CheckAtLeast("sink_tokens", o.sink_tokens, 0);
  CheckAtLeast("heavy_tokens", o.heavy_tokens, 0);
  if (o.heavy_tokens > 0 && o.recent_tokens == 0) {
    Fail(ErrorCode::kOption,
         "heavy_tokens = {} needs recent_tokens: without them every token stays visible",
         {o.heavy_tokens});
  }
  CheckAtLeast("page_size", o.page_size, 0);
  if (o.page_size > 0 && o.recent_tokens > 0) {
    Fail(ErrorCode::kUnsupported,
         "page_size = {} with recent_tokens = {}, which bound what is read by themselves",
         {o.page_size, o.recent_tokens});
  }
  if (o.sink_tokens > 0 && o.recent_tokens == 0) {
    Fail(ErrorCode::kOption,
         "sink_tokens = {} needs recent_tokens: without them every token stays visible",
         {o.sink_tokens});
  }
  if (o.dtype != DType::kFloat32 && o.dtype != DType::kFloat16 && o.dtype != DType::kBFloat16 &&
      o.dtype != DType::kInt8 && o.dtype != DType::kFloat8E4M3) {
    Fail(ErrorCode::kDType, "dtype = {}; expected float32, float16, bfloat16, int8 or float8_e4m3",
         {DTypeName(o.dtype)});
  }
  if (o.block_size == 0) {
    o.block_size = DefaultBlockSize(o);
    if (o.page_size > 0) o.block_size = BlockCount(o.block_size, o.page_size) * o.page_size;
  }
  if (o.page_size > 0 && o.block_size % o.page_size != 0) {
    Fail(ErrorCode::kRange, "block_size = {}; it must be a multiple of page_size = {}",
         {o.block_size, o.page_size});
  }
  return o;
}

// Copies the first `tokens` tokens of every head.
void CopyTokens(const BlockLayout& l, const Block& from, const Block& to, int64_t tokens) {
  const auto copy = [&](int64_t offset, int64_t row_bytes) {
    for (int64_t h = 0; h < l.num_kv_heads && offset >= 0; ++h) {
      const int64_t at = offset + h * l.block_size * row_bytes;
      std::memcpy(to.data() + at, from.data() + at, static_cast<size_t>(tokens * row_bytes));
    }
  };
  copy(0, l.k_row_bytes);
  copy(l.v_offset, l.v_row_bytes);
  copy(l.k_scale_offset, sizeof(float));
  copy(l.v_scale_offset, sizeof(float));
  if (l.bounds_offset < 0) return;
  std::memcpy(to.data() + l.bounds_offset, from.data() + l.bounds_offset,
              static_cast<size_t>(l.bounds_bytes()));
}

// What an append forgets and the blocks that it writes to, made before anything changes.
struct Growth {
  int64_t tokens = 0;
  int64_t first_block = 0;
  std::vector<std::shared_ptr<Block>> blocks;
  Forgetting forgetting;
};

Growth Grow(const KvCache::State& state, Sequence& sequence, int64_t tokens) {
  const BlockLayout& layout = state.layout;
  Growth growth;
  growth.tokens = tokens;
  if (tokens == 0) return growth;
  if (state.weighs()) growth.forgetting = ChooseForgotten(state, sequence);
  const int64_t slots = sequence.slots() - growth.forgetting.count;
  growth.first_block = slots / layout.block_size;
  const int64_t end = BlockCount(slots + tokens, layout.block_size);
  for (int64_t n = growth.first_block; n < end; ++n) {
    const bool listed = n < static_cast<int64_t>(sequence.blocks.size());
    const std::shared_ptr<Block> old = listed ? sequence.blocks[static_cast<size_t>(n)] : nullptr;
    // Two: the sequence and this copy.
    if (old != nullptr && old.use_count() == 2) {
      growth.blocks.push_back(old);
      continue;
    }
    growth.blocks.push_back(std::make_shared<Block>(layout));
    // An evicted block leaves nothing to copy.
    if (old != nullptr) {
      CopyTokens(layout, *old, *growth.blocks.back(), slots % layout.block_size);
    }
  }
  if (state.weighs()) ReserveTokens(state, slots + tokens, sequence);
  // Twice what is needed: reserving exactly would copy the table at every block.
  const size_t blocks = static_cast<size_t>(end);
  if (blocks > sequence.blocks.capacity()) sequence.blocks.reserve(2 * blocks);
  return growth;
}

struct RowPlace {
  int64_t offset;
  int64_t row_bytes;
  int64_t scale_offset;
};

void WriteRows(const BlockLayout& layout, const RowPlace& place, const StoredTensor& from,
               int64_t b, const Sequence& sequence, int64_t tokens, float* converted) {
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t token = sequence.slots() + i;
    char* block = sequence.blocks[static_cast<size_t>(token / layout.block_size)]->data();
    for (int64_t h = 0; h < layout.num_kv_heads; ++h) {
      const int64_t slot = layout.Slot(h, token);
      void* to = block + place.offset + slot * place.row_bytes;
      if (from.dtype == layout.dtype) {
        std::memcpy(to, from.Row(b, h, i), static_cast<size_t>(place.row_bytes));
        continue;
      }
      float* scale = place.scale_offset < 0
                         ? nullptr
                         : reinterpret_cast<float*>(block + place.scale_offset) + slot;
      StoreRow(layout, FloatRow(from, b, h, i, converted), from.shape[3], to, scale);
    }
  }
}

// Frees the blocks that no query from `position` on sees.
void Evict(const KvCache::State& state, int64_t position, Sequence& sequence) {
  if (state.options.recent_tokens == 0 || state.weighs()) return;
  const int64_t size = state.layout.block_size;
  const int64_t first =
      std::max(BlockCount(state.options.sink_tokens, size), sequence.evicted / size);
  const int64_t last = state.RecentBegin(position) / size;
  for (int64_t n = first; n < last; ++n) sequence.blocks[static_cast<size_t>(n)].reset();
  if (last > first) sequence.evicted = last * size;
}

void CheckSequence(const KvCache::State& state, int64_t sequence) {
  if (sequence < 0 || sequence >= state.options.batch) {
    Fail(ErrorCode::kRange, "sequence = {}; the cache has {}", {sequence, state.options.batch});
  }
}

void CheckAppend(const KvCache::State& state, const StoredTensor& k, const StoredTensor& v,
                 std::span<const int32_t> lengths) {
  const KvCacheOptions& o = state.options;
  CheckStored("k", k);
  CheckStored("v", v);
  CheckShape("k", k.shape, {o.batch, o.num_kv_heads, k.shape[2], o.head_dim},
             "[batch, num_kv_heads, len, head_dim] of the cache");
  CheckShape("v", v.shape, {o.batch, o.num_kv_heads, k.shape[2], o.head_dim_v},
             "[batch, num_kv_heads, len, head_dim_v] of the cache, len as in k");
  if (!lengths.empty() && lengths.size() != static_cast<size_t>(o.batch)) {
    Fail(ErrorCode::kShape, "lengths has {} values; expected one per sequence = {}",
         {lengths.size(), o.batch});
  }
  for (int64_t b = 0; b < o.batch; ++b) {
    const int64_t tokens = lengths.empty() ? k.shape[2] : lengths[static_cast<size_t>(b)];
    if (tokens < 0 || tokens > k.shape[2]) {
      Fail(ErrorCode::kRange, "lengths holds {}; expected 0 to len = {}", {tokens, k.shape[2]});
    }
    const int64_t length = state.sequences[static_cast<size_t>(b)].length;
    const int64_t most = o.capacity > 0 ? o.capacity : kMaxLength;
    if (tokens > most - length) {
      Fail(ErrorCode::kRange, "sequence {} has {} tokens; {} more exceed the capacity of {}",
           {b, length, tokens, most});
    }
  }
}

}  // namespace

KvCache::KvCache(const KvCacheOptions& options) {
  const auto body = [&] {
    state_ = std::make_unique<State>();
    state_->options = Complete(options);
    state_->layout = MakeLayout(state_->options);
    state_->sequences.resize(static_cast<size_t>(state_->options.batch));
  };
  CallWithMemoryErrors("the bookkeeping of a cache", BodyRef(body));  // named in JavaScript too
}
KvCache::KvCache(std::unique_ptr<State> state) : state_(std::move(state)) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

const KvCacheOptions& KvCache::options() const { return state_->options; }

int64_t KvCache::length(int64_t sequence) const {
  CheckSequence(*state_, sequence);
  return state_->sequences[static_cast<size_t>(sequence)].length;
}

int64_t KvCache::max_length() const {
  int64_t longest = 0;
  for (const Sequence& sequence : state_->sequences) longest = std::max(longest, sequence.length);
  return longest;
}

KvCacheMemory KvCache::memory() const {
  return WithMemoryErrors("the list of blocks of a cache", [&] {
    std::vector<std::pair<const Block*, int64_t>> blocks;
    for (const Sequence& sequence : state_->sequences) {
      for (const auto& block : sequence.blocks) {
        if (block != nullptr) blocks.emplace_back(block.get(), block.use_count());
      }
    }
    HeapSort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    KvCacheMemory memory;
    memory.blocks = static_cast<int64_t>(blocks.size());
    memory.bytes = memory.blocks * state_->layout.bytes;
    for (const auto& [block, users] : blocks) {
      if (users > 1) memory.shared_bytes += state_->layout.bytes;
    }
    return memory;
  });
}

void KvCache::Append(TensorView<const float> k, TensorView<const float> v,
                     std::span<const int32_t> lengths) {
  Append(StoredTensor(k), StoredTensor(v), lengths);
}

void KvCache::Append(const StoredTensor& k, const StoredTensor& v,
                     std::span<const int32_t> lengths) {
  const auto body = [&] {
    CheckAppend(*state_, k, v, lengths);
    const KvCacheOptions& o = state_->options;
    std::vector<Growth> growths;
    std::vector<float> converted;
    converted.resize(static_cast<size_t>(std::max(o.head_dim, o.head_dim_v)));
    for (int64_t b = 0; b < o.batch; ++b) {
      Sequence& sequence = state_->sequences[static_cast<size_t>(b)];
      const int64_t tokens = lengths.empty() ? k.shape[2] : lengths[static_cast<size_t>(b)];
      growths.push_back(Grow(*state_, sequence, tokens));
    }
    const BlockLayout& layout = state_->layout;
    for (int64_t b = 0; b < o.batch; ++b) {
      Sequence& sequence = state_->sequences[static_cast<size_t>(b)];
      Growth& growth = growths[static_cast<size_t>(b)];
      if (growth.tokens == 0) continue;
      ForgetTokens(*state_, growth.forgetting, sequence);
      sequence.blocks.resize(static_cast<size_t>(growth.first_block) + growth.blocks.size());
      std::move(growth.blocks.begin(), growth.blocks.end(),
                sequence.blocks.begin() + growth.first_block);
      WriteRows(layout, {0, layout.k_row_bytes, layout.k_scale_offset}, k, b, sequence,
                growth.tokens, converted.data());
      WriteRows(layout, {layout.v_offset, layout.v_row_bytes, layout.v_scale_offset}, v, b,
                sequence, growth.tokens, converted.data());
      Evict(*state_, sequence.length, sequence);
      if (state_->weighs()) NoteTokens(*state_, growth.tokens, sequence);
      if (layout.page_size > 0) {
        BoundPages(layout, sequence, sequence.length, sequence.length + growth.tokens,
                   converted.data());
      }
      sequence.length += growth.tokens;
    }
  };
  CallWithMemoryErrors("what is appended to a cache", BodyRef(body));  // named in JavaScript too
}

void KvCache::Rewind(int64_t sequence, int64_t length) {
  CheckSequence(*state_, sequence);
  Sequence& s = state_->sequences[static_cast<size_t>(sequence)];
  if (length < 0 || length > s.length) {
    Fail(ErrorCode::kRange, "length = {}; sequence {} has {} tokens", {length, sequence, s.length});
  }
  if (state_->weighs() && length < s.length) {
    Fail(ErrorCode::kUnsupported,
         "length = {}: a cache of heavy hitters cannot tell what its tokens weighed before",
         {length});
  }
  const int64_t first = state_->options.sink_tokens;
  const int64_t begin = std::max(first, state_->RecentBegin(length));
  if (begin < std::min(length, s.evicted)) {
    Fail(ErrorCode::kRange,
         "length = {}; tokens {} to {} of sequence {}, which a query would see again, were "
         "evicted",
         {length, begin, s.evicted - 1, sequence});
  }
  s.length = length;
  s.evicted = std::min(s.evicted, length);
  s.blocks.resize(static_cast<size_t>(BlockCount(length, state_->layout.block_size)));
}

KvCache KvCache::Fork(std::span<const int64_t> sequences) const {
  return WithMemoryErrors("the fork of a cache", [&] {
    CheckAtLeast("batch of the fork", static_cast<int64_t>(sequences.size()), 1);
    for (const int64_t sequence : sequences) CheckSequence(*state_, sequence);
    std::unique_ptr<State> state;
    state = std::make_unique<State>();
    state->options = state_->options;
    state->options.batch = static_cast<int64_t>(sequences.size());
    state->layout = state_->layout;
    for (const int64_t sequence : sequences) {
      state->sequences.push_back(state_->sequences[static_cast<size_t>(sequence)]);
    }
    return KvCache(std::move(state));
  });
}

KvCache KvCache::Fork() const {
  return WithMemoryErrors("the fork of a cache", [&] {
    std::vector<int64_t> all;
    for (int64_t b = 0; b < state_->options.batch; ++b) all.push_back(b);
    return Fork(all);
  });
}

std::vector<int64_t> KvCache::tokens(int64_t sequence, int64_t head) const {
  return WithMemoryErrors("the list of tokens of a cache", [&] {
    CheckSequence(*state_, sequence);
    const Sequence& s = state_->sequences[static_cast<size_t>(sequence)];
    const KvCacheOptions& o = state_->options;
    if (head < 0 || head >= o.num_kv_heads) {
      Fail(ErrorCode::kRange, "head = {}; the cache has {}", {head, o.num_kv_heads});
    }
    std::vector<int64_t> held;
    if (state_->weighs()) {
      for (size_t at = static_cast<size_t>(head); at < s.tokens.size();
           at += static_cast<size_t>(o.num_kv_heads)) {
        held.push_back(s.tokens[at]);
      }
      HeapSort(held.begin(), held.end());
      return held;
    }
    for (int64_t j = 0; j < s.length; ++j) {
      if (j < o.sink_tokens || j >= s.evicted) held.push_back(j);
    }
    return held;
  });
}

void KvCache::Read(int64_t sequence, int64_t begin, int64_t end, TensorView<float> k,
                   TensorView<float> v) const {
  CheckSequence(*state_, sequence);
  const Sequence& s = state_->sequences[static_cast<size_t>(sequence)];
  const KvCacheOptions& o = state_->options;
  if (begin < 0 || end < begin || end > s.length) {
    Fail(ErrorCode::kRange, "tokens {} to {}; sequence {} has {}",
         {begin, end, sequence, s.length});
  }
  if (s.dropped > 0) {
    Fail(ErrorCode::kUnsupported,
         "tokens {} to {}: the heads of a cache of heavy hitters hold tokens of their own",
         {begin, end});
  }
  if (std::max(begin, o.sink_tokens) < std::min(end, s.evicted)) {
    Fail(ErrorCode::kRange, "tokens {} to {}: some below {} were evicted", {begin, end, s.evicted});
  }
  CheckOutput("k", k, {1, o.num_kv_heads, end - begin, o.head_dim},
              "[1, num_kv_heads, end - begin, head_dim]");
  CheckOutput("v", v, {1, o.num_kv_heads, end - begin, o.head_dim_v},
              "[1, num_kv_heads, end - begin, head_dim_v]");
  OutputSpans({{"k", k}, {"v", v}});
  const BlockLayout& layout = state_->layout;
  for (int64_t h = 0; h < o.num_kv_heads; ++h) {
    for (int64_t j = begin; j < end; ++j) {
      const char* block = s.blocks[static_cast<size_t>(j / layout.block_size)]->data();
      const int64_t slot = layout.Slot(h, j);
      const auto scale = [&](int64_t offset) {
        return offset < 0 ? 1.0f : reinterpret_cast<const float*>(block + offset)[slot];
      };
      LoadRow(layout, block + slot * layout.k_row_bytes, scale(layout.k_scale_offset), o.head_dim,
              &k(0, h, j - begin, 0));
      LoadRow(layout, block + layout.v_offset + slot * layout.v_row_bytes,
              scale(layout.v_scale_offset), o.head_dim_v, &v(0, h, j - begin, 0));
    }
  }
}

}  // namespace heed
