// The scores of a block of attention, tile by tile: which are visible, scaled, capped, biased, and
// made weights (attention_kernel.h).
#ifndef HEED_SRC_CUDA_ATTENTION_SCORES_H_
#define HEED_SRC_CUDA_ATTENTION_SCORES_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/attention_rows.h"
#include "src/cuda/device.h"
#include "src/cuda/fragments.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"
#include "src/cuda/rows_in_memory.h"

namespace heed::cuda {

// The scores of a tile, and how they become weights.
template <class Block, class Products>
class AttentionScores : protected AttentionRows<Block, Products> {
 protected:
  using Rows = AttentionRows<Block, Products>;
  HEED_DEVICE AttentionScores(Block& block, const AttentionParams& params) : Rows(block, params) {}

  template <class T, int N>
  using Registers = typename Block::template Registers<T, N>;
  using Rows::batch_;
  using Rows::block_;
  using Rows::EachVisible;
  using Rows::full_;
  using Rows::HeadOf;
  using Rows::HideScore;
  using Rows::k_;
  using Rows::kAllVisible;
  using Rows::key_scales_;
  using Rows::KeyInTile;
  using Rows::kKeys;
  using Rows::kOut;
  using Rows::kScores;
  using Rows::kv_head_;
  using Rows::out_;
  using Rows::p_;
  using Rows::PackedRow;
  using Rows::position_;
  using Rows::q_;
  using Rows::QueryOf;
  using Rows::row_document_;
  using Rows::row_keys_;
  using Rows::row_max_;
  using Rows::row_sum_;
  using Rows::row_words_;
  using Rows::RowInBlock;
  using Rows::scores_;
  using Rows::value_scales_;
  using Rows::visible_;

  // What few calls ask for is a pass of its own over the scores, which others step over: in one
  // loop with the rest it would fill the instruction cache with code that does not run.
  HEED_DEVICE void ScoreTile(int32_t tile) {
    block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) = 0; });
    Products::ScoreTile(block_, q_, k_, scores_);
    const int64_t first = static_cast<int64_t>(tile) * kKeys;
    const bool whole = first >= full_.begin && first + kKeys <= full_.end &&
                       p_.documents.keys == nullptr && p_.keep.data == nullptr &&
                       p_.patterns.ids == nullptr;
    block_.Each([&](int t) { visible_(t, 0) = kAllVisible; });
    if (!whole) FindVisible(static_cast<int>(first));
    ScaleScores(static_cast<int>(first));
    if (p_.bias.data != nullptr) AddBias(static_cast<int>(first));
    if (p_.alibi_slopes != nullptr) AddAlibi(static_cast<int>(first));
    block_.Each([&](int t) {
      uint32_t visible = 0;
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        if ((visible_(t, 0) >> n & 1) == 0) scores_(t, n) = kMinusInfinity;
        if (scores_(t, n) != kMinusInfinity) visible |= 1u << n;
      }
      // Rows behind the last one are stored nowhere: they must not call for the slow way below.
      if (PackedRow(RowInBlock(t, 0)) >= p_.rows) visible |= kAllVisible & 0x33333333u;
      if (PackedRow(RowInBlock(t, 1)) >= p_.rows) visible |= kAllVisible & 0xccccccccu;
      visible_(t, 0) = visible;
    });
  }
  HEED_DEVICE void FindVisible(int first) {
    block_.Each([&](int t) {
      uint32_t visible = 0;
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const int half = n % 4 / 2;
        const int key = first + KeyInTile(t, n);
        const bool sees = key >= row_keys_(t, 2 * half) && key < row_keys_(t, 2 * half + 1);
        if (sees) visible |= 1u << n;
      }
      visible_(t, 0) = visible;
    });
    if (p_.patterns.ids != nullptr) KeepPatterns(first);
    if (p_.documents.keys != nullptr) KeepDocuments(first);
    if (p_.keep.data != nullptr) KeepPairs(first);
  }
  HEED_DEVICE void KeepPatterns(int first) {
    block_.Each([&](int t) {
      const uint64_t words[2] = {row_words_.Load(t, RowInBlock(t, 0)),
                                 row_words_.Load(t, RowInBlock(t, 1))};
      EachVisible(t, first, [&](int n, int half, int key) {
        if ((words[half] >> key % kKeys & 1) == 0) HideScore(t, n);
      });
    });
  }
  HEED_DEVICE void KeepDocuments(int first) {
    block_.Each([&](int t) {
      const int32_t* ids = p_.documents.keys + batch_ * p_.documents.key_stride;
      EachVisible(t, first, [&](int n, int half, int key) {
        const int32_t id = ids[key];
        if (id < 0 || id != row_document_(t, half)) HideScore(t, n);
      });
    });
  }
  HEED_DEVICE void KeepPairs(int first) {
    block_.Each([&](int t) {
      const uint8_t* of_row[2] = {PairsOfRow(p_.keep, t, 0), PairsOfRow(p_.keep, t, 1)};
      EachVisible(t, first, [&](int n, int half, int key) {
        if (of_row[half][key * p_.keep.strides[3]] == 0) HideScore(t, n);
      });
    });
  }
  // Where the pairs of a thread's row begin; rows behind the last one have none that is read.
  template <class T>
  HEED_DEVICE const T* PairsOfRow(const DevicePairs<T>& pairs, int t, int half) const {
    const int r = RowInBlock(t, half);
    return pairs.data + batch_ * pairs.strides[0] + HeadOf(r) * pairs.strides[1] +
           QueryOf(r) * pairs.strides[2];
  }

  HEED_DEVICE void ScaleScores(int first) {
    if (p_.q.scales != nullptr) MultiplyScores(ScaleOf(p_.q, batch_, kv_head_, 0));
    if (p_.k.scales != nullptr) {
      block_.Each([&](int t) {
        EachVisible(t, first, [&](int n, int /*half*/, int /*key*/) {
          scores_(t, n) *= key_scales_.Load(t, KeyInTile(t, n));
        });
      });
    }
    if (p_.normalize == Normalize::kAverage) {  // not even NaN matters
      block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) = 0; });
    }
    MultiplyScores(p_.scale);
    if (p_.softcap != 0) {
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) = Capped(p_, scores_(t, n));
      });
    }
  }
  HEED_DEVICE void MultiplyScores(float factor) {
    block_.Each(
        [&](int t) { HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) *= factor; });
  }

  // A bias of -inf hides its key.
  HEED_DEVICE void AddBias(int first) {
    block_.Each([&](int t) {
      const float* of_row[2] = {PairsOfRow(p_.bias, t, 0), PairsOfRow(p_.bias, t, 1)};
      const bool exists[2] = {PackedRow(RowInBlock(t, 0)) < p_.rows,
                              PackedRow(RowInBlock(t, 1)) < p_.rows};
      EachVisible(t, first, [&](int n, int half, int key) {
        if (!exists[half]) return;
        const float bias = of_row[half][key * p_.bias.strides[3]];
        if (bias == kMinusInfinity) HideScore(t, n);
        scores_(t, n) += bias;
      });
    });
  }
  HEED_DEVICE void AddAlibi(int first) {
    block_.Each([&](int t) {
      float slopes[2] = {0, 0};
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int r = RowInBlock(t, half);
        if (PackedRow(r) < p_.rows) slopes[half] = p_.alibi_slopes[HeadOf(r)];
      }
      EachVisible(t, first, [&](int n, int half, int key) {
        const float distance = static_cast<float>(position_(t, half) - key);
        scores_(t, n) = AlibiScore(scores_(t, n), slopes[half], distance);
      });
    });
  }

  // Scores become weights, and join the sums of their rows.
  HEED_DEVICE void Weigh(int32_t tile) {
    if (HasDenominator(p_.normalize)) {
      RaiseMaximum();
      block_.Each([&](int t) {
        const float subtrahend[2] = {Subtrahend(row_max_(t, 0)), Subtrahend(row_max_(t, 1))};
        HEED_UNROLL for (int n = 0; n < kScores; ++n) {
          const int half = n % 4 / 2;
          scores_(t, n) = Exp(scores_(t, n) - subtrahend[half]);
          row_sum_(t, half) += scores_(t, n);
        }
      });
    } else {
      WithPointwiseWeight(p_, [&](const auto& weight) {
        block_.Each([&](int t) {
          HEED_UNROLL for (int n = 0; n < kScores; ++n) {
            const bool visible = (visible_(t, 0) >> n & 1) != 0;
            scores_(t, n) = visible ? weight(scores_(t, n)) : 0.0f;
            row_sum_(t, n % 4 / 2) += visible ? 1.0f : 0.0f;
          }
        });
      });
    }
    if (p_.dropout.keep_factor != 0) Drop(tile);
    if (p_.v.scales != nullptr) ScaleValues();
  }

  // What values of 8 bits are multiplied by joins their weights.
  HEED_DEVICE void ScaleValues() {
    block_.Each([&](int t) {
      EachVisible(t, 0, [&](int n, int half, int key) {
        if (PackedRow(RowInBlock(t, half)) < p_.rows) scores_(t, n) *= value_scales_.Load(t, key);
      });
    });
  }

  // The running maximum takes the tile in; sums so far shrink to match.
  HEED_DEVICE void RaiseMaximum() {
    Registers<float, 2> highest;
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) highest(t, half) = row_max_(t, half);
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        highest(t, n % 4 / 2) = fmaxf(highest(t, n % 4 / 2), scores_(t, n));
      }
    });
    block_.template GroupMax<4>(highest);
    block_.Each([&](int t) {
      float shrink[2];
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        shrink[half] = Exp(row_max_(t, half) - Subtrahend(highest(t, half)));
        row_max_(t, half) = highest(t, half);
        row_sum_(t, half) *= shrink[half];
      }
      HEED_UNROLL for (int n = 0; n < kOut; ++n) out_(t, n) *= shrink[Products::Half(n)];
    });
  }

  // Dropped weights become 0; sums are those of all weights. Two neighbouring keys share a counter.
  HEED_DEVICE void Drop(int32_t tile) {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; n += 2) {
        const int r = RowInBlock(t, n % 4 / 2);
        const int key = tile * kKeys + KeyInTile(t, n);
        uint32_t words[4];
        DropoutWords(p_.dropout, batch_, HeadOf(r), QueryOf(r), key, words);
        const bool upper = key % 4 != 0;
        const uint32_t pair[2] = {upper ? words[2] : words[0], upper ? words[3] : words[1]};
        HEED_UNROLL for (int e = 0; e < 2; ++e) {
          scores_(t, n + e) *= pair[e] >= p_.dropout.threshold ? p_.dropout.keep_factor : 0.0f;
        }
      }
    });
  }
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ATTENTION_SCORES_H_
