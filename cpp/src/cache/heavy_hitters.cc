// Heavy hitters: what a cache forgets, head by head, and the weights that decide.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "src/cache/state.h"
#include "src/compose/rows.h"
#include "src/message.h"
#include "src/sort.h"

namespace heed {
namespace {

// Weights of so many pairs are looked at together.
constexpr int64_t kMostPairs = int64_t{1} << 20;

// The tokens of one head, by slot.
struct HeadTokens {
  Sequence& sequence;
  int64_t head, num_heads;

  size_t At(int64_t slot) const { return static_cast<size_t>(slot * num_heads + head); }
  int64_t token(int64_t slot) const { return sequence.tokens[At(slot)]; }
  // NaN is the heaviest: what is broken is seen, not hidden.
  double sum(int64_t slot) const {
    const double sum = sequence.sums[At(slot)];
    return sum == sum ? sum : std::numeric_limits<double>::infinity();
  }
};

void CopySlot(const BlockLayout& layout, const Sequence& sequence, int64_t head, int64_t from,
              int64_t to) {
  const auto block = [&](int64_t slot) {
    return sequence.blocks[static_cast<size_t>(slot / layout.block_size)]->data();
  };
  const auto copy = [&](int64_t offset, int64_t row_bytes) {
    if (offset < 0) return;
    std::memcpy(block(to) + offset + layout.Slot(head, to) * row_bytes,
                block(from) + offset + layout.Slot(head, from) * row_bytes,
                static_cast<size_t>(row_bytes));
  };
  copy(0, layout.k_row_bytes);
  copy(layout.v_offset, layout.v_row_bytes);
  copy(layout.k_scale_offset, sizeof(float));
  copy(layout.v_scale_offset, sizeof(float));
}

// Slots whose tokens compete: neither the first nor recent.
std::vector<int32_t> Competing(const HeadTokens& held, int64_t sink_tokens, int64_t recent_begin) {
  std::vector<int32_t> slots;
  for (int64_t slot = 0; slot < held.sequence.slots(); ++slot) {
    const int64_t token = held.token(slot);
    if (token >= sink_tokens && token < recent_begin) slots.push_back(static_cast<int32_t>(slot));
  }
  return slots;
}

// The slots whose tokens have the smallest sums, of equal ones the later, ascending.
std::vector<int32_t> Lightest(const HeadTokens& held, std::vector<int32_t> competing,
                              int64_t count) {
  const auto last = competing.begin() + count;
  std::nth_element(competing.begin(), last - 1, competing.end(), [&](int32_t a, int32_t b) {
    const double x = held.sum(a), y = held.sum(b);
    return x != y ? x < y : held.token(a) > held.token(b);
  });
  competing.resize(static_cast<size_t>(count));
  HeapSort(competing.begin(), competing.end());
  return competing;
}

// The last tokens move into the slots of those that go.
void FillHoles(const BlockLayout& layout, const HeadTokens& held,
               const std::vector<int32_t>& holes) {
  const int64_t left = held.sequence.slots() - static_cast<int64_t>(holes.size());
  int64_t from = left;
  for (auto hole = holes.begin(); hole != holes.end() && *hole < left; ++hole) {
    while (std::binary_search(holes.begin(), holes.end(), static_cast<int32_t>(from))) ++from;
    CopySlot(layout, held.sequence, held.head, from, *hole);
    held.sequence.tokens[held.At(*hole)] = held.token(from);
    held.sequence.sums[held.At(*hole)] = held.sum(from);
    ++from;
  }
}

// Blocks that others refer to as well become the sequence's own. Throws Error(kMemory).
void OwnBlocks(const BlockLayout& layout, Sequence& sequence) {
  for (std::shared_ptr<Block>& block : sequence.blocks) {
    if (block.use_count() == 1) continue;
    const auto own = std::make_shared<Block>(layout);
    std::memcpy(own->data(), block->data(), static_cast<size_t>(layout.bytes));
    block = own;
  }
}

// What the queries of a call add to the sums of the tokens that they see.
void AddWeights(const TensorView<float>& weights, const KvCache::State& state) {
  const int64_t kv_heads = state.layout.num_kv_heads, group = weights.shape[1] / kv_heads;
  for (int64_t b = 0; b < weights.shape[0]; ++b) {
    const Sequence& sequence = state.sequences[static_cast<size_t>(b)];
    for (int64_t h = 0; h < weights.shape[1]; ++h) {
      for (int64_t i = 0; i < weights.shape[2]; ++i) {
        for (int64_t slot = 0; slot < sequence.slots(); ++slot) {
          const size_t at = static_cast<size_t>(slot * kv_heads + h / group);
          sequence.sums[at] += static_cast<double>(weights(b, h, i, slot));
        }
      }
    }
  }
}

}  // namespace

Forgetting ChooseForgotten(const KvCache::State& state, Sequence& sequence) {
  const KvCacheOptions& o = state.options;
  const int64_t recent_begin = sequence.length - (o.recent_tokens - 1);
  Forgetting forgetting;
  for (int64_t h = 0; h < o.num_kv_heads; ++h) {
    const HeadTokens held = {sequence, h, o.num_kv_heads};
    std::vector<int32_t> competing = Competing(held, o.sink_tokens, recent_begin);
    const int64_t count = static_cast<int64_t>(competing.size()) - o.heavy_tokens;
    if (count <= 0) return forgetting;  // heads hold equally many tokens
    forgetting.slots.push_back(Lightest(held, std::move(competing), count));
    forgetting.count = count;
  }
  OwnBlocks(state.layout, sequence);
  return forgetting;
}

void ForgetTokens(const KvCache::State& state, const Forgetting& forgetting,
                  Sequence& sequence) noexcept {
  if (forgetting.count == 0) return;
  const int64_t heads = state.options.num_kv_heads, size = state.layout.block_size;
  for (int64_t h = 0; h < heads; ++h) {
    FillHoles(state.layout, {sequence, h, heads}, forgetting.slots[static_cast<size_t>(h)]);
  }
  sequence.dropped += forgetting.count;
  const int64_t slots = sequence.slots();
  sequence.tokens.resize(static_cast<size_t>(slots * heads));
  sequence.sums.resize(static_cast<size_t>(slots * heads));
  sequence.blocks.resize(static_cast<size_t>((slots + size - 1) / size));
}

void ReserveTokens(const KvCache::State& state, int64_t slots, Sequence& sequence) {
  const size_t count = static_cast<size_t>(slots * state.options.num_kv_heads);
  if (count > sequence.tokens.capacity()) sequence.tokens.reserve(2 * count);
  if (count > sequence.sums.capacity()) sequence.sums.reserve(2 * count);
}

void NoteTokens(const KvCache::State& state, int64_t count, Sequence& sequence) noexcept {
  for (int64_t token = sequence.length; token < sequence.length + count; ++token) {
    sequence.tokens.insert(sequence.tokens.end(), static_cast<size_t>(state.options.num_kv_heads),
                           token);
  }
  sequence.sums.resize(sequence.tokens.size(), 0.0);
  sequence.appended = count;
}

void DecodeWeighing(const StoredTensor& q, const KvCache::State& state,
                    const AttentionOutputs& outputs, const DecodeRows& decode_rows) {
  const int64_t q_len = q.shape[2], pairs = q.shape[0] * q.shape[1] * state.MostSlots();
  const int64_t rows =
      std::clamp<int64_t>(kMostPairs / std::max<int64_t>(pairs, 1), 1, std::max<int64_t>(q_len, 1));
  const bool own = !outputs.weights.has_value();
  const OwnedTensor memory =
      own ? OwnedTensor({q.shape[0], q.shape[1], rows, state.MostSlots()}) : OwnedTensor();
  for (int64_t first = 0; first < q_len; first += rows) {
    const int64_t count = std::min(rows, q_len - first);
    const auto part = [&](TensorView<float> view) {
      if (!view.has_value()) return view;
      view.data += first * view.strides[2];
      view.shape[2] = count;
      return view;
    };
    StoredTensor queries = q;
    queries.data = q.Row(0, 0, first);
    queries.shape[2] = count;
    AttentionOutputs out = outputs;
    out.output = part(outputs.output);
    out.lse = part(outputs.lse);
    out.weights = part(own ? memory.view() : outputs.weights);
    if (own) out.weights.data = memory.view().data;
    if (out.stored_output.has_value()) {
      out.stored_output.data = outputs.stored_output.Row(0, 0, first);
      out.stored_output.shape[2] = count;
    }
    decode_rows(queries, first, out);
    if (DryRun::Current() == nullptr) AddWeights(out.weights, state);
  }
}

}  // namespace heed
