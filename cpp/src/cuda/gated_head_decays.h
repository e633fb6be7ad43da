// Rows of a chunk whose channels decay alike, or not at all: products of rows as they are decay
// afterwards.
#ifndef HEED_SRC_CUDA_GATED_HEAD_DECAYS_H_
#define HEED_SRC_CUDA_GATED_HEAD_DECAYS_H_

#include <cstdint>

#include "src/cuda/gated_chunk_rows.h"
#include "src/cuda/shared_words.h"

namespace heed::cuda {

// Up to kDim features. The functions are those of GatedChannelDecays.
template <class Block, int kDim, bool kDelta>
class GatedHeadDecays : protected GatedChunkRows<Block, kDim> {
  using Base = GatedChunkRows<Block, kDim>;

 protected:
  using Base::block_;
  using Base::k_;
  using Base::p_;
  using Base::q_;
  using typename Base::Floats;
  using typename Base::Rows;
  using typename Base::Shared;
  using typename Base::T;
  template <class Number, int N>
  using Registers = typename Base::template Registers<Number, N>;

  static constexpr int kPairStride = kSystemStride;
  static constexpr int kDecayBytes = Base::kRowBytes + (kChunkTokens + kChunkTokens * kPairStride) *
                                                           static_cast<int>(sizeof(float));

  HEED_DEVICE GatedHeadDecays(Block& block, const GatedChunkParams& params)
      : Base(block, params),
        gates_(block.template Allocate<float>(kChunkTokens)),
        pairs_(block.template Allocate<float>(kChunkTokens * kPairStride)) {}

  HEED_DEVICE static int PairAt(int row, int token) { return row * kPairStride + token; }

  // Sums of logarithms from the beginning of each 16 tokens.
  HEED_DEVICE void LoadGates() {
    block_.Each([&](int t) {
      if (t >= kSubs) return;
      float decays[kSubTokens][1] = {}, sum = 0;
      if (this->HasDecay()) this->LoadLogDecays(t * kSubTokens, 0, decays);
      HEED_UNROLL for (int r = 0; r < kSubTokens; ++r) {
        sum += decays[r][0];
        gates_.Store(t, t * kSubTokens + r, sum);
      }
    });
  }

  HEED_DEVICE void DecayKeys() {
    StoreRows(
        p_.place.write, k_, From::kEnd,
        [&](int t, int token) { return Total(t, token / kSubTokens) - gates_.Load(t, token); },
        [&](int t, int token) { return kDelta ? 1.0f : this->Beta(t, token); });
    if (kDelta && !p_.erases_apart()) {
      StoreRows(
          p_.place.erase, k_, From::kBeginning,
          [&](int t, int token) { return gates_.Load(t, token); }, [](int, int) { return -1.0f; });
    }
    block_.Each([&](int t) {
      if (t >= kDim) return;
      float sum = 0;
      HEED_UNROLL for (int sub = 0; sub < kSubs; ++sub) sum += Total(t, sub);
      reinterpret_cast<float*>(this->chunk_at_ + p_.place.decays)[t] = PowerOfTwo(sum);
    });
  }
  HEED_DEVICE void DecayQueries(int g) {
    StoreRows(
        p_.place.reads + g * p_.place.head, q_, From::kBeginning,
        [&](int t, int token) { return ReadGate(t, token); }, [](int, int) { return 1.0f; });
  }

  HEED_DEVICE const Shared& OwnKeys() const { return k_; }
  HEED_DEVICE const Shared& LeftRows() const { return k_; }
  HEED_DEVICE bool IsByHalves(int /*t*/, int /*token*/) const { return false; }

  HEED_DEVICE void DecayFurther(int /*d*/, int /*back*/, Registers<uint32_t, 4>& rows,
                                Registers<float, 4>& /*factors*/, Registers<uint32_t, 4>& decayed) {
    block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < 4; ++n) decayed(t, n) = rows(t, n); });
  }
  // Those of tokens behind a row, which nobody reads, may overflow.
  template <class Sums>
  HEED_DEVICE void DecaySums(Sums& sums) {
    if (!this->HasDecay()) return;
    block_.Each([&](int t) {
      const int sub = this->SubOf(t);
      // From the end of the 16 tokens, of the same 16 from their beginning, to where rows read.
      float to_rows[2];
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        to_rows[half] = ReadGate(t, sub * kSubTokens + AccumulatorRow(t % kWarp, 2 * half));
      }
      HEED_UNROLL for (int back = 0; back < kSubs; ++back) {
        if (back > sub) return;
        const float total = back == 0 ? 0.0f : Total(t, sub - back);
        if (back > 1) {
          HEED_UNROLL for (int half = 0; half < 2; ++half) to_rows[half] +=
              Total(t, sub - back + 1);
        }
        HEED_UNROLL for (int n = 8 * back; n < 8 * back + 8; ++n) {
          const int token =
              (sub - back) * kSubTokens + n / 4 % 2 * 8 + AccumulatorCol(t % kWarp, n % 4);
          sums(t, n) *= PowerOfTwo(to_rows[n % 4 / 2] + (total - gates_.Load(t, token)));
        }
      }
    });
  }

 private:
  HEED_DEVICE float Total(int t, int sub) const {
    return gates_.Load(t, sub * kSubTokens + kSubTokens - 1);
  }
  // Up to where a query of the token reads.
  HEED_DEVICE float ReadGate(int t, int token) const {
    if (!this->ReadsFirst()) return gates_.Load(t, token);
    return token % kSubTokens == 0 ? 0.0f : gates_.Load(t, token - 1);
  }

  enum class From { kBeginning, kEnd };  // of the chunk
  // Rows times 2 to the gate(t, token) of their own 16 tokens and the totals of the 16 before them
  // (or behind them), times factor(t, token). A thread has eight channels of every eighth or
  // sixteenth row, 16 tokens after the other.
  template <class Gate, class Factor>
  HEED_DEVICE void StoreRows(int64_t place, const Shared& rows, From from, const Gate& gate,
                             const Factor& factor) {
    constexpr int kEights = kDim / 8, kStep = kBlockThreads / kEights;
    char* const to = this->chunk_at_ + place;
    block_.Each([&](int t) {
      const int c = t % kEights * 8;
      float others = 0;
      HEED_UNROLL for (int step = 0; step < kSubs; ++step) {
        const int sub = from == From::kBeginning ? step : kSubs - 1 - step;
        HEED_UNROLL for (int r = 0; r < kSubTokens; r += kStep) {
          const int token = sub * kSubTokens + r + t / kEights;
          const float decay = PowerOfTwo(gate(t, token) + others) * factor(t, token);
          uint32_t pairs[4];
          float x[8];
          rows.LoadEight(t, token * Rows::kStride + c, pairs);
          UnpackEight<Block, T>(pairs, x);
          HEED_UNROLL for (int n = 0; n < 8; ++n) x[n] *= decay;
          PackEight<Block, T>(x, pairs);
          StoreGlobalEight(to + (token * kEights + c / 8) * 16, pairs);
        }
        others += Total(t, sub);
      }
    });
  }

  Floats gates_;

 protected:
  // Behind the diagonal, of delta, the system (SolveChunk).
  Floats pairs_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_HEAD_DECAYS_H_
