// Recurrent attention in chunks of tokens, on tensor cores. Sequences are cut into spans of whole
// chunks: ChunkSums adds up each span by itself, ScanSpans turns what spans add into the states
// before them, and ChunkReads answers the queries of each span, chunk after chunk, from its state
// and from the tokens of their own chunk.
#ifndef HEED_SRC_CUDA_CHUNK_KERNELS_H_
#define HEED_SRC_CUDA_CHUNK_KERNELS_H_

#include <cstdint>
#include <limits>

#include "src/cuda/chunk_state.h"

namespace heed::cuda {

template <class Block, class T, int kDim>
class ChunkSums : ChunkState<Block, T, kDim> {
  using Base = ChunkState<Block, T, kDim>;

 public:
  static constexpr int kSharedBytes = Base::kStateBytes;
  static constexpr int kResident = kResidentSums<kDim>;  // blocks that share a multiprocessor

  HEED_DEVICE ChunkSums(Block& block, const ChunkParams& params) : Base(block, params) {}

  // Of every span but the last.
  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index, p_.spans - 1);
    this->ClearState();
    this->PrefetchTokens(this->FirstChunk());
    float factor = 1;
    HEED_NO_UNROLL for (int chunk = this->FirstChunk(); chunk < this->end_chunk_; ++chunk) {
      this->AwaitTokens();
      block_.Sync();  // they are there, the last chunk is read
      this->TakeTokens(chunk);
      if (this->HasMap()) {
        this->MapRows(this->k_);
        block_.Sync();
      }
      this->WriteChunk();
      factor *= this->chunk_decay_;
    }
    block_.Sync();  // sums of keys are there
    this->StoreState(p_.StateOf(this->unit_, this->span_), p_.cols);
    block_.Each([&](int t) {
      if (t == 0 && this->slice_ == 0) p_.factors[this->unit_ * p_.spans + this->span_] = factor;
    });
  }

 private:
  using Base::block_;
  using Base::p_;
};

// Numbers [index % blocks * kBlockThreads, ...) of the state of KV head index / blocks.
template <class Block>
HEED_DEVICE void ScanSpans(Block& block, const ChunkParams& p, int64_t index) {
  const int numbers = p.features * p.cols;
  const int blocks = (numbers + kBlockThreads - 1) / kBlockThreads;
  const int unit = static_cast<int>(index / blocks);
  block.Each([&](int t) {
    const int n = static_cast<int>(index % blocks) * kBlockThreads + t;
    if (n >= numbers) return;
    const bool begins = p.initial_state.data != nullptr;
    const int b = unit / p.num_kv_heads, h = unit % p.num_kv_heads;
    float state = begins ? p.initial_state.Row(b, h, n / p.cols)[n % p.cols] : 0.0f;
    constexpr int kSpans = 4;  // loads of so many are under way together
    HEED_NO_UNROLL for (int first = 0; first < p.spans; first += kSpans) {
      float added[kSpans], factors[kSpans];
      HEED_UNROLL for (int s = 0; s < kSpans; ++s) {
        const bool exists = first + s + 1 < p.spans;
        added[s] = exists ? p.StateOf(unit, first + s)[n] : 0.0f;
        factors[s] = exists ? p.factors[unit * p.spans + first + s] : 0.0f;
      }
      HEED_UNROLL for (int s = 0; s < kSpans; ++s) {
        if (first + s >= p.spans) break;
        p.StateOf(unit, first + s)[n] = state;
        state = state * factors[s] + added[s];
      }
    }
  });
}

template <class Block, class T, int kDim>
class ChunkReads : ChunkState<Block, T, kDim> {
  using Base = ChunkState<Block, T, kDim>;
  using typename Base::Floats;
  using typename Base::Rows;
  using typename Base::Shared;
  using typename Base::Values;
  template <class Number, int N>
  using Registers = typename Block::template Registers<Number, N>;

 public:
  static constexpr int kSharedBytes =
      Base::kStateBytes +
      static_cast<int>(kChunkTokens * (2 * Rows::kStride + Values::kStride) * sizeof(T)) +
      (2 * kChunkTokens + kSliceCols) * static_cast<int>(sizeof(float));
  static constexpr int kResident = kResidentReads<kDim>;

  HEED_DEVICE ChunkReads(Block& block, const ChunkParams& params)
      : Base(block, params),
        q_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        next_q_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        weights_(block.template Allocate<T>(kChunkTokens * Values::kStride)),
        state_factors_(block.template Allocate<float>(kChunkTokens)),
        row_factors_(block.template Allocate<float>(kChunkTokens)),
        first_poison_(block.template Allocate<int>(kSliceCols)) {}

  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index, p_.spans);
    this->PrefetchTokens(this->FirstChunk());
    PrefetchQueries(this->FirstChunk(), 0);
    this->LoadState(p_.StateOf(this->unit_, this->span_));
    HEED_NO_UNROLL for (int chunk = this->FirstChunk(); chunk < this->end_chunk_; ++chunk) {
      HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) VisitHead(chunk, g);
    }
    block_.Sync();  // the last rows are there
    this->Swap(q_, next_q_);
    StoreStaged();
    if (!StoresState()) return;
    this->StoreState(p_.final_state.Row(this->batch_, this->kv_head_, 0),
                     p_.final_state.strides[2]);
  }

 private:
  using Base::block_;
  using Base::p_;
  static constexpr int kOut = kChunkTokens * kWarpRows / kWarp;  // 16 columns of a warp
  static constexpr int kTileOut = 8;                             // of 16 rows
  static constexpr float kLost = std::numeric_limits<float>::quiet_NaN();

  HEED_DEVICE bool StoresState() const {
    return p_.final_state.data != nullptr && this->span_ + 1 == p_.spans;
  }

  // A query head of the group. What it finds is left in the place of its queries, and stored while
  // the next one is under way.
  HEED_DEVICE void VisitHead(int chunk, int g) {
    if (g == 0) {
      this->AwaitTokens();
      AwaitValues();
      this->TakeTokens(chunk);
      if (has_poison_) TakePoisonOut();
    } else {
      block_.template WaitCopies<0>();
      block_.Sync();
    }
    this->Swap(q_, next_q_);
    StoreStaged();
    if (this->HasMap()) {
      if (g == 0) this->MapRows(this->k_);
      this->MapRows(q_);
      block_.Sync();
    }
    WeighTokens();
    block_.Sync();  // weights are there, rows of the last head are stored
    const bool is_last = g + 1 == p_.group;
    PrefetchQueries(is_last ? chunk + 1 : chunk, is_last ? 0 : g + 1);
    ReadState();
    AddValues();
    block_.Sync();  // queries are read
    StageRows(chunk * kChunkTokens, this->kv_head_ * p_.group + g);
    if (!is_last || !(chunk + 1 < this->end_chunk_ || StoresState())) return;
    this->WriteChunk();
    if (has_poison_) LoseState();
  }
  HEED_DEVICE void PrefetchQueries(int chunk, int g) {
    if (chunk < this->end_chunk_) {
      const int first = chunk * kChunkTokens;
      const char* const from = this->RowAt(p_.q, this->kv_head_ * p_.group + g, first);
      CopyChunk<Rows>(block_, next_q_, p_.q, from, p_.len - first);
    }
    block_.CommitCopies();
  }

  // A barrier behind which all tokens are there. Values that are not finite are taken out, as their
  // product with the weight 0 of a row before them would be NaN. Their columns are NaN from their
  // rows to the end of the span. The values are next_v_ still; each thread looks at those that it
  // copied itself.
  HEED_DEVICE void AwaitValues() {
    has_poison_ = block_.Any([&](int t) {
      uint32_t carries = 0;
      HEED_UNROLL for (int n = 0; n < kEights; ++n) {
        uint32_t pairs[4];
        this->next_v_.LoadEight(t, EightAt(t, n), pairs);
        HEED_UNROLL for (int m = 0; m < 4; ++m) carries |= CarriesOfNonFinite<T>(pairs[m]);
      }
      return (carries & kCarries<T>) != 0;
    });
  }
  // Eights of a matrix of 64 columns, as CopyChunk copies them.
  static constexpr int kEights = kChunkTokens * kSliceCols / 8 / kBlockThreads;
  HEED_DEVICE static int RowOfEight(int t, int n) {
    return t / (kSliceCols / 8) + n * kBlockThreads / (kSliceCols / 8);
  }
  HEED_DEVICE static int ColOfEight(int t) { return t % (kSliceCols / 8) * 8; }
  HEED_DEVICE static int EightAt(int t, int n) {
    return RowOfEight(t, n) * Values::kStride + ColOfEight(t);
  }
  HEED_DEVICE float ValueAt(int t, int token, int col) const {
    return Base::NumberAt(this->v_, t, token * Values::kStride + col);
  }
  HEED_DEVICE void TakePoisonOut() {
    block_.Each([&](int t) {
      if (t >= kSliceCols) return;
      int first = kChunkTokens;
      HEED_NO_UNROLL for (int token = kChunkTokens - 1; token >= 0; --token) {
        if (IsFinite(ValueAt(t, token, t))) continue;
        first = token;
        this->v_.Store(t, token * Values::kStride + t, T{});
      }
      first_poison_.Store(t, t, first);
    });
    block_.Sync();
  }
  HEED_DEVICE bool IsLost(int t, int row, int col) const {
    return row >= first_poison_.Load(t, col);
  }
  HEED_DEVICE void LoseState() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < Base::kState; ++n) {
        if (IsLost(t, kChunkTokens - 1, this->StateCol(t, n % 4 / 2))) this->state_(t, n) = kLost;
      }
    });
  }

  // Weights of the tokens of the chunk among each other, and what rows are multiplied by. No
  // barrier.
  HEED_DEVICE void WeighTokens() {
    Registers<float, kChunkTokens / 2> scores;
    Registers<float, 2> row_sums, key_sums, largest;
    block_.Each(
        [&](int t) { HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) scores(t, n) = 0; });
    Rows::ScoreTile(block_, q_, this->k_, scores);
    if (this->HasDecay()) DecayScores(scores);
    if (!this->is_plain_) {
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) {
          scores(t, n) *= this->betas_.Load(t, n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4));
        }
      });
    }
    block_.Each([&](int t) {
      const int behind = Row(t, 0) - t % 4 * 2;  // of the row, the first token of a thread
      HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) {
        if (n / 4 * 8 + n % 2 - n % 4 / 2 * 8 > behind) scores(t, n) = 0;
      }
      row_sums(t, 0) = row_sums(t, 1) = key_sums(t, 0) = key_sums(t, 1) = 0;
      largest(t, 0) = largest(t, 1) = 0;
    });
    if (p_.normalize) {
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) {
          row_sums(t, n % 4 / 2) += scores(t, n);
        }
      });
      block_.template GroupSum<4>(row_sums);
      FindKeySums(key_sums);
    }
    if constexpr (Base::kIsNarrow) {
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) {
          const float size = fabsf(scores(t, n));
          if (IsFinite(size)) largest(t, n % 4 / 2) = fmaxf(largest(t, n % 4 / 2), size);
        }
      });
      block_.template GroupMax<4>(largest);
    }
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const float power = Base::kIsNarrow ? PowerFor(largest(t, half)) : 1.0f;
        if (t % 4 == 0) {
          StoreFactors(t, Row(t, half), row_sums(t, half), key_sums(t, half), power);
        }
        StoreWeights(t, half, scores, 1 / power);
      }
    });
  }
  HEED_DEVICE static int Row(int t, int half) {
    return t / kWarp * kWarpRows + t % kWarp / 4 + 8 * half;
  }
  // Those of tokens behind the row may become anything.
  template <class Scores>
  HEED_DEVICE void DecayScores(Scores& scores) {
    block_.Each([&](int t) {
      float rows[2][2];
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        rows[half][0] = this->decays_.Load(t, 2 * Row(t, half));
        rows[half][1] = this->decays_.Load(t, 2 * Row(t, half) + 1);
      }
      HEED_UNROLL for (int tile = 0; tile < kChunkTokens / 8; ++tile) {
        float of_two[4];
        this->decays_.LoadFour(t, 2 * (8 * tile + t % 4 * 2), of_two);
        HEED_UNROLL for (int e = 0; e < 4; ++e) {
          const float sum = rows[e / 2][0] - of_two[e % 2 * 2];
          scores(t, 4 * tile + e) *= Exp(sum + (rows[e / 2][1] - of_two[e % 2 * 2 + 1]));
        }
      }
    });
  }
  // What queries answer to the sums of keys before the chunk. A quad has two rows.
  HEED_DEVICE void FindKeySums(Registers<float, 2>& key_sums) {
    block_.Each([&](int t) {
      HEED_NO_UNROLL for (int first = t % 4 * 16; first < kDim; first += 64) {
        HEED_UNROLL for (int c = first; c < first + 16; c += 8) {
          float sums[8];
          this->sums_.LoadFour(t, c, *reinterpret_cast<float(*)[4]>(sums));
          this->sums_.LoadFour(t, c + 4, *reinterpret_cast<float(*)[4]>(sums + 4));
          HEED_UNROLL for (int half = 0; half < 2; ++half) {
            uint32_t pairs[4];
            float x[8];
            q_.LoadEight(t, Row(t, half) * Rows::kStride + c, pairs);
            UnpackEight<Block, T>(pairs, x);
            HEED_UNROLL for (int n = 0; n < 8; ++n) key_sums(t, half) += x[n] * sums[n];
          }
        }
      }
    });
    block_.template GroupSum<4>(key_sums);
  }
  // A row of results is divided by `power` until it is stored.
  HEED_DEVICE void StoreFactors(int t, int row, float sum, float key_sum, float power) {
    const float decay = this->HasDecay() ? Exp(this->decays_.Load(t, 2 * row)) : 1.0f;
    float factor = p_.scale;
    if (p_.normalize) {
      const float whole = sum + decay * key_sum;
      factor = whole * p_.scale == 0 ? 0.0f : 1 / whole;
    }
    state_factors_.Store(t, row, decay / power);
    row_factors_.Store(t, row, factor * power);
  }
  template <class Scores>
  HEED_DEVICE void StoreWeights(int t, int half, Scores& scores, float factor) {
    HEED_UNROLL for (int n = 2 * half; n < kChunkTokens / 2; n += 4) {
      const int at = Row(t, half) * Values::kStride + n / 4 * 8 + AccumulatorCol(t % kWarp, 0);
      StorePair<T>(weights_, t, at,
                   Block::Pack(T{}, scores(t, n) * factor, scores(t, n + 1) * factor));
    }
  }

  // What queries answer to the state before the chunk: out(8 m + 4 n + e) is row 16 m +
  // AccumulatorRow(lane, e), column 8 n + AccumulatorCol(lane, e) of the warp.
  HEED_DEVICE void ReadState() {
    Registers<uint32_t, 4> a, b;
    Registers<float, 1> power;
    FindPower(power);
    block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kOut; ++n) out_(t, n) = 0; });
    HEED_UNROLL for (int d = 0; d < kDim; d += 16) {
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < 4; ++n) {
          const int at = d / 2 + n / 2 * 2 + n % 2 * 4;
          const float factor = Base::kIsNarrow ? 1 / power(t, 0) : 1.0f;
          b(t, n) =
              Block::Pack(T{}, this->state_(t, at) * factor, this->state_(t, at + 1) * factor);
        }
      });
      HEED_UNROLL for (int m = 0; m < kChunkTokens; m += 16) {
        block_.LoadMatrix(a, q_, [d, m](int t) {
          return (m + RowOfA(t % kWarp)) * Rows::kStride + d + ColOfA(t % kWarp);
        });
        block_.Mma(T{}, out_, m / 8, a, b, 0);
        block_.Mma(T{}, out_, m / 8 + 1, a, b, 1);
      }
    }
    if (!Base::kIsNarrow && !this->HasDecay()) return;  // factors are 1
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; ++n) {
        out_(t, n) *= power(t, 0) * state_factors_.Load(t, OutRow(t, n));
      }
    });
  }
  HEED_DEVICE static int OutRow(int t, int n) {
    return n / kTileOut * 16 + AccumulatorRow(t % kWarp, n % 4);
  }
  HEED_DEVICE static int OutCol(int t, int n) {
    return t / kWarp * kWarpRows + n % kTileOut / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
  }
  // What the columns of a warp are divided by, where they become float16.
  HEED_DEVICE void FindPower(Registers<float, 1>& power) {
    block_.Each([&](int t) {
      power(t, 0) = 1;
      if constexpr (Base::kIsNarrow) {
        power(t, 0) = 0;
        HEED_UNROLL for (int n = 0; n < Base::kState; ++n) {
          const float size = fabsf(this->state_(t, n));
          if (IsFinite(size)) power(t, 0) = fmaxf(power(t, 0), size);
        }
      }
    });
    if constexpr (Base::kIsNarrow) {
      block_.template GroupMax<kWarp>(power);
      block_.Each([&](int t) { power(t, 0) = PowerFor(power(t, 0)); });
    }
  }

  HEED_DEVICE void AddValues() {
    Registers<uint32_t, 4> a, b;
    HEED_UNROLL for (int token = 0; token < kChunkTokens; token += 16) {
      block_.LoadMatrixTransposed(b, this->v_, [token](int t) {
        return (token + RowOfTransposedB(t % kWarp)) * Values::kStride + t / kWarp * kWarpRows +
               ColOfTransposedB(t % kWarp);
      });
      HEED_UNROLL for (int m = token; m < kChunkTokens; m += 16) {  // rows before see none of them
        block_.LoadMatrix(a, weights_, [m, token](int t) {
          return (m + RowOfA(t % kWarp)) * Values::kStride + token + ColOfA(t % kWarp);
        });
        block_.Mma(T{}, out_, m / 8, a, b, 0);
        block_.Mma(T{}, out_, m / 8 + 1, a, b, 1);
      }
    }
  }

  // Results go to the place of their queries. Of another type they are floats until they are
  // stored, whose upper halves go to the place of weights.
  HEED_DEVICE void StageRows(int first_token, int head) {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; ++n) out_(t, n) *= row_factors_.Load(t, OutRow(t, n));
    });
    if (p_.skip != nullptr) {
      const float skip = p_.skip[head];
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kOut; ++n) {
          out_(t, n) += skip * ValueAt(t, OutRow(t, n), OutCol(t, n));
        }
      });
    }
    if (has_poison_) {
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kOut; ++n) {
          if (IsLost(t, OutRow(t, n), OutCol(t, n))) out_(t, n) = kLost;
        }
      });
    }
    staged_token_ = first_token;
    staged_ = p_.output.data + this->batch_ * p_.output.strides[0] + head * p_.output.strides[1] +
              first_token * p_.output.strides[2];
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; n += 2) {
        const int at = OutRow(t, n) * Values::kStride + OutCol(t, n);
        uint32_t pair = Block::Pack(T{}, out_(t, n), out_(t, n + 1));
        if (!HasOwnType()) {
          const uint32_t low = AsWord(out_(t, n)), high = AsWord(out_(t, n + 1));
          StorePair<T>(weights_, t, at, low >> 16 | (high & 0xffff0000u));
          pair = (low & 0xffff) | high << 16;
        }
        StorePair<T>(q_, t, at, pair);
      }
    });
  }
  HEED_DEVICE bool HasOwnType() const { return p_.output.dtype == p_.q.dtype; }
  // The rows of the last head, in next_q_, to memory.
  HEED_DEVICE void StoreStaged() {
    if (staged_ == nullptr) return;
    const int64_t stride = p_.output.strides[2];
    const int rows = p_.len - staged_token_;
    const int cols = p_.width - this->first_col_;
    char* const to = staged_ + this->first_col_ * static_cast<int>(sizeof(T));
    const bool has_eights = (reinterpret_cast<uintptr_t>(to) | stride | cols * sizeof(T)) % 16 == 0;
    if (!has_eights || !HasOwnType()) return StoreNumbers();
    block_.Each([&](int t) {
      if (ColOfEight(t) >= cols) return;
      HEED_UNROLL for (int n = 0; n < kEights; ++n) {
        const int row = RowOfEight(t, n);
        uint32_t pairs[4];
        next_q_.LoadEight(t, EightAt(t, n), pairs);
        if (row < rows) StoreGlobalEight(to + row * stride + ColOfEight(t) * sizeof(T), pairs);
      }
    });
  }
  // The same one by one. A barrier.
  HEED_DEVICE void StoreNumbers() {
    block_.Each([&](int t) {
      const int col = t % kSliceCols, rows = p_.len - staged_token_;
      if (this->first_col_ + col >= p_.width) return;
      HEED_NO_UNROLL for (int row = t / kSliceCols; row < kChunkTokens && row < rows; row += 2) {
        const int at = row * Values::kStride + col;
        float x = Base::NumberAt(next_q_, t, at);
        if (!HasOwnType()) x = AsFloat(next_q_.Load(t, at).bits | weights_.Load(t, at).bits << 16);
        StoreAs(p_.output.dtype, staged_ + row * p_.output.strides[2], this->first_col_ + col, x);
      }
    });
    block_.Sync();
  }

  Shared q_, next_q_, weights_;
  Floats state_factors_;  // what the answers of the state are multiplied by
  Floats row_factors_;    // and results
  typename Block::template Shared<int> first_poison_;  // token of each column
  Registers<float, kOut> out_;
  char* staged_ = nullptr;  // where the first of the rows belongs that wait in the place of queries
  int staged_token_ = 0;
  bool has_poison_ = false;  // does a value of the chunk hold a number that is not finite?
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHUNK_KERNELS_H_
