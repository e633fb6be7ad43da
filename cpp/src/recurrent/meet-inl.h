// Where tokens of a chunk meet: the products of rows (queries, or keys) with keys, times the decay
// on the way from the one to the other.
#if defined(HEED_RECURRENT_MEET_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_MEET_INL_H_
#undef HEED_RECURRENT_MEET_INL_H_
#else
#define HEED_RECURRENT_MEET_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/recurrent/chunk-inl.h"
#include "src/simd/pack-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The tokens that a row meets, and the decays on the way.
enum class Reach {
  kOwn,        // up to its own, through its own decay
  kEarlier,    // before its own, through its own decay
  kUndecayed,  // before its own, and before its own decay
};

class Meeting {
 public:
  Meeting(const RecurrentPlan& plan, RecurrentScratch& scratch)
      : plan_(plan), p_(*plan.problem), s_(scratch) {}

  // Panels of the features of tokens: what rows of a register tile meet.
  void PackKeys(const float* keys, size_t count) {
    for (size_t j = 0; j < count; j += PanelCols()) {
      PackTransposedPanel(Rows{keys + j * plan_.rows, static_cast<int64_t>(plan_.rows)},
                          std::min(PanelCols(), count - j), plan_.dim,
                          s_.panels.get() + j * plan_.rows);
    }
  }

  // meets[i][j] = decay from j to i * rows[i].keys[j] where i reaches j, else 0. Where a token has
  // several rows, all but the one at `part` are zeros.
  void Meet(const float* rows, size_t count, Reach reach, size_t part) {
    if (p_.decays_channels) {
      MeetByChannel(rows, count, reach, part);
      return;
    }
    float* meets = s_.meets.get();
    for (size_t i = 0; i < count; i += kTileRows) {
      for (size_t j = 0; j < std::min(count, i + kTileRows); j += PanelCols()) {
        RegisterTile<ARows, kTileRows>(MultiplyAccumulate(), rows + i * plan_.rows,
                                       s_.panels.get() + j * plan_.rows, plan_.dim,
                                       meets + i * kChunk + j, kChunk, StoreOnly(), {plan_.rows});
      }
    }
    // Row i of the products of factors is row i - 1 times factor i.
    HWY_ALIGN float passed[kChunk] = {};
    for (size_t i = 0; i < count; ++i) {
      const auto decay = [&] {
        if (!p_.options.log_decay.has_value()) return;
        for (size_t j = 0; j < i; ++j) passed[j] *= s_.decays.get()[i];
      };
      if (reach != Reach::kUndecayed) decay();
      passed[i] = 1.0f;
      float* row = meets + i * kChunk;
      const size_t end = reach == Reach::kOwn ? i + 1 : i;
      for (size_t j = 0; j < end; ++j) row[j] *= passed[j];
      std::fill(row + end, row + kChunk, 0.0f);
      if (reach == Reach::kUndecayed) decay();
    }
    for (size_t i = count; i < RoundUp(count, kTileRows); ++i) {
      std::fill_n(meets + i * kChunk, kChunk, 0.0f);
    }
  }

 protected:
  // Keys before token b, decayed up to token b - 1, each channel by itself.
  void CarryKeys(size_t b, float* carried) const {
    const DF d;
    const size_t lanes = hn::Lanes(d), width = plan_.rows;
    for (size_t c = 0; c < width; c += lanes) {
      VF passed = hn::Set(d, 1.0f);
      for (size_t j = b; j-- > 0;) {
        hn::Store(hn::Mul(hn::Load(d, s_.keys.get() + j * width + c), passed), d,
                  carried + j * width + c);
        passed = hn::Mul(passed, hn::Load(d, s_.decays.get() + j * width + c));
      }
    }
  }

  // Rows [b, end), times the factors from token b on: moved[i - b].
  void MoveRows(const float* rows, size_t b, size_t end, Reach reach, float* moved) const {
    const DF d;
    const size_t lanes = hn::Lanes(d), width = plan_.rows;
    for (size_t c = 0; c < width; c += lanes) {
      VF passed = hn::Set(d, 1.0f);
      for (size_t i = b; i < end; ++i) {
        const VF before = passed;
        passed = hn::Mul(passed, hn::Load(d, s_.decays.get() + i * width + c));
        hn::Store(hn::Mul(hn::Load(d, rows + i * width + c),
                          reach == Reach::kUndecayed ? before : passed),
                  d, moved + (i - b) * width + c);
      }
    }
  }

  const RecurrentPlan& plan_;
  const RecurrentProblem& p_;
  RecurrentScratch& s_;

 private:
  // The same where each channel decays by itself. Tokens of one block of kBlockTokens meet
  // directly; those of earlier blocks come to its first token, and the rows go back to it.
  void MeetByChannel(const float* rows, size_t count, Reach reach, size_t part) {
    float* meets = s_.meets.get();
    std::fill_n(meets, RoundUp(count, kTileRows) * kChunk, 0.0f);
    for (size_t b = 0; b < count; b += kBlockTokens) {
      const size_t end = std::min(count, b + kBlockTokens);
      if (b > 0) MeetEarlier(rows, b, end, reach, part);
      for (size_t j = b; j < end; ++j) MeetWithinBlock(rows, j, end, reach, part);
    }
  }

  // Rows [b, end) with tokens before b.
  void MeetEarlier(const float* rows, size_t b, size_t end, Reach reach, size_t part) {
    const size_t width = plan_.rows;
    CarryKeys(b, s_.along.get());
    PackKeys(s_.along.get(), b);
    float* moved = s_.along.get();
    std::fill_n(moved, RoundUp(kBlockTokens, kTileRows) * width, 0.0f);
    MoveRows(rows, b, end, reach, moved);
    HWY_ALIGN float tile[kTileRows * PanelCols()];
    const size_t parts = p_.parts();
    for (size_t i = b + part; i < end; i += kTileRows * parts) {
      for (size_t j = 0; j < b; j += PanelCols()) {
        RegisterTile<ARows, kTileRows>(MultiplyAccumulate(), moved + (i - b) * width,
                                       s_.panels.get() + j * plan_.rows, plan_.dim, tile,
                                       PanelCols(), StoreOnly(), {parts * width});
        for (size_t r = 0; r < kTileRows && i + r * parts < end; ++r) {
          std::copy_n(tile + r * PanelCols(), std::min(PanelCols(), b - j),
                      s_.meets.get() + (i + r * parts) * kChunk + j);
        }
      }
    }
  }

  // Token j with the rows from it on. Of the rows of one token only the first decays.
  void MeetWithinBlock(const float* rows, size_t j, size_t end, Reach reach, size_t part) {
    const DF d;
    const size_t lanes = hn::Lanes(d), width = plan_.rows;
    const size_t last_part = p_.parts() - 1;  // of 1 or 2
    const float* key = s_.keys.get() + j * width;
    HWY_ALIGN float sums[kBlockTokens * hn::MaxLanes(DF())];
    std::fill_n(sums, kBlockTokens * lanes, 0.0f);
    for (size_t c = 0; c < width; c += lanes) {
      VF carried = hn::Load(d, key + c);
      for (size_t i = j; i < end; ++i) {
        const VF before = carried;
        if (i > j && (i & last_part) == 0) {
          carried = hn::Mul(carried, hn::Load(d, s_.decays.get() + i * width + c));
        }
        if ((i & last_part) != part) continue;
        float* sum = sums + (i - j) * lanes;
        hn::Store(Fma(reach == Reach::kUndecayed ? before : carried,
                      hn::Load(d, rows + i * width + c), hn::Load(d, sum)),
                  d, sum);
      }
    }
    for (size_t i = reach == Reach::kOwn ? j : j + 1; i < end; ++i) {
      if ((i & last_part) != part) continue;
      s_.meets.get()[i * kChunk + j] = hn::ReduceSum(d, hn::Load(d, sums + (i - j) * lanes));
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_MEET_INL_H_
