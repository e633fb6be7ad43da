// Rows of a chunk whose channels decay each at a rate of its own.
//
// Decays of a channel between two tokens are differences of sums of logarithms, none above 0. As a
// product of matrices wants a factor of either token, sums begin anew every kSubTokens tokens: a
// query's factor counts from the beginning of its 16 tokens, a key's to the end of its own, and
// what lies between them is a factor of rows of 16 tokens each. Only for the 16 of its own a key's
// factor is above 1, e^kStrongDecay at most: keys of tokens that decay more than that meet theirs
// by halves. Rows of the last 8 meet keys of the first 8, and so on down to neighbours, each pair
// of halves with decays that count from where they meet, none of which is above 1.
//
// Yang et al. 2023, arXiv:2312.06635, section 4.3 (chunks in two levels).
#ifndef HEED_SRC_CUDA_GATED_CHANNEL_DECAYS_H_
#define HEED_SRC_CUDA_GATED_CHANNEL_DECAYS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/gated_chunk_rows.h"
#include "src/cuda/shared_words.h"

namespace heed::cuda {

// The logarithm of what kSubTokens tokens decay by, if a factor of its inverse is to leave room for
// keys of any size that matters: e^60 is 1e26.
inline constexpr float kStrongDecay = 60;

// Up to kDim features. A warp has 16 tokens and all channels, a thread two of each 64.
template <class Block, int kDim, bool kDelta>
class GatedChannelDecays : protected GatedChunkRows<Block, kDim> {
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

  // What meets by halves: 64 channels of a token have a place in its row of pairs, beside what its
  // own 16 tokens give to it. Without delta nothing else has.
  static constexpr int kHalfFloats = 64 * sizeof(T) / sizeof(float);
  static constexpr int kPairStride = kDelta ? kSystemStride : kSubTokens + 4 + kHalfFloats;
  static constexpr int kDecayBytes =
      Base::kRowBytes + (kDelta ? 2 : 1) * Base::kMatrixBytes +
      (kSubs * kDim + kChunkTokens * kPairStride) * static_cast<int>(sizeof(float));

  HEED_DEVICE GatedChannelDecays(Block& block, const GatedChunkParams& params)
      : Base(block, params),
        own_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        left_(kDelta ? block.template Allocate<T>(kChunkTokens * Rows::kStride) : own_),
        totals_(block.template Allocate<float>(kSubs * kDim)),
        pairs_(block.template Allocate<float>(kChunkTokens * kPairStride)),
        halves_(block.template View<T>(pairs_)) {}

  HEED_DEVICE static int PairAt(int row, int token) {
    return row * kPairStride + (kDelta ? token : token % kSubTokens);
  }

  // Sums of logarithms, those of all 16 tokens to shared memory.
  HEED_DEVICE void LoadGates() {
    block_.Each([&](int t) {
      const int sub = this->SubOf(t);
      HEED_UNROLL for (int n = 0; n < kOwn; n += 2) {
        float decays[kSubTokens][2], sums[2] = {};
        this->LoadLogDecays(sub * kSubTokens, Channel(t, n), decays);
        HEED_UNROLL for (int r = 0; r < kSubTokens; ++r) {
          HEED_UNROLL for (int x = 0; x < 2; ++x) {
            gates_(t, r * kOwn + n + x) = sums[x] += decays[r][x];
          }
        }
        HEED_UNROLL for (int x = 0; x < 2; ++x) {
          totals_.Store(t, sub * kDim + Channel(t, n) + x, sums[x]);
        }
      }
    });
    FindStrong();
  }

  // Keys become what later 16 tokens meet, and leave what those of the same 16 do; rows to write
  // and to erase by, and what the state decays by, go to memory. Behind a barrier, and without one.
  HEED_DEVICE void DecayKeys() {
    if (kDelta && has_strong_ && !p_.erases_apart()) {
      MeetByHalves(k_, k_, false, [&](int t, int row, int token, float sum) {
        pairs_.Store(t, PairAt(token, row), sum * this->Beta(t, row));
      });
    }
    FindFactors();
    block_.Each([&](int t) {
      const int sub = this->SubOf(t), first = sub * kSubTokens;
      if (sub == 0) StoreDecays(t);
      HEED_UNROLL for (int n = 0; n < kOwn; n += 2) {
        const int offset = (first * kDim + Channel(t, n)) * static_cast<int>(sizeof(T));
        char* const write = this->chunk_at_ + p_.place.write + offset;
        char* const erase = this->chunk_at_ + p_.place.erase + offset;
        HEED_UNROLL for (int r = 0; r < kSubTokens; ++r) {
          const int at = (first + r) * Rows::kStride + Channel(t, n);
          const uint32_t key = LoadPair(k_, t, at);
          const float beta = kDelta ? 1.0f : this->Beta(t, first + r);
          float own[2], end[2], left[2], writes[2];
          HEED_UNROLL for (int x = 0; x < 2; ++x) {
            const float number = Half(key, x), gate = gates_(t, r * kOwn + n + x);
            own[x] = number * PowerOfTwo(-gate);
            end[x] = number * PowerOfTwo(gates_(t, (kSubTokens - 1) * kOwn + n + x) - gate);
            writes[x] = end[x] * (behind_(t, n + x) * beta);
            if constexpr (kDelta) left[x] = number * PowerOfTwo(gate);
          }
          StorePair<T>(own_, t, at, IsStrong(t, r) ? key : Packed(own));
          StorePair<T>(k_, t, at, Packed(end));
          StoreGlobalPair(write + r * kDim * sizeof(T), Packed(writes));
          if constexpr (kDelta) {
            if (p_.erases_apart()) continue;
            StorePair<T>(left_, t, at, Packed(left));
            HEED_UNROLL for (int x = 0; x < 2; ++x) left[x] *= -before_(t, n + x);
            StoreGlobalPair(erase + r * kDim * sizeof(T), Packed(left));
          }
        }
      }
    });
  }
  // Queries become what meets keys; rows that read go to memory. As above. Directions of tokens
  // that erase stay where they are from the first head on.
  HEED_DEVICE void DecayQueries(int g) {
    const bool reads_first = this->ReadsFirst();
    const auto is_done = [&](int r) { return g > 0 && this->IsEraser(r); };
    if (has_strong_) {
      const auto store = [&](int t, int row, int token, float sum) {
        if (!is_done(row)) pairs_.Store(t, PairAt(row, token), sum);
      };
      MeetByHalves(q_, own_, reads_first, store);
      MeetSame(q_, own_, store);
    }
    block_.Each([&](int t) {
      const int first = this->SubOf(t) * kSubTokens;
      HEED_UNROLL for (int n = 0; n < kOwn; n += 2) {
        char* const reads = this->chunk_at_ + p_.place.reads + g * p_.place.head +
                            (first * kDim + Channel(t, n)) * static_cast<int>(sizeof(T));
        HEED_UNROLL for (int r = 0; r < kSubTokens; ++r) {
          if (is_done(r)) continue;
          const int at = (first + r) * Rows::kStride + Channel(t, n);
          const uint32_t query = LoadPair(q_, t, at);
          float row[2], read[2];
          HEED_UNROLL for (int x = 0; x < 2; ++x) {
            const float sum = gates_(t, r * kOwn + n + x);
            const float earlier = r == 0 ? 0.0f : gates_(t, (r == 0 ? 0 : r - 1) * kOwn + n + x);
            row[x] = Half(query, x) * PowerOfTwo(reads_first ? earlier : sum);
            read[x] = row[x] * before_(t, n + x);
          }
          StorePair<T>(q_, t, at, Packed(row));
          StoreGlobalPair(reads + r * kDim * sizeof(T), Packed(read));
        }
      }
    });
  }

  // What rows of q_, or of left_, meet of their own 16 tokens.
  HEED_DEVICE const Shared& OwnKeys() const { return own_; }
  // What rows to the left of keys to erase by are.
  HEED_DEVICE const Shared& LeftRows() const { return left_; }
  // Is what a token of a row's own 16 gives to it in pairs_?
  HEED_DEVICE bool IsByHalves(int t, int token) {
    return has_strong_ && IsStrong(t, token % kSubTokens);
  }

  // Of operand A, which are columns d to d + 15 of a warp's rows: factors become those of what
  // decays between them and the 16 tokens `back` times 16 before. One call after the other, from 1
  // on.
  HEED_DEVICE void DecayFurther(int d, int back, Registers<uint32_t, 4>& rows,
                                Registers<float, 4>& factors, Registers<uint32_t, 4>& decayed) {
    block_.Each([&](int t) {
      const int sub = this->SubOf(t), between = sub < back ? 0 : sub - back + 1;
      HEED_UNROLL for (int n = 0; n < 4; n += 2) {
        float total[2];
        totals_.LoadTwo(t, between * kDim + d + n * 4 + t % 4 * 2, total);
        HEED_UNROLL for (int x = 0; x < 2; ++x) {
          const float factor = PowerOfTwo(total[x]);
          factors(t, n + x) = back == 2 ? factor : factors(t, n + x) * factor;
        }
      }
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        const float row[2] = {Half(rows(t, n), 0) * factors(t, n / 2 * 2),
                              Half(rows(t, n), 1) * factors(t, n / 2 * 2 + 1)};
        decayed(t, n) = Packed(row);
      }
    });
  }
  template <class Sums>
  HEED_DEVICE void DecaySums(Sums& /*sums*/) {}

 private:
  static constexpr int kOwn = kDim / kWarp;  // channels of a thread

  HEED_DEVICE static int Channel(int t, int n) { return n / 2 * 64 + t % kWarp * 2; }
  HEED_DEVICE static float Half(uint32_t pair, int half) {
    return Block::Unpack(T{}, static_cast<uint16_t>(half == 0 ? pair : pair >> 16));
  }
  HEED_DEVICE static uint32_t Packed(const float (&x)[2]) { return Block::Pack(T{}, x[0], x[1]); }

  // What all tokens before the thread's 16, and all behind them, decay by.
  HEED_DEVICE void FindFactors() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOwn; n += 2) {
        float before[2] = {}, behind[2] = {};
        HEED_UNROLL for (int sub = 0; sub < kSubs; ++sub) {
          float total[2];
          totals_.LoadTwo(t, sub * kDim + Channel(t, n), total);
          HEED_UNROLL for (int x = 0; x < 2; ++x) {
            if (sub < this->SubOf(t)) before[x] += total[x];
            if (sub > this->SubOf(t)) behind[x] += total[x];
          }
        }
        HEED_UNROLL for (int x = 0; x < 2; ++x) {
          before_(t, n + x) = PowerOfTwo(before[x]);
          behind_(t, n + x) = PowerOfTwo(behind[x]);
        }
      }
    });
  }
  // By the threads of the first 16 tokens.
  HEED_DEVICE void StoreDecays(int t) {
    float* const decays = reinterpret_cast<float*>(this->chunk_at_ + p_.place.decays);
    HEED_UNROLL for (int n = 0; n < kOwn; ++n) {
      decays[Channel(t, n) + n % 2] =
          PowerOfTwo(gates_(t, (kSubTokens - 1) * kOwn + n)) * behind_(t, n);
    }
  }

  // Which of the 16 tokens have a channel that has decayed too much by then. It depends on none
  // behind them, whose decays may be NaN.
  HEED_DEVICE void FindStrong() {
    // Of sums n to end - 1; NaN is passed over, as products make it NaN again.
    const auto strongest = [&](int t, int n, int end) {
      float most = 0;
      HEED_UNROLL for (; n < end; ++n) most = fmaxf(most, -gates_(t, n));
      return most;
    };
    constexpr float kLimit = kStrongDecay * kLog2E;
    block_.Each([&](int t) { strong_(t, 0) = 0; });
    has_strong_ =
        block_.AnyOfWarp([&](int t) { return strongest(t, 0, kSubTokens * kOwn) > kLimit; });
    if (!has_strong_) return;
    HEED_UNROLL for (int r = 0; r < kSubTokens; ++r) {
      Registers<float, 1> most;
      block_.Each([&](int t) { most(t, 0) = strongest(t, r * kOwn, (r + 1) * kOwn); });
      block_.template GroupMax<kWarp>(most);
      block_.Each([&](int t) { strong_(t, 0) |= most(t, 0) > kLimit ? 1 << r : 0; });
    }
  }
  HEED_DEVICE bool IsStrong(int t, int r) { return (strong_(t, 0) >> r & 1) != 0; }

  // Rows meet keys of such tokens of their own 16 before them, which are as they were before any
  // decay: store(t, row, token, sum). A token is a row of one pair of halves or a key of it, so
  // that a matrix has both.
  template <class Store>
  HEED_DEVICE void MeetByHalves(const Shared& rows, const Shared& keys, bool reads_first,
                                const Store& store) {
    HEED_UNROLL for (int size = 1; size < kSubTokens; size *= 2) {
      SubSums sums;
      Clear(sums);
      HEED_UNROLL for (int n = 0; n < kOwn; n += 2) {
        block_.Each([&](int t) {
          float met[2];
          HEED_UNROLL for (int r = 0; r < kSubTokens; ++r) {
            const bool is_row = (r & size) != 0;
            const int at = (this->SubOf(t) * kSubTokens + r) * Rows::kStride + Channel(t, n);
            const uint32_t pair = LoadPair(is_row ? rows : keys, t, at);
            float decayed[2];
            HEED_UNROLL for (int x = 0; x < 2; ++x) {
              const auto gate = [&](int token) { return gates_(t, token * kOwn + n + x); };
              // What is made of it is not kept for the next query head.
              if (r % (2 * size) == 0) met[x] = Block::Opaque(gate(r + size - 1));
              const float way =
                  is_row ? (reads_first ? gate(r - 1) : gate(r)) - met[x] : met[x] - gate(r);
              decayed[x] = Half(pair, x) * PowerOfTwo(way);
            }
            StorePair<T>(halves_, t, HalfAt(t, r) + Channel(t, 0), Packed(decayed));
          }
        });
        block_.SyncWarp();
        MeetSub(
            halves_, halves_, 64, [&](int t, int r) { return HalfAt(t, r); }, sums);
        block_.SyncWarp();  // before the next ones replace them
      }
      StoreStrong(sums, store, [&](int r, int s) { return r > s && (r ^ s) / size == 1; });
    }
  }
  // Between a row and its own key nothing decays.
  template <class Store>
  HEED_DEVICE void MeetSame(const Shared& rows, const Shared& keys, const Store& store) {
    SubSums sums;
    Clear(sums);
    block_.SyncWarp();  // keys are stored
    MeetSub(
        rows, keys, kDim,
        [&](int t, int r) { return (this->SubOf(t) * kSubTokens + r) * Rows::kStride; }, sums);
    block_.SyncWarp();  // before rows decay
    StoreStrong(sums, store, [](int r, int s) { return r == s; });
  }

  // Of rows of a warp's 16 tokens with their keys: sum 4 m + e is row AccumulatorRow(lane, e) and
  // token 8 m + AccumulatorCol(lane, e).
  using SubSums = Registers<float, kSubTokens / 2>;
  HEED_DEVICE void Clear(SubSums& sums) {
    block_.Each(
        [&](int t) { HEED_UNROLL for (int n = 0; n < kSubTokens / 2; ++n) sums(t, n) = 0; });
  }
  // Sums of `channels` more, which begin at begin_of(t, r) of token r.
  template <class Begin>
  HEED_DEVICE void MeetSub(const Shared& rows, const Shared& keys, int channels,
                           const Begin& begin_of, SubSums& sums) {
    Registers<uint32_t, 4> left, right;
    HEED_UNROLL for (int d = 0; d < channels; d += 16) {
      block_.LoadMatrix(left, rows, [&](int t) {
        return begin_of(t, RowOfA(t % kWarp)) + d + ColOfA(t % kWarp);
      });
      block_.LoadMatrix(right, keys, [&](int t) {
        return begin_of(t, RowOfB(t % kWarp)) + d + ColOfB(t % kWarp);
      });
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        block_.Mma(T{}, sums, half, left, right, half);
      }
    }
  }
  template <class Store, class Test>
  HEED_DEVICE void StoreStrong(SubSums& sums, const Store& store, const Test& test) {
    block_.Each([&](int t) {
      const int first = this->SubOf(t) * kSubTokens;
      HEED_UNROLL for (int n = 0; n < kSubTokens / 2; ++n) {
        const int r = AccumulatorRow(t % kWarp, n % 4);
        const int s = n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
        if (test(r, s) && IsStrong(t, s)) store(t, first + r, first + s, sums(t, n));
      }
    });
  }
  // Where 64 channels of one of the warp's tokens are in halves_: of delta, beside the 16 x 16
  // numbers that its own tokens have there.
  HEED_DEVICE int HalfAt(int t, int r) const {
    const int sub = this->SubOf(t);
    const int col = !kDelta ? kSubTokens + 4 : sub < 2 ? (sub + 1) * kSubTokens : 0;
    static_assert(kPairStride >= (kDelta ? 2 * kSubTokens : kSubTokens + 4) + kHalfFloats);
    return 2 * ((sub * kSubTokens + r) * kPairStride + col);
  }

 protected:
  // Keys decayed back to the beginning of their 16 tokens, or as they are where that is too much;
  // and, of delta, decayed from there. k_ are those decayed to the end of them.
  Shared own_, left_;
  Floats totals_;  // [kSubs, kDim]: logarithms of what 16 tokens decay by
  // Weights of a query for tokens of its own 16 that decay too much; behind the diagonal, of delta,
  // the system (SolveChunk).
  Floats pairs_;

 private:
  Shared halves_;                              // in pairs_ (HalfAt)
  bool has_strong_;                            // may a token of the warp's be among strong_?
  Registers<int32_t, 1> strong_;               // bits of tokens that decay too much for products
  Registers<float, kSubTokens * kOwn> gates_;  // sums up to each of the 16 tokens
  Registers<float, kOwn> before_, behind_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHANNEL_DECAYS_H_
