// Backward of rows that meet keys within a chunk: from the gradients of their products to those of
// the rows and of the keys, through the decays on the way.
#if defined(HEED_RECURRENT_MEET_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_MEET_GRADIENT_INL_H_
#undef HEED_RECURRENT_MEET_GRADIENT_INL_H_
#else
#define HEED_RECURRENT_MEET_GRADIENT_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/recurrent/backward_chunk-inl.h"
#include "src/recurrent/meet-inl.h"
#include "src/simd/pack-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How many tokens before a row the nearest key is that it reaches without a factor on the way, if
// it reaches that.
constexpr size_t Nearest(Reach reach) { return reach == Reach::kUndecayed ? 1 : 0; }

class MeetingGradient : protected Meeting {
 public:
  MeetingGradient(const RecurrentPlan& plan, RecurrentScratch& scratch, BackwardScratch& backward)
      : Meeting(plan, scratch), back_(backward) {}

  // d_meets[i][j] = what arrives at row i times the write of token j, for j <= i.
  void MultiplyArriving(size_t count) const {
    for (size_t i = 0; i < count; i += kTileRows) {
      for (size_t j = 0; j < std::min(count, i + kTileRows); j += PanelCols()) {
        RegisterTile<ARows, kTileRows>(MultiplyAccumulate(), back_.arriving.get() + i * plan_.cols,
                                       back_.write_columns.get() + j * plan_.cols, plan_.cols,
                                       back_.d_meets.get() + i * kChunk + j, kChunk, StoreOnly(),
                                       {plan_.cols});
      }
    }
  }

  // d_reader += what rows get from keys with factors on the way, d_met += what those get from the
  // rows. Takes d_meets, and leaves zeros elsewhere: the nearest key, which may have no factor on
  // the way, is left to the caller.
  void Add(const float* rows, size_t count, Reach reach) const {
    for (size_t i = 0; i < count; ++i) {
      const size_t end = i - std::min(i, Nearest(reach));
      std::fill_n(back_.d_meets.get() + i * kChunk + end, kChunk - end, 0.0f);
    }
    if (p_.decays_channels) {
      for (size_t b = 0; b < count; b += kBlockTokens) {
        const size_t end = std::min(count, b + kBlockTokens);
        if (b > 0) AddEarlier(rows, b, end, reach);
        for (size_t j = b; j < end; ++j) AddWithinBlock(rows, j, end, reach);
      }
      return;
    }
    if (p_.options.log_decay.has_value()) TimesPaths(count, reach);
    const size_t width = plan_.rows;
    Pack(s_.keys.get(), count, back_.key_panels.get());
    Pack(rows, count, back_.reader_panels.get());
    for (size_t n = 0; n < count; n += kTileRows) {
      for (size_t c = 0; c < width; c += PanelCols()) {
        const float* met = back_.d_meets.get();
        RegisterTile<ARows, kTileRows>(
            MultiplyAccumulate(), met + n * kChunk, back_.key_panels.get() + c * kChunkRows,
            std::min(count, n + kTileRows), back_.d_reader.get() + n * width + c, width,
            AddToStored(), {kChunk});
        RegisterTile<AColumns, kTileRows>(
            MultiplyAccumulate(), met + n * kChunk + n,
            back_.reader_panels.get() + c * kChunkRows + n * PanelCols(), count - n,
            back_.d_met.get() + n * width + c, width, AddToStored(), {kChunk});
      }
    }
  }

 private:
  void Pack(const float* rows, size_t count, float* panels) const {
    PackPanels(Rows{rows, static_cast<int64_t>(plan_.rows)}, count, plan_.rows, kChunkRows, panels);
  }

  // d_meets times the factors on the way from j to i.
  void TimesPaths(size_t count, Reach reach) const {
    HWY_ALIGN float passed[kChunk] = {};
    for (size_t i = 0; i < count; ++i) {
      float* row = back_.d_meets.get() + i * kChunk;
      const float own = s_.decays.get()[i];
      for (size_t j = 0; j < i; ++j) {
        const float before = passed[j];
        passed[j] *= own;
        row[j] *= reach == Reach::kUndecayed ? before : passed[j];
      }
      passed[i] = 1.0f;
    }
  }

  // Rows [b, end) with tokens before b: both come to the place between token b - 1 and b.
  void AddEarlier(const float* rows, size_t b, size_t end, Reach reach) const {
    const size_t width = plan_.rows;
    float* moved = back_.moved.get();
    CarryKeys(b, moved);
    Pack(moved, b, back_.key_panels.get());
    std::fill_n(moved, RoundUp(kBlockTokens, kTileRows) * width, 0.0f);
    MoveRows(rows, b, end, reach, moved);
    Pack(moved, end - b, back_.reader_panels.get());
    AddRowsOfBlock(b, end, reach);
    AddKeysBefore(b, end);
  }

  void AddRowsOfBlock(size_t b, size_t end, Reach reach) const {
    const size_t width = plan_.rows;
    float* part = back_.part.get();
    for (size_t i = b; i < end; i += kTileRows) {
      for (size_t c = 0; c < width; c += PanelCols()) {
        RegisterTile<ARows, kTileRows>(MultiplyAccumulate(), back_.d_meets.get() + i * kChunk,
                                       back_.key_panels.get() + c * kChunkRows, b,
                                       part + i * width + c, width, StoreOnly(), {kChunk});
      }
    }
    MoveRows(part, b, end, reach, part + b * width);
    AddTo(back_.d_reader.get() + b * width, part + b * width, (end - b) * width);
  }

  void AddKeysBefore(size_t b, size_t end) const {
    const DF d;
    const size_t width = plan_.rows;
    float* part = back_.part.get();
    for (size_t j = 0; j < b; j += kTileRows) {
      for (size_t c = 0; c < width; c += PanelCols()) {
        RegisterTile<AColumns, kTileRows>(MultiplyAccumulate(),
                                          back_.d_meets.get() + b * kChunk + j,
                                          back_.reader_panels.get() + c * kChunkRows, end - b,
                                          part + j * width + c, width, StoreOnly(), {kChunk});
      }
    }
    for (size_t c = 0; c < width; c += hn::Lanes(d)) {
      VF passed = hn::Set(d, 1.0f);
      for (size_t j = b; j-- > 0;) {
        float* to = back_.d_met.get() + j * width + c;
        hn::Store(Fma(passed, hn::Load(d, part + j * width + c), hn::Load(d, to)), d, to);
        passed = hn::Mul(passed, hn::Load(d, s_.decays.get() + j * width + c));
      }
    }
  }

  // Token j with the rows after it in its block.
  void AddWithinBlock(const float* rows, size_t j, size_t end, Reach reach) const {
    const DF d;
    const size_t width = plan_.rows;
    for (size_t c = 0; c < width; c += hn::Lanes(d)) {
      const VF key = hn::Load(d, s_.keys.get() + j * width + c);
      VF passed = hn::Set(d, 1.0f);
      VF sum = hn::Zero(d);
      for (size_t i = j + 1; i < end; ++i) {
        const VF before = passed;
        passed = hn::Mul(passed, hn::Load(d, s_.decays.get() + i * width + c));
        const VF met = hn::Mul(hn::Set(d, back_.d_meets.get()[i * kChunk + j]),
                               reach == Reach::kUndecayed ? before : passed);
        float* to = back_.d_reader.get() + i * width + c;
        hn::Store(Fma(met, key, hn::Load(d, to)), d, to);
        sum = Fma(met, hn::Load(d, rows + i * width + c), sum);
      }
      float* to = back_.d_met.get() + j * width + c;
      hn::Store(hn::Add(hn::Load(d, to), sum), d, to);
    }
  }

  static void AddTo(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, size_t count) {
    const DF d;
    for (size_t n = 0; n < count; n += hn::Lanes(d)) {
      hn::Store(hn::Add(hn::Load(d, to + n), hn::Load(d, from + n)), d, to + n);
    }
  }

  BackwardScratch& back_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_MEET_GRADIENT_INL_H_
