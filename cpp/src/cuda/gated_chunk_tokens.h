// The tokens of a chunk among each other, for recurrent attention whose channels decay each at a
// rate of its own, or which erases by the delta rule or by keys of its own: what does not depend on
// the state, so that all chunks of a sequence are prepared at once (PreparedChunk).
//
// Decays of a channel between two tokens are differences of sums of logarithms, none above 0. As a
// product of matrices wants a factor of either token, sums begin anew every kSubTokens tokens: a
// query's factor counts from the beginning of its 16 tokens, a key's up to there. Only among these
// 16 a key's factor is above 1, e^kStrongDecay at most. Rows whose own factor is smaller than the
// inverse of that meet the 16 number by number.
//
// Yang et al. 2023, arXiv:2312.06635, section 4.3 (chunks in two levels). The delta rule:
// u = v - S^T k of every token, all of a chunk at once, is a triangular system (Yang et al. 2024,
// arXiv:2406.06484, section 3.2; with decays arXiv:2412.06464, by channels arXiv:2510.26692).
#ifndef HEED_SRC_CUDA_GATED_CHUNK_TOKENS_H_
#define HEED_SRC_CUDA_GATED_CHUNK_TOKENS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/chunk_solution.h"
#include "src/cuda/gated_chunk_params.h"
#include "src/cuda/gated_chunk_rows.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"
#include "src/cuda/rows_in_memory.h"

namespace heed::cuda {

// Up to kDim features.
template <class Block, int kDim>
class GatedChunkTokens : GatedChunkRows<Block, kDim> {
  using Base = GatedChunkRows<Block, kDim>;
  using T = BFloat16;
  using typename Base::Floats;
  using typename Base::Rows;
  using typename Base::Shared;
  template <class Number, int N>
  using Registers = typename Block::template Registers<Number, N>;
  using Pairs = Registers<float, kChunkTokens / 2>;

 public:
  static constexpr int kSharedBytes =
      Base::kRowBytes + kChunkTokens * kPairStride * static_cast<int>(sizeof(float));
  // Blocks that share a multiprocessor of Hopper.
  static constexpr int kResident = kDim == 64 ? 3 : 2;

  HEED_DEVICE GatedChunkTokens(Block& block, const GatedChunkParams& params)
      : Base(block, params), pairs_(block.template Allocate<float>(kChunkTokens * kPairStride)) {}

  // Chunk index % chunks of KV head index / chunks.
  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index);
    this->CopyKeys();
    this->CopyQueries(0);
    block_.CommitCopies();
    this->LoadGates();
    if (p_.erases_apart()) this->LoadErasers();
    block_.template WaitCopies<0>();
    block_.Sync();
    this->MapRows(k_, true);
    HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) {
      if (g > 0) NextQueries(g);
      this->MapRows(q_, false);
      Meet(g);
      this->StoreReads(g);
      StoreWeights(g);
    }
    this->StoreWrites();
    if (!p_.delta) return;
    if (!p_.erases_apart()) this->StoreErasers();
    block_.Sync();  // weights are stored
    SolveChunk(block_, pairs_);
    block_.Sync();
    StoreSolution();
  }

 private:
  using Base::block_;
  using Base::k_;
  using Base::p_;
  using Base::q_;

  HEED_DEVICE void NextQueries(int g) {
    block_.Sync();  // those of the last head are read
    this->CopyQueries(g);
    block_.CommitCopies();
    block_.template WaitCopies<0>();
    block_.Sync();
  }

  // Pairs become products of queries and keys, decayed from the key to the query, up to the
  // diagonal; with the last query head those of keys among each other, times the beta of the later
  // one, above it. With erase_key these are products of the queries of tokens that erase. On their
  // own diagonal, which nobody reads, decays may overflow. Ends with a barrier.
  HEED_DEVICE void Meet(int g) {
    solves_ = p_.delta && g + 1 == p_.group;
    const bool meets_keys = solves_ && !p_.erases_apart();
    Pairs of_queries, of_keys;
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) of_queries(t, n) = of_keys(t, n) = 0;
    });
    if (p_.decays_channels) {
      MeetChannels(of_queries, of_keys, meets_keys);
    } else {
      Rows::ScoreTile(block_, q_, k_, of_queries);
      if (meets_keys) Rows::ScoreTile(block_, k_, k_, of_keys);
    }
    StorePairs(of_queries, of_keys);
    block_.Sync();
    if (p_.decays_channels) {
      MeetStrongSubs();
      block_.Sync();
    }
    if (p_.bonus.data != nullptr) MeetThemselves(this->kv_head_ * p_.group + g);
  }
  HEED_DEVICE static int Row(int t, int half) {
    return t / kWarp * kWarpRows + t % kWarp / 4 + 8 * half;
  }
  HEED_DEVICE void StorePairs(Pairs& of_queries, Pairs& of_keys) {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) {
        const int row = Row(t, n % 4 / 2), token = n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
        if (token > row) continue;
        const float decay = p_.decays_channels ? 1.0f : Exp(this->Between(t, token, row));
        StorePair(t, row, token, of_queries(t, n) * decay, of_keys(t, n) * decay);
      }
    });
  }
  HEED_DEVICE void StorePair(int t, int row, int token, float of_query, float of_key) {
    pairs_.Store(t, row * kPairStride + token, of_query);
    if (!solves_ || token == row) return;
    float answer = of_key;
    if (p_.erases_apart()) answer = this->IsEraser(row) ? -of_query : 0.0f;
    pairs_.Store(t, token * kPairStride + row, answer * this->Beta(t, row));
  }

  // Each warp has the rows of its 16 tokens. Those behind them are multiplied along, and not used.
  HEED_DEVICE void MeetChannels(Pairs& of_queries, Pairs& of_keys, bool meets_keys) {
    Registers<uint32_t, 4> q, k, b;
    HEED_NO_UNROLL for (int d = 0; d < kDim; d += 16) {
      const auto left = [d](int t) {
        return (t / kWarp * kWarpRows + RowOfA(t % kWarp)) * Rows::kStride + d + ColOfA(t % kWarp);
      };
      block_.LoadMatrix(q, q_, left);
      block_.LoadMatrix(k, k_, left);
      block_.Each([&](int t) { DecayLeft(t, d, q, k); });
      HEED_UNROLL for (int sub = 0; sub < kSubs; ++sub) {
        block_.LoadMatrix(b, k_, [d, sub](int t) {
          return (sub * kSubTokens + RowOfB(t % kWarp)) * Rows::kStride + d + ColOfB(t % kWarp);
        });
        block_.Each([&](int t) { DecayRight(t, d, sub, b); });
        HEED_UNROLL for (int half = 0; half < 2; ++half) {
          block_.Mma(T{}, of_queries, 2 * sub + half, q, b, half);
          if (meets_keys) block_.Mma(T{}, of_keys, 2 * sub + half, k, b, half);
        }
      }
    }
  }
  // Operands A, decayed from the beginning of their 16 tokens.
  HEED_DEVICE void DecayLeft(int t, int d, Registers<uint32_t, 4>& q, Registers<uint32_t, 4>& k) {
    HEED_UNROLL for (int n = 0; n < 4; ++n) {
      const int token = Row(t, n % 2), c = d + n / 2 * 8 + t % 4 * 2;
      const float low = Exp(this->ReadGate(t, token, c));
      const float high = Exp(this->ReadGate(t, token, c + 1));
      q(t, n) = Scaled(q(t, n), low, high);
      k(t, n) = Scaled(k(t, n), low, high);
    }
  }
  // Operand B of keys `sub` * 16 on, decayed to the beginning of the warp's 16 tokens.
  HEED_DEVICE void DecayRight(int t, int d, int sub, Registers<uint32_t, 4>& b) {
    const int own = t / kWarp;
    if (sub > own) return;
    HEED_UNROLL for (int n = 0; n < 4; ++n) {
      const int token = sub * kSubTokens + n / 2 * 8 + t % kWarp / 4, c = d + n % 2 * 8 + t % 4 * 2;
      b(t, n) = Scaled(b(t, n), Exp(this->ToSub(t, token, own, c)),
                       Exp(this->ToSub(t, token, own, c + 1)));
    }
  }
  HEED_DEVICE static uint32_t Scaled(uint32_t pair, float low, float high) {
    return Block::Pack(T{}, Block::Unpack(T{}, static_cast<uint16_t>(pair)) * low,
                       Block::Unpack(T{}, static_cast<uint16_t>(pair >> 16)) * high);
  }

  // Tokens of the same 16 where a row's own factor is below e^-kStrongDecay: those of its keys may
  // then be too large. Other rows keep what they have.
  HEED_DEVICE void MeetStrongSubs() {
    const bool is_strong = block_.AnyOfWarp([&](int t) {
      bool strong = false;
      HEED_UNROLL for (int c = t % kWarp; c < kDim; c += kWarp) {
        strong = strong || !(this->Total(t, t / kWarp, c) >= -kStrongDecay);
      }
      return strong;
    });
    if (!is_strong) return;
    HEED_NO_UNROLL for (int half = 0; half < 2; ++half) MeetStrongRows(half);
  }
  // Number by number: a quad has a row, each of its threads every fourth channel.
  HEED_DEVICE void MeetStrongRows(int half) {
    constexpr int kOwn = kDim / 4;
    Registers<float, kOwn> query, key, gate;
    Registers<float, 1> strongest;
    block_.Each([&](int t) {
      strongest(t, 0) = 0;
      HEED_UNROLL for (int n = 0; n < kOwn; ++n) {
        const int row = Row(t, half), c = t % 4 + 4 * n;
        query(t, n) = Base::NumberAt(q_, t, row * Rows::kStride + c);
        key(t, n) = Base::NumberAt(k_, t, row * Rows::kStride + c);
        gate(t, n) = this->ReadGate(t, row, c);
        strongest(t, 0) = fmaxf(strongest(t, 0), -gate(t, n));
      }
    });
    block_.template GroupMax<4>(strongest);
    HEED_NO_UNROLL for (int s = 0; s < 8 * (half + 1); ++s) {
      Registers<float, 2> sums;
      block_.Each([&](int t) {
        const int other = t / kWarp * kSubTokens + s;
        sums(t, 0) = sums(t, 1) = 0;
        HEED_UNROLL for (int n = 0; n < kOwn; ++n) {
          const int c = t % 4 + 4 * n;
          const float x = Base::NumberAt(k_, t, other * Rows::kStride + c) *
                          Exp(gate(t, n) - this->Gate(t, other, c));
          sums(t, 0) += query(t, n) * x;
          sums(t, 1) += key(t, n) * x;
        }
      });
      block_.template GroupSum<4>(sums);
      block_.Each([&](int t) {
        const int row = Row(t, half), other = t / kWarp * kSubTokens + s;
        if (t % 4 != 0 || other > row || strongest(t, 0) <= kStrongDecay) return;
        StorePair(t, row, other, sums(t, 0), sums(t, 1));
      });
    }
  }
  // What a query answers to its own value where it reads first, in place of the diagonal.
  HEED_DEVICE void MeetThemselves(int head) {
    Registers<float, 1> sum;
    block_.Each([&](int t) {
      sum(t, 0) = 0;
      if (this->TokenOf(t / 2) >= this->length_) return;
      HEED_NO_UNROLL for (int c = t % 2; c < p_.features; c += 2) {
        const int at = t / 2 * Rows::kStride + c;
        sum(t, 0) +=
            Base::NumberAt(q_, t, at) * p_.bonus.Row(0, head, 0)[c] * Base::NumberAt(k_, t, at);
      }
    });
    block_.template GroupSum<2>(sum);
    block_.Each([&](int t) {
      if (t % 2 == 0) pairs_.Store(t, t / 2 * (kPairStride + 1), sum(t, 0));
    });
    block_.Sync();
  }

  // Without delta, values are written as they are, so that weights have the beta of the key.
  HEED_DEVICE void StoreWeights(int g) {
    const bool has_bonus = p_.bonus.data != nullptr;
    char* to = this->chunk_at_ + p_.place.weights + g * p_.place.head;
    StoreMatrix(to, [&](int t, int row, int token) {
      const bool is_whole = p_.delta || (has_bonus && token == row);
      return is_whole ? 1.0f : this->Beta(t, token);
    });
  }
  HEED_DEVICE void StoreSolution() {
    StoreMatrix(this->chunk_at_ + p_.place.solution,
                [&](int t, int /*row*/, int token) { return this->Beta(t, token); });
  }
  // Pairs up to the diagonal times factor(t, row, token), and zeros above it; eight neighbours at a
  // time.
  template <class Factor>
  HEED_DEVICE void StoreMatrix(char* to, const Factor& factor) {
    constexpr int kEights = kChunkTokens / 8;
    block_.Each([&](int t) {
      HEED_NO_UNROLL for (int n = t; n < kChunkTokens * kEights; n += kBlockThreads) {
        const int row = n / kEights, first = n % kEights * 8;
        float x[8];
        pairs_.LoadFour(t, row * kPairStride + first, *reinterpret_cast<float(*)[4]>(x));
        pairs_.LoadFour(t, row * kPairStride + first + 4, *reinterpret_cast<float(*)[4]>(x + 4));
        HEED_UNROLL for (int m = 0; m < 8; ++m) {
          x[m] = first + m <= row ? x[m] * factor(t, row, first + m) : 0.0f;
        }
        Base::StoreEight(to + 16 * n, x);
      }
    });
  }

  // [tokens, kPairStride]. Up to the diagonal weights of each row, then the solution of the system
  // (SolveChunk) that lies above it.
  Floats pairs_;
  bool solves_;  // does this query head, the last one, leave the system too?
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHUNK_TOKENS_H_
