// Softcap and ALiBi of the scores that a warp group on Hopper has in registers (hopper_consumer.h).
// Products of 128 columns leave time for some ten multiply-adds a score beside softmax, but for no
// more than one slow function, an exponential or an inverse, of which softmax has one already.
#ifndef HEED_SRC_CUDA_HOPPER_SCORES_H_
#define HEED_SRC_CUDA_HOPPER_SCORES_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/accumulators.h"
#include "src/cuda/device.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"

namespace heed::cuda {

// A thread has kScores of them: those of two rows.
template <class Group, int kScores>
class HopperScores {
  template <class T, int N>
  using Registers = typename Group::template Registers<T, N>;
  using Scores = Registers<float, kScores>;

 public:
  HEED_DEVICE HopperScores(Group& group, Scores& scores) : group_(group), scores_(scores) {}

  // Scores become tanh(factor score). Those near 0, as nearly all are, are x times a polynomial of
  // x^2 (minimax, within 4e-7 of tanh(x) for |x| up to 0.25, and within 6e-7 up to 0.5).
  HEED_DEVICE void Bend(float factor) {
    constexpr float kNearZero = 0.25f, kNear = 0.5f;
    constexpr float kLeastFactor = 1e-5f;  // so that its powers are normal numbers
    const auto is_beyond = [&, factor](float bound) {
      return group_.AnyOfWarp([&](int t) { return largest_(t, 0) * fabsf(factor) > bound; });
    };
    FindLargest();
    if (is_beyond(kNear)) return BendFar(2 * kLog2E * factor);
    const bool is_near_zero = !is_beyond(kNearZero);
    if (fabsf(factor) < kLeastFactor) {
      Multiply(factor);
      factor = 1;
    }
    const float square = factor * factor;
    if (!is_near_zero) {
      return BendNear<4>({0.999999456f * factor, -0.333263179f * factor * square,
                          0.131902966f * factor * square * square,
                          -0.0444022258f * factor * square * square * square});
    }
    BendNear<3>({0.999999604f * factor, -0.333219082f * factor * square,
                 0.128416134f * factor * square * square});
  }

  // Scores lose slope |distance|, but for `shifts`, which are to be added to all that the thread
  // has of a row. `from` are the distances of the thread's first key to both rows, query less key.
  // Where all keys lie before the rows of a warp, or all behind them, the bias is linear in the
  // key: one multiply-add.
  HEED_DEVICE void AddAlibi(Registers<int32_t, 2>& from, Registers<float, 2>& slopes,
                            Registers<float, 2>& shifts) {
    const auto any = [&](const auto& is_so) {
      return group_.AnyOfWarp([&](int t) { return is_so(from(t, 0)) || is_so(from(t, 1)); });
    };
    const bool before = !any([](int distance) { return distance < Apart(kScores - 1); });
    if (!before && any([](int distance) { return distance > 0; })) {
      return AddAlibiAround(from, slopes, shifts);
    }
    group_.Each([&](int t) {
      float slope[2];
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        slope[half] = before ? slopes(t, half) : -slopes(t, half);
        shifts(t, half) = -slope[half] * static_cast<float>(from(t, half));
      }
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        scores_(t, n) = fmaf(slope[n % 4 / 2], static_cast<float>(Apart(n)), scores_(t, n));
      }
    });
  }

 private:
  HEED_DEVICE void Multiply(float factor) {
    group_.Each(
        [&](int t) { HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) *= factor; });
  }
  // Scores become products with a polynomial of their squares.
  template <int kTerms>
  HEED_DEVICE void BendNear(const float (&terms)[kTerms]) {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const float score = scores_(t, n), u = score * score;
        float sum = terms[kTerms - 1];
        HEED_UNROLL for (int i = kTerms - 2; i >= 0; --i) sum = fmaf(u, sum, terms[i]);
        scores_(t, n) = score * sum;
      }
    });
  }
  // tanh(x) = 1 - 2 / (1 + e^2x)
  HEED_DEVICE void BendFar(float to_exponent) {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const float inverse = Group::Reciprocal(1 + Group::Exp2(scores_(t, n) * to_exponent));
        scores_(t, n) = fmaf(-2, inverse, 1);
      }
    });
  }
  HEED_DEVICE void FindLargest() {
    group_.Each([&](int t) {
      float even = fabsf(scores_(t, 0)), odd = fabsf(scores_(t, 1));
      HEED_UNROLL for (int n = 2; n < kScores; n += 2) {
        even = fmaxf(even, fabsf(scores_(t, n)));
        odd = fmaxf(odd, fabsf(scores_(t, n + 1)));
      }
      largest_(t, 0) = fmaxf(even, odd);
    });
  }
  HEED_DEVICE void AddAlibiAround(Registers<int32_t, 2>& from, Registers<float, 2>& slopes,
                                  Registers<float, 2>& shifts) {
    group_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) shifts(t, half) = 0;
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const int half = n % 4 / 2;
        const float distance = static_cast<float>(from(t, half)) - static_cast<float>(Apart(n));
        scores_(t, n) = AlibiScore(scores_(t, n), slopes(t, half), distance);
      }
    });
  }

  Group& group_;
  Scores& scores_;
  Registers<float, 1> largest_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_SCORES_H_
