// The two products of attention (products.h) in float32, on tensor cores: every number is the sum
// of two of TF32, which has 11 significant bits, and a product of numbers is three of those; what
// the lower two would give is less than 2^-22 of it (Ootomo and Yokota 2022, arXiv:2203.03341;
// CUTLASS calls it 3xTF32). Tensor cores cut what they add to 24 bits instead of rounding it. So
// upper and lower products have sums of their own, of 16 columns or at most a tile of keys, and
// threads add those.
//
// An infinity has no lower part, only NaN: a sum that is not finite is made again by multiply-adds.
// Sums of other pairs keep their bits.
#ifndef HEED_SRC_CUDA_FLOAT_PRODUCTS_H_
#define HEED_SRC_CUDA_FLOAT_PRODUCTS_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/finite.h"
#include "src/cuda/fragments.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"

namespace heed::cuda {

// x as upper + lower, both of TF32; mma.sync passes over the 13 lowest bits of lower. Of lower,
// which has 13 significant bits at most, it loses no more than 2^-23 of x.
struct Tf32Pair {
  float upper, lower;
};
HEED_DEVICE Tf32Pair SplitTf32(float x) {
  const float upper = AsFloat((AsWord(x) + 0x1000u) & 0xffffe000u);  // half a unit away from 0
  return {upper, x - upper};
}

// Products with values are of 8 columns; kTiles of the four that a thread reads at once are summed
// at once. Beside 256 columns four spill registers.
//
// Rows in shared memory are 4 floats longer than kDim: loads of four floats meet no bank twice.
template <int kDim_, int kKeys_, int kTiles = (kDim_ == 256 ? 2 : 4)>
struct FloatProducts {
  using Element = float;
  static constexpr int kDim = kDim_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kStride = kDim + 4;
  static constexpr bool kByKeys = false;
  static constexpr int kRows = kBlockRows;
  static constexpr int kWarpKeys = kKeys;
  static constexpr int kScores = kKeys / 2;
  static constexpr int kOut = kDim / 2;
  HEED_DEVICE static constexpr int FirstRow(int t) { return t / kWarp * kWarpRows; }
  HEED_DEVICE static constexpr int FirstKey(int /*t*/) { return 0; }
  static_assert(kDim % 32 == 0 && kKeys % 8 == 0);

  HEED_DEVICE static constexpr int Half(int n) { return n / 2 % 2; }
  // Eight columns that follow one another, of each 32.
  HEED_DEVICE static constexpr int Column(int lane, int n) {
    return n / 16 * 32 + lane % 4 * 8 + n % 2 * 4 + n % 16 / 4;
  }

  // Stores half `half` of a thread's sums, times `factor`, to a row of `width` columns at `to`.
  template <class Block, class Out>
  HEED_DEVICE static void StoreRow(int t, int half, Out& out, float factor, DType dtype, int width,
                                   char* to) {
    if (dtype == DType::kFloat32) {
      EachColumn(t, half, width,
                 [&](int d, int n) { reinterpret_cast<float*>(to)[d] = out(t, n) * factor; });
    } else {
      EachColumn(t, half, width, [&](int d, int n) { StoreAs(dtype, to, d, out(t, n) * factor); });
    }
  }

  // mma.sync has columns k and k + 4 of a row with lane k of a quad. Which columns of q and k those
  // are does not matter: two products take four that follow one another, of every eight.
  template <class Block, class Shared, class Scores>
  HEED_DEVICE static void ScoreTile(Block& block, const Shared& q, const Shared& k,
                                    Scores& scores) {
    typename Block::template Registers<float, 8> q_upper, q_lower;
    typename Block::template Registers<float, 4> k_upper, k_lower, upper, lower;
    HEED_NO_UNROLL for (int c = 0; c < kDim; c += 16) {
      const int first = c / 32 * 32 + c % 32 / 4;
      block.Each([&](int t) {
        HEED_UNROLL for (int half = 0; half < 2; ++half) {
          float x[4];
          const int row = t / kWarp * kWarpRows + t % kWarp / 4 + 8 * half;
          q.LoadFour(t, row * kStride + first + t % 4 * 8, x);
          HEED_UNROLL for (int n = 0; n < 4; ++n) {
            Put(SplitTf32(x[n]), t, n / 2 * 4 + n % 2 * 2 + half, q_upper, q_lower);
          }
        }
      });
      HEED_UNROLL for (int key = 0; key < kKeys; key += 8) {
        block.Each([&](int t) {
          float x[4];
          k.LoadFour(t, (key + t % kWarp / 4) * kStride + first + t % 4 * 8, x);
          HEED_UNROLL for (int n = 0; n < 4; ++n) {
            Put(SplitTf32(x[n]), t, n, k_upper, k_lower);
            upper(t, n) = lower(t, n) = 0;
          }
        });
        HEED_UNROLL for (int step = 0; step < 2; ++step) {
          block.MmaTf32(lower, 0, q_lower, 4 * step, k_upper, 2 * step);
          block.MmaTf32(lower, 0, q_upper, 4 * step, k_lower, 2 * step);
          block.MmaTf32(upper, 0, q_upper, 4 * step, k_upper, 2 * step);
        }
        block.Each([&](int t) {
          HEED_UNROLL for (int e = 0; e < 4; ++e) {
            scores(t, key / 2 + e) += upper(t, e) + lower(t, e);
          }
        });
      }
    }
    MendScores(block, q, k, scores);
  }

  // Two neighbouring scores are those of keys k and k + 4 to mma.sync; lane l has four columns of
  // each value, one for each of four products.
  template <class Block, class Shared, class Scores, class Out>
  HEED_DEVICE static void AddValues(Block& block, Scores& weights, const Shared& v, Out& out) {
    typename Block::template Registers<float, 4> w_upper, w_lower;
    typename Block::template Registers<float, 2 * kTiles> values;
    typename Block::template Registers<float, 2> v_upper, v_lower;
    typename Block::template Registers<float, kSums> upper;
    typename Block::template Registers<float, 4> lower;
    HEED_UNROLL for (int first = 0; first < kOut; first += kSums) {
      const int d = first / 16 * 32;
      block.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kSums; ++n) upper(t, n) = 0; });
      HEED_UNROLL for (int key = 0; key < kKeys; key += 8) {
        block.Each([&](int t) {
          HEED_UNROLL for (int e = 0; e < 2; ++e) {
            HEED_UNROLL for (int half = 0; half < 2; ++half) {
              const float weight = Block::Opaque(weights(t, key / 2 + 2 * half + e));
              Put(SplitTf32(weight), t, 2 * e + half, w_upper, w_lower);
            }
            float x[4];
            v.LoadFour(t, (key + t % 4 * 2 + e) * kStride + d + t % kWarp / 4 * 4, x);
            HEED_UNROLL for (int n = 0; n < kTiles; ++n) {
              values(t, 2 * n + e) = x[first % 16 / 4 + n];
            }
          }
        });
        HEED_UNROLL for (int n = 0; n < kTiles; ++n) {
          block.Each([&](int t) {
            HEED_UNROLL for (int e = 0; e < 2; ++e) {
              Put(SplitTf32(values(t, 2 * n + e)), t, e, v_upper, v_lower);
            }
            HEED_UNROLL for (int e = 0; e < 4; ++e) lower(t, e) = 0;
          });
          block.MmaTf32(lower, 0, w_lower, 0, v_upper, 0);
          block.MmaTf32(lower, 0, w_upper, 0, v_lower, 0);
          block.MmaTf32(upper, n, w_upper, 0, v_upper, 0);
          block.Each([&](int t) {
            HEED_UNROLL for (int e = 0; e < 4; ++e) upper(t, 4 * n + e) += lower(t, e);
          });
        }
      }
      MendSums(block, weights, v, first, upper);
      block.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kSums; ++n) out(t, first + n) += upper(t, n);
      });
    }
  }

 private:
  template <class Body>
  HEED_DEVICE static void EachColumn(int t, int half, int width, const Body& body) {
    HEED_UNROLL for (int n = 0; n < kOut; ++n) {
      const int d = Column(t % kWarp, n);
      if (Half(n) == half && d < width) body(d, n);
    }
  }

  static constexpr int kSums = 4 * kTiles;

  template <class Registers>
  HEED_DEVICE static void Put(Tf32Pair pair, int t, int n, Registers& upper, Registers& lower) {
    upper(t, n) = pair.upper;
    lower(t, n) = pair.lower;
  }

  template <int kCount, class Registers>
  HEED_DEVICE static bool AllFinite(Registers& sums, int t) {
    bool finite = true;
    HEED_UNROLL for (int n = 0; n < kCount; ++n) finite = finite && IsFinite(sums(t, n));
    return finite;
  }

  template <class Block, class Shared, class Scores>
  HEED_DEVICE static void MendScores(Block& block, const Shared& q, const Shared& k,
                                     Scores& scores) {
    if (!block.AnyOfWarp([&](int t) { return !AllFinite<kScores>(scores, t); })) return;
    block.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        if (IsFinite(scores(t, n))) continue;
        const int lane = t % kWarp;
        const int row = t / kWarp * kWarpRows + AccumulatorRow(lane, n % 4);
        const int key = n / 4 * 8 + AccumulatorCol(lane, n % 4);
        float sum = 0;
        HEED_NO_UNROLL for (int d = 0; d < kDim; ++d) {
          sum += q.Load(t, row * kStride + d) * k.Load(t, key * kStride + d);
        }
        scores(t, n) = sum;
      }
    });
  }

  // Sums first to first + kSums of a thread.
  template <class Block, class Shared, class Scores, class Sums>
  HEED_DEVICE static void MendSums(Block& block, Scores& weights, const Shared& v, int first,
                                   Sums& sums) {
    if (!block.AnyOfWarp([&](int t) { return !AllFinite<kSums>(sums, t); })) return;
    typename Block::template Registers<float, 2> weight;
    typename Block::template Registers<float, 4> again;
    HEED_UNROLL for (int at = 0; at < kSums; at += 4) {
      block.Each([&](int t) { HEED_UNROLL for (int m = 0; m < 4; ++m) again(t, m) = 0; });
      HEED_UNROLL for (int n = 0; n < kScores; n += 2) {  // keys of even n, of one half
        HEED_NO_UNROLL for (int place = 0; place < 4; ++place) {
          block.FromQuad(weights, n, place, weight, 0);
          block.FromQuad(weights, n + 1, place, weight, 1);
          block.Each([&](int t) {
            HEED_UNROLL for (int m = n % 4; m < n % 4 + 2; ++m) {
              HEED_UNROLL for (int e = 0; e < 2; ++e) {
                const int key = n / 4 * 8 + 2 * place + e;
                again(t, m) +=
                    weight(t, e) * v.Load(t, key * kStride + Column(t % kWarp, first + at + m));
              }
            }
          });
        }
      }
      block.Each([&](int t) {
        HEED_UNROLL for (int m = 0; m < 4; ++m) {
          if (!IsFinite(sums(t, at + m))) sums(t, at + m) = again(t, m);
        }
      });
    }
  }
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_FLOAT_PRODUCTS_H_
