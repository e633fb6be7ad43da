// The tokens of a chunk among each other, for recurrent attention whose channels decay each at a
// rate of its own, or which erases by the delta rule or by keys of its own: what does not depend on
// the state, so that all chunks of a sequence are prepared at once (PreparedChunk).
//
// A warp has 16 tokens, whose rows meet their own keys, then those of the 16 tokens before, and so
// on. How decays come into it: GatedChannelDecays, GatedHeadDecays.
//
// The delta rule: u = v - S^T k of every token, all of a chunk at once, is a triangular system
// (Yang et al. 2024, arXiv:2406.06484, section 3.2; with decays arXiv:2412.06464, by channels
// arXiv:2510.26692).
#ifndef HEED_SRC_CUDA_GATED_CHUNK_TOKENS_H_
#define HEED_SRC_CUDA_GATED_CHUNK_TOKENS_H_

#include <cstdint>
#include <type_traits>

#include "src/cuda/chunk_solution.h"
#include "src/cuda/gated_channel_decays.h"
#include "src/cuda/gated_chunk_params.h"
#include "src/cuda/gated_head_decays.h"
#include "src/cuda/products.h"

namespace heed::cuda {

template <class Block, int kDim, bool kChannels, bool kDelta>
using GatedDecays = std::conditional_t<kChannels, GatedChannelDecays<Block, kDim, kDelta>,
                                       GatedHeadDecays<Block, kDim, kDelta>>;

// Up to kDim features. kChannels and kDelta are decays_channels and delta of the parameters.
template <class Block, int kDim, bool kChannels, bool kDelta>
class GatedChunkTokens : GatedDecays<Block, kDim, kChannels, kDelta> {
  using Base = GatedDecays<Block, kDim, kChannels, kDelta>;
  using typename Base::Rows;
  using typename Base::Shared;
  using typename Base::T;
  template <class Number, int N>
  using Registers = typename Base::template Registers<Number, N>;
  // Of a warp's 16 tokens with others: sums(8 back + 4 m + e) is row AccumulatorRow(lane, e), and
  // token 8 m + AccumulatorCol(lane, e) of the 16 that lie `back` times 16 before.
  static constexpr int kSums = kChunkTokens / 2;
  using Sums = Registers<float, kSums>;
  static constexpr int kOwnWeights = kDelta ? 0 : kChunkTokens;  // no bonus goes with delta

 public:
  static constexpr int kSharedBytes =
      Base::kDecayBytes + kOwnWeights * static_cast<int>(sizeof(float));
  // Blocks that share a multiprocessor of Hopper.
  static constexpr int kResident = kDim == 64 ? 4 : 2;

  HEED_DEVICE GatedChunkTokens(Block& block, const GatedChunkParams& params)
      : Base(block, params), own_weights_(block.template Allocate<float>(kOwnWeights)) {}

  // Chunk index % chunks of KV head index / chunks.
  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index);
    this->CopyKeys();
    this->CopyQueries(0);
    block_.CommitCopies();
    this->LoadBetas();
    this->LoadGates();
    if (kDelta && p_.erases_apart()) this->LoadErasers();
    block_.template WaitCopies<0>();
    block_.Sync();
    this->MapRows(k_, true);
    this->DecayKeys();
    HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) {
      if (g > 0) NextQueries(g);
      this->MapRows(q_, false);
      if (!kDelta && p_.bonus.data != nullptr) MeetThemselves(this->kv_head_ * p_.group + g);
      this->DecayQueries(g);
      block_.Sync();
      Sums sums;
      MeetKeys(q_, sums);
      StoreWeights(g, sums);
      if (kDelta && p_.erases_apart() && g + 1 == p_.group) StoreSystem(sums);
    }
    if (kDelta) Solve();
  }

 private:
  using Base::betas_;
  using Base::block_;
  using Base::k_;
  using Base::p_;
  using Base::pairs_;
  using Base::q_;

  HEED_DEVICE void NextQueries(int g) {
    block_.Sync();  // those of the last head are read
    this->CopyQueries(g);
    block_.CommitCopies();
    block_.template WaitCopies<0>();
    block_.Sync();
  }

  // The first token of the 16 that lie `back` times 16 before the warp's; of warps that have none
  // there, of some others, whose products nobody reads.
  HEED_DEVICE int FirstOf(int t, int back) const {
    const int sub = this->SubOf(t);
    return (sub < back ? 0 : sub - back) * kSubTokens;
  }

  // Sums become products of rows and keys, decayed from the key to the row. Those behind a row,
  // which nobody reads, may overflow.
  HEED_DEVICE void MeetKeys(const Shared& rows, Sums& sums) {
    block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kSums; ++n) sums(t, n) = 0; });
    Registers<uint32_t, 4> row, decayed, keys;
    Registers<float, 4> factors;
    const auto meet = [&](int back, const Shared& of, int d, Registers<uint32_t, 4>& left) {
      block_.LoadMatrix(keys, of, [&](int t) {
        return (FirstOf(t, back) + RowOfB(t % kWarp)) * Rows::kStride + d + ColOfB(t % kWarp);
      });
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        block_.Mma(T{}, sums, 2 * back + half, left, keys, half);
      }
    };
    HEED_NO_UNROLL for (int d = 0; d < kDim; d += 16) {
      block_.LoadMatrix(row, rows, [&](int t) {
        return (this->SubOf(t) * kSubTokens + RowOfA(t % kWarp)) * Rows::kStride + d +
               ColOfA(t % kWarp);
      });
      meet(0, this->OwnKeys(), d, row);
      HEED_UNROLL for (int back = 1; back < kSubs; ++back) {
        if (!block_.AnyOfWarp([&](int t) { return this->SubOf(t) >= back; })) break;
        if (back > 1) this->DecayFurther(d, back, row, factors, decayed);
        meet(back, k_, d, back > 1 ? decayed : row);
      }
    }
    this->DecaySums(sums);
  }
  // body(sums, row, token, is_own) for two neighbouring tokens, the first of which is even, up to
  // the warp's 16, which are its own.
  template <class Body>
  HEED_DEVICE void EachTwo(int t, Sums& sums, const Body& body) {
    const int sub = Block::Opaque(this->SubOf(t));  // no place is kept for the next query head
    HEED_UNROLL for (int back = 0; back < kSubs; ++back) {
      if (back > sub) return;
      HEED_UNROLL for (int n = 8 * back; n < 8 * back + 8; n += 2) {
        const int row = sub * kSubTokens + AccumulatorRow(t % kWarp, n % 4);
        const int token = (sub - back) * kSubTokens + n / 4 % 2 * 8 + AccumulatorCol(t % kWarp, 0);
        float two[2] = {sums(t, n), sums(t, n + 1)};
        body(two, row, token, back == 0);
      }
    }
  }

  // A query answers to its own value in another way where it reads first. Behind the queries'
  // barrier; several threads have a row, eight channels each. Of keys that are as they were given.
  HEED_DEVICE void MeetThemselves(int head) {
    constexpr int kEights = kDim / 8, kStep = kBlockThreads / kEights;
    const float* const bonus = p_.bonus.Row(0, head, 0);
    const char* const keys =
        p_.k.data + this->batch_ * p_.k.strides[0] + this->kv_head_ * p_.k.strides[1];
    HEED_NO_UNROLL for (int first = 0; first < kChunkTokens; first += kStep) {
      Registers<float, 1> sum;
      block_.Each([&](int t) {
        sum(t, 0) = 0;
        const int row = first + t / kEights, token = this->TokenOf(row), c = t % kEights * 8;
        if (token >= this->length_) return;
        const char* const key = keys + token * p_.k.strides[2] + c * static_cast<int>(sizeof(T));
        uint32_t pairs[4];
        float x[8], query[8];
        if (c >= p_.features) return;
        if (p_.k.vectors) {
          Block::LoadWords(key, pairs);
          UnpackEight<Block, T>(pairs, x);
        } else {
          HEED_UNROLL for (int n = 0; n < 8; ++n) {
            const bool exists = c + n < p_.features;
            x[n] = exists ? Block::Unpack(T{}, reinterpret_cast<const T*>(key)[n].bits) : 0.0f;
          }
        }
        q_.LoadEight(t, row * Rows::kStride + c, pairs);
        UnpackEight<Block, T>(pairs, query);
        HEED_UNROLL for (int n = 0; n < 8; ++n) {
          if (c + n < p_.features) sum(t, 0) += query[n] * bonus[c + n] * x[n];
        }
      });
      block_.template GroupSum<kEights>(sum);
      block_.Each([&](int t) {
        if (t % kEights == 0) own_weights_.Store(t, first + t / kEights, sum(t, 0));
      });
    }
    block_.Sync();
  }

  // Without delta, values are written as they are, so that weights have the beta of the key.
  HEED_DEVICE void StoreWeights(int g, Sums& sums) {
    const bool has_bonus = !kDelta && p_.bonus.data != nullptr;
    char* const to = this->chunk_at_ + p_.place.weights + g * p_.place.head;
    block_.Each([&](int t) {
      EachTwo(t, sums, [&](float(&two)[2], int row, int token, bool is_own) {
        if (is_own) LoadOwnPairs(t, row, token, two);
        float betas[2];
        if constexpr (!kDelta) {
          betas_.LoadTwo(t, token, betas);
          HEED_UNROLL for (int x = 0; x < 2; ++x) two[x] *= betas[x];
        }
        if (is_own) {
          HEED_UNROLL for (int x = 0; x < 2; ++x) {
            if (token + x > row) two[x] = 0;
            if (has_bonus && token + x == row) two[x] = own_weights_.Load(t, row);
          }
        }
        StoreGlobalPair(to + (row * kChunkTokens + token) * static_cast<int>(sizeof(T)),
                        Block::Pack(T{}, two[0], two[1]));
      });
    });
  }
  // Of tokens that decay too much, what they gave by halves.
  HEED_DEVICE void LoadOwnPairs(int t, int row, int token, float (&two)[2]) {
    HEED_UNROLL for (int x = 0; x < 2; ++x) {
      if (token + x > row || !this->IsByHalves(t, token + x)) continue;
      two[x] = pairs_.Load(t, Base::PairAt(row, token + x));
    }
  }

  // The solution of the system. Its rows of keys are to the left, times the beta of the row; with
  // erase_key they were among the last queries.
  HEED_DEVICE void Solve() {
    if (!p_.erases_apart()) {
      Sums sums;
      MeetKeys(this->LeftRows(), sums);
      StoreSystem(sums);
    }
    block_.Sync();  // weights are stored
    SolveChunk(block_, pairs_);
    StoreSolution();
  }
  HEED_DEVICE void StoreSystem(Sums& sums) {
    const bool apart = p_.erases_apart();
    block_.Each([&](int t) {
      EachTwo(t, sums, [&](float(&two)[2], int row, int token, bool is_own) {
        if (is_own && apart) LoadOwnPairs(t, row, token, two);
        const float beta = this->Beta(t, row);
        HEED_UNROLL for (int x = 0; x < 2; ++x) {
          // Else DecayKeys() has stored it.
          if (is_own && (token + x >= row || (!apart && this->IsByHalves(t, token + x)))) continue;
          if (apart) two[x] = this->IsEraser(row) ? -two[x] : 0.0f;
          pairs_.Store(t, Base::PairAt(token + x, row), two[x] * beta);
        }
      });
    });
  }
  // Numbers up to the diagonal, eight neighbours at a time, times the beta of the column, and zeros
  // above it.
  HEED_DEVICE void StoreSolution() {
    constexpr int kEights = kChunkTokens / 8, kStep = kBlockThreads / kEights;
    char* const to = this->chunk_at_ + p_.place.solution;
    block_.Each([&](int t) {
      const int first = t % kEights * 8;
      float betas[8];
      betas_.LoadFour(t, first, *reinterpret_cast<float(*)[4]>(betas));
      betas_.LoadFour(t, first + 4, *reinterpret_cast<float(*)[4]>(betas + 4));
      HEED_UNROLL for (int r = 0; r < kChunkTokens; r += kStep) {
        const int row = r + t / kEights, at = row * kSystemStride + first;
        float x[8];
        uint32_t pairs[4];
        pairs_.LoadFour(t, at, *reinterpret_cast<float(*)[4]>(x));
        pairs_.LoadFour(t, at + 4, *reinterpret_cast<float(*)[4]>(x + 4));
        HEED_UNROLL for (int n = 0; n < 8; ++n) x[n] = first + n <= row ? x[n] * betas[n] : 0.0f;
        PackEight<Block, T>(x, pairs);
        StoreGlobalEight(to + 16 * (row * kEights + t % kEights), pairs);
      }
    });
  }

  typename Base::Floats own_weights_;  // of each query's own value, with a bonus
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHUNK_TOKENS_H_
