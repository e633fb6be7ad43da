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
  // x^2 (minimax, within 6e-7 of tanh(x) for |x| up to 0.5).
  HEED_DEVICE void Bend(float factor) {
    constexpr float kNearZero = 0.5f;
    constexpr float kLeastSquare = 1e-10f;  // so that its powers are normal numbers
    const float square = factor * factor;
    const bool far =
        group_.AnyOfWarp([&](int t) { return Largest(t) * fabsf(factor) > kNearZero; });
    if (far || square < kLeastSquare) return BendFar(2 * kLog2E * factor);
    const float first = 0.999999456f * factor, third = -0.333263179f * factor * square;
    const float fifth = 0.131902966f * factor * square * square;
    const float seventh = -0.0444022258f * factor * square * square * square;
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const float score = scores_(t, n), u = score * score;
        scores_(t, n) = score * fmaf(u, fmaf(u, fmaf(u, seventh, fifth), third), first);
      }
    });
  }

  // Scores become factor score - slope |distance|. `from` are the distances of the thread's first
  // key to both rows, query less key. Where all keys lie before the rows of a warp, or all behind
  // them, the bias is linear in the key.
  HEED_DEVICE void AddAlibi(Registers<int32_t, 2>& from, Registers<float, 2>& slopes,
                            float factor) {
    const auto any = [&](const auto& is_so) {
      return group_.AnyOfWarp([&](int t) { return is_so(from(t, 0)) || is_so(from(t, 1)); });
    };
    const bool before = !any([](int distance) { return distance < Apart(kScores - 1); });
    if (!before && any([](int distance) { return distance > 0; })) {
      return AddAlibiAround(from, slopes, factor);
    }
    group_.Each([&](int t) {
      float slope[2], of_first[2];
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        slope[half] = before ? slopes(t, half) : -slopes(t, half);
        of_first[half] = -slope[half] * static_cast<float>(from(t, half));
      }
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const int half = n % 4 / 2;
        const float bias = fmaf(slope[half], static_cast<float>(Apart(n)), of_first[half]);
        scores_(t, n) = fmaf(scores_(t, n), factor, bias);
      }
    });
  }

 private:
  // tanh(x) = 1 - 2 / (1 + e^2x)
  HEED_DEVICE void BendFar(float to_exponent) {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const float inverse = Group::Reciprocal(1 + Group::Exp2(scores_(t, n) * to_exponent));
        scores_(t, n) = fmaf(-2, inverse, 1);
      }
    });
  }
  HEED_DEVICE float Largest(int t) {
    float even = fabsf(scores_(t, 0)), odd = fabsf(scores_(t, 1));
    HEED_UNROLL for (int n = 2; n < kScores; n += 2) {
      even = fmaxf(even, fabsf(scores_(t, n)));
      odd = fmaxf(odd, fabsf(scores_(t, n + 1)));
    }
    return fmaxf(even, odd);
  }
  HEED_DEVICE void AddAlibiAround(Registers<int32_t, 2>& from, Registers<float, 2>& slopes,
                                  float factor) {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const int half = n % 4 / 2;
        const float distance = static_cast<float>(from(t, half)) - static_cast<float>(Apart(n));
        scores_(t, n) = AlibiScore(scores_(t, n) * factor, slopes(t, half), distance);
      }
    });
  }

  Group& group_;
  Scores& scores_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_SCORES_H_
