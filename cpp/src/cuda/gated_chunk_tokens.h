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
  // Of a warp's 16 tokens with others: sums(8 back + 4 m + e) is row AccumulatorRow(lane, e), and
  // token 8 m + AccumulatorCol(lane, e) of the 16 that lie `back` times 16 before.
  static constexpr int kSums = kChunkTokens / 2;
  using Sums = Registers<float, kSums>;

 public:
  static constexpr int kSharedBytes =
      Base::kRowBytes + kChunkTokens * kPairStride * static_cast<int>(sizeof(float));
  // Blocks that share a multiprocessor of Hopper.
  static constexpr int kResident = kDim == 64 ? 4 : 2;

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
    block_.Sync();  // weights are stored, and gates of no more use
    SolveChunk(block_, pairs_, this->gates_);
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
    Sums of_queries, of_keys;
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kSums; ++n) of_queries(t, n) = of_keys(t, n) = 0;
    });
    MeetSubs(of_queries, of_keys, meets_keys);
    if (this->HasDecay() && !p_.decays_channels) DecayPairs(of_queries, of_keys);
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
  // The first token of the 16 that lie `back` times 16 before the warp's; of warps that have none
  // there, of some others, whose products nobody reads.
  HEED_DEVICE static int FirstOf(int t, int back) {
    const int own = t / kWarp;
    return (own < back ? 0 : own - back) * kSubTokens;
  }

  // Each warp has the rows of its 16 tokens, which meet themselves, then the 16 before them, and so
  // on. Rows are decayed from the beginning of their 16, and further by those between; keys to the
  // end of theirs, but those of the same 16 to their beginning.
  HEED_DEVICE void MeetSubs(Sums& of_queries, Sums& of_keys, bool meets_keys) {
    Registers<uint32_t, 4> q, k, keys;
    Registers<float, 8> wide_q, wide_k;  // q and k before they are rounded
    const auto meet = [&](int back) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        block_.Mma(T{}, of_queries, 2 * back + half, q, keys, half);
        if (meets_keys) block_.Mma(T{}, of_keys, 2 * back + half, k, keys, half);
      }
    };
    HEED_NO_UNROLL for (int d = 0; d < kDim; d += 16) {
      const auto left = [d](int t) {
        return (t / kWarp * kWarpRows + RowOfA(t % kWarp)) * Rows::kStride + d + ColOfA(t % kWarp);
      };
      block_.LoadMatrix(q, q_, left);
      block_.LoadMatrix(k, k_, left);
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < 4; ++n) keys(t, SwappedPlace(n)) = k(t, n);
        if (p_.decays_channels) DecayOwn(t, d, q, k, keys, wide_q, wide_k);
      });
      meet(0);
      HEED_UNROLL for (int back = 1; back < kSubs; ++back) {
        if (!block_.AnyOfWarp([back](int t) { return t / kWarp >= back; })) break;
        block_.LoadMatrix(keys, k_, [d, back](int t) {
          return (FirstOf(t, back) + RowOfB(t % kWarp)) * Rows::kStride + d + ColOfB(t % kWarp);
        });
        if (p_.decays_channels) {
          block_.Each([&](int t) {
            if (back > 1) DecayFurther(t, d, back - 1, q, k, wide_q, wide_k);
            DecayKeys(t, d, back, keys);
          });
        }
        meet(back);
      }
    }
  }
  // A 16 x 16 block of keys is operand A of their own product and B of that with others: the same
  // numbers in each thread, the middle two registers in turn.
  HEED_DEVICE static constexpr int SwappedPlace(int n) { return n % 2 * 2 + n / 2; }
  HEED_DEVICE static float Half(uint32_t pair, int half) {
    return Block::Unpack(T{}, static_cast<uint16_t>(half == 0 ? pair : pair >> 16));
  }
  HEED_DEVICE void DecayOwn(int t, int d, Registers<uint32_t, 4>& q, Registers<uint32_t, 4>& k,
                            Registers<uint32_t, 4>& keys, Registers<float, 8>& wide_q,
                            Registers<float, 8>& wide_k) {
    HEED_UNROLL for (int n = 0; n < 4; ++n) {
      const int token = Row(t, n % 2), c = d + n / 2 * 8 + t % 4 * 2;
      float own[2], read[2], key[2];
      this->LoadTwoGates(t, token, c, own);
      this->LoadTwoReadGates(t, token, c, own, read);
      HEED_UNROLL for (int x = 0; x < 2; ++x) {
        const float factor = Exp(read[x]);
        key[x] = Half(k(t, n), x);
        wide_q(t, 2 * n + x) = Half(q(t, n), x) * factor;
        wide_k(t, 2 * n + x) = key[x] * factor;
        key[x] *= Exp(-own[x]);
      }
      keys(t, SwappedPlace(n)) = Block::Pack(T{}, key[0], key[1]);
    }
    PackWide(t, q, wide_q);
    PackWide(t, k, wide_k);
  }
  HEED_DEVICE static void PackWide(int t, Registers<uint32_t, 4>& pairs,
                                   Registers<float, 8>& wide) {
    HEED_UNROLL for (int n = 0; n < 4; ++n) {
      pairs(t, n) = Block::Pack(T{}, wide(t, 2 * n), wide(t, 2 * n + 1));
    }
  }
  // Rows by what the 16 tokens `back` times 16 before them decay.
  HEED_DEVICE void DecayFurther(int t, int d, int back, Registers<uint32_t, 4>& q,
                                Registers<uint32_t, 4>& k, Registers<float, 8>& wide_q,
                                Registers<float, 8>& wide_k) {
    const int last = FirstOf(t, back) + kSubTokens - 1;
    HEED_UNROLL for (int n = 0; n < 4; n += 2) {
      float total[2];
      this->LoadTwoGates(t, last, d + n / 2 * 8 + t % 4 * 2, total);
      HEED_UNROLL for (int x = 0; x < 4; ++x) {
        const float factor = Exp(total[x % 2]);
        wide_q(t, 2 * n + x) *= factor;
        wide_k(t, 2 * n + x) *= factor;
      }
    }
    PackWide(t, q, wide_q);
    PackWide(t, k, wide_k);
  }
  // Operand B of other tokens' keys, decayed to the end of their 16.
  HEED_DEVICE void DecayKeys(int t, int d, int back, Registers<uint32_t, 4>& keys) {
    const int first = FirstOf(t, back);
    HEED_UNROLL for (int n = 0; n < 4; ++n) {
      const int token = first + n / 2 * 8 + t % kWarp / 4, c = d + n % 2 * 8 + t % 4 * 2;
      float own[2], total[2];
      this->LoadTwoGates(t, token, c, own);
      this->LoadTwoGates(t, first + kSubTokens - 1, c, total);
      keys(t, n) = Block::Pack(T{}, Half(keys(t, n), 0) * Exp(total[0] - own[0]),
                               Half(keys(t, n), 1) * Exp(total[1] - own[1]));
    }
  }

  // Where all channels decay alike. Those of tokens behind a row, which nobody reads, may overflow.
  HEED_DEVICE void DecayPairs(Sums& of_queries, Sums& of_keys) {
    block_.Each([&](int t) {
      // From the end of the 16 tokens, of the same 16 from their beginning, to where rows read.
      float to_rows[2] = {this->ReadGate(t, Row(t, 0), 0), this->ReadGate(t, Row(t, 1), 0)};
      HEED_UNROLL for (int back = 0; back < kSubs; ++back) {
        const int first = FirstOf(t, back);
        const float total = this->Gate(t, first + kSubTokens - 1, 0);
        if (back > 1) {
          const float between = this->Gate(t, FirstOf(t, back - 1) + kSubTokens - 1, 0);
          HEED_UNROLL for (int half = 0; half < 2; ++half) to_rows[half] += between;
        }
        HEED_UNROLL for (int n = 8 * back; n < 8 * back + 8; ++n) {
          const int token = first + n / 4 % 2 * 8 + AccumulatorCol(t % kWarp, n % 4);
          const float own = this->Gate(t, token, 0);
          const float decay = Exp(to_rows[n % 4 / 2] + (back == 0 ? -own : total - own));
          of_queries(t, n) *= decay;
          of_keys(t, n) *= decay;
        }
      }
    });
  }
  HEED_DEVICE void StorePairs(Sums& of_queries, Sums& of_keys) {
    block_.Each([&](int t) {
      HEED_UNROLL for (int back = 0; back < kSubs; ++back) {
        if (back > t / kWarp) return;
        HEED_UNROLL for (int n = 8 * back; n < 8 * back + 8; ++n) {
          const int row = Row(t, n % 4 / 2);
          const int token = FirstOf(t, back) + n / 4 % 2 * 8 + AccumulatorCol(t % kWarp, n % 4);
          if (back > 0 || token <= row) StorePair(t, row, token, of_queries(t, n), of_keys(t, n));
        }
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
    StoreMatrix(to, pairs_, [&](int t, int row, int first, float(&x)[8]) {
      if (p_.delta) return;
      float betas[8];
      this->LoadBetas(t, first, betas);
      HEED_UNROLL for (int n = 0; n < 8; ++n) {
        if (!(has_bonus && first + n == row)) x[n] *= betas[n];
      }
    });
  }
  HEED_DEVICE void StoreSolution() {
    StoreMatrix(this->chunk_at_ + p_.place.solution, this->gates_,
                [&](int t, int /*row*/, int first, float(&x)[8]) {
                  float betas[8];
                  this->LoadBetas(t, first, betas);
                  HEED_UNROLL for (int n = 0; n < 8; ++n) x[n] *= betas[n];
                });
  }
  // Numbers [tokens, kPairStride] up to the diagonal, eight neighbours at a time as scale(t, row,
  // first, eight) leaves them, and zeros above it.
  template <class Scale>
  HEED_DEVICE void StoreMatrix(char* to, const Floats& numbers, const Scale& scale) {
    constexpr int kEights = kChunkTokens / 8, kStep = kBlockThreads / kEights;
    block_.Each([&](int t) {
      const int first = t % kEights * 8;
      HEED_NO_UNROLL for (int row = t / kEights; row < kChunkTokens; row += kStep) {
        float x[8];
        numbers.LoadFour(t, row * kPairStride + first, *reinterpret_cast<float(*)[4]>(x));
        numbers.LoadFour(t, row * kPairStride + first + 4, *reinterpret_cast<float(*)[4]>(x + 4));
        scale(t, row, first, x);
        HEED_UNROLL for (int n = 0; n < 8; ++n) x[n] = first + n <= row ? x[n] : 0.0f;
        Base::StoreRounded(to + 16 * (row * kEights + t % kEights), x);
      }
    });
  }

  // [tokens, kPairStride]: up to the diagonal weights of each row, above it the system
  // (SolveChunk).
  Floats pairs_;
  bool solves_;  // does this query head, the last one, leave the system too?
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHUNK_TOKENS_H_
