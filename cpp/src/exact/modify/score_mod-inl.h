// Modify plug: a user's function on the scores of a tile.
#if defined(HEED_EXACT_MODIFY_SCORE_MOD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_MODIFY_SCORE_MOD_INL_H_
#undef HEED_EXACT_MODIFY_SCORE_MOD_INL_H_
#else
#define HEED_EXACT_MODIFY_SCORE_MOD_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/keep/keep-inl.h"
#include "src/exact/modify/modify-inl.h"
#include "src/exact/user_tile.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

class ScoreMod final : public Modify {
 public:
  explicit ScoreMod(const TileFunction& function) : function_(function) {}

  // The function is not told which cells are hidden: what a bias has hidden stays hidden.
  void Apply(ScoreTile& tile) const override {
    UserTile user(tile);
    uint32_t hidden[kTileKeys / 32];
    if (HidesByScore(tile.problem->options)) {
      for (size_t r = 0; r < tile.num_rows; ++r) {
        NoteHidden(tile, r, hidden);
        function_(user.OneRow(r, tile));
        HideAgain(tile, r, hidden);
      }
    } else {
      function_(user.All(tile));
    }
  }

 private:
  // Biases of -infinity hide keys, and nothing but their scores tells which.
  static bool HidesByScore(const AttentionOptions& o) {
    return o.bias.has_value() || o.distance_bias.has_value() || o.bucket_bias.has_value() ||
           o.log_gates.has_value();
  }
  static void NoteHidden(const ScoreTile& tile, size_t r, uint32_t* hidden) {
    std::fill_n(hidden, kTileKeys / 32, 0);
    const float* row = tile.row_scores(r);
    for (size_t c = tile.first; c < tile.last; ++c) {
      if (row[c] == -std::numeric_limits<float>::infinity()) hidden[c / 32] |= 1u << (c % 32);
    }
  }
  static void HideAgain(ScoreTile& tile, size_t r, const uint32_t* hidden) {
    for (size_t c = tile.first; c < tile.last; ++c) {
      if ((hidden[c / 32] >> (c % 32) & 1) != 0) HideColumns(tile.row_scores(r), c, c + 1);
    }
  }

  const TileFunction& function_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_MODIFY_SCORE_MOD_INL_H_
