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
  static constexpr int kResident = 3;  // blocks that share a multiprocessor

  HEED_DEVICE ChunkSums(Block& block, const ChunkParams& params) : Base(block, params) {}

  // Of every span but the last.
  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index, p_.spans - 1);
    this->ClearState();
    float factor = 1;
    HEED_NO_UNROLL for (int chunk = this->FirstChunk(); chunk < this->end_chunk_; ++chunk) {
      block_.Sync();  // the last chunk is read
      this->CopyKeys(chunk);
      this->CopyValues(chunk);
      block_.CommitCopies();
      this->LoadDecays(chunk);
      block_.template WaitCopies<0>();
      block_.Sync();
      this->MapRows(this->k_);
      this->WriteChunk();
      factor *= this->chunk_decay_;
    }
    float* state = p_.StateOf(this->unit_, this->span_);
    this->StoreState([&](int c) { return state + c * p_.cols; });
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
    HEED_NO_UNROLL for (int span = 0; span < p.spans; ++span) {
      float* const place = p.StateOf(unit, span) + n;
      const float before = state;
      if (span + 1 < p.spans) state = state * p.factors[unit * p.spans + span] + *place;
      *place = before;
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
      static_cast<int>(kChunkTokens * (Rows::kStride + Values::kStride) * sizeof(T)) +
      (3 * kChunkTokens + kSliceCols) * static_cast<int>(sizeof(float));
  static constexpr int kResident = kResidentReads<kDim>;

  HEED_DEVICE ChunkReads(Block& block, const ChunkParams& params)
      : Base(block, params),
        q_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        weights_(block.template Allocate<T>(kChunkTokens * Values::kStride)),
        key_sums_(block.template Allocate<float>(kChunkTokens)),
        state_factors_(block.template Allocate<float>(kChunkTokens)),
        row_factors_(block.template Allocate<float>(kChunkTokens)),
        first_poison_(block.template Allocate<int>(kSliceCols)) {}

  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index, p_.spans);
    this->LoadState(p_.StateOf(this->unit_, this->span_));
    HEED_NO_UNROLL for (int chunk = this->FirstChunk(); chunk < this->end_chunk_; ++chunk) {
      block_.Sync();  // the last chunk is read
      VisitChunk(chunk);
    }
    if (!StoresState()) return;
    this->StoreState([&](int c) { return p_.final_state.Row(this->batch_, this->kv_head_, c); });
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

  HEED_DEVICE void VisitChunk(int chunk) {
    this->CopyKeys(chunk);
    CopyQueries(chunk, 0);
    block_.CommitCopies();
    this->CopyValues(chunk);
    block_.CommitCopies();
    this->LoadDecays(chunk);
    block_.template WaitCopies<1>();
    block_.Sync();  // keys and queries are there
    this->MapRows(this->k_);
    HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) {
      if (g > 0) NextQueries(chunk, g);
      this->MapRows(q_);
      ReadHead(chunk, g);
    }
    if (chunk + 1 < this->end_chunk_ || StoresState()) {
      this->WriteChunk();
      if (has_poison_) LoseState();
    }
  }
  HEED_DEVICE void CopyQueries(int chunk, int g) {
    CopyRows<Rows, kChunkTokens>(block_, q_, p_.q, [&](int r) -> const char* {
      const int token = chunk * kChunkTokens + r;
      if (token >= p_.len) return nullptr;
      return p_.q.data + this->batch_ * p_.q.strides[0] +
             (this->kv_head_ * p_.group + g) * p_.q.strides[1] + token * p_.q.strides[2];
    });
  }
  HEED_DEVICE void NextQueries(int chunk, int g) {
    block_.Sync();  // those of the last head are read
    CopyQueries(chunk, g);
    block_.CommitCopies();
    block_.template WaitCopies<0>();
    block_.Sync();
  }

  HEED_DEVICE void ReadHead(int chunk, int g) {
    if (p_.normalize) FindKeySums();
    WeighTokens();
    if (g == 0) {
      WaitForValues();
    } else {
      block_.Sync();  // weights are there
    }
    ReadState();
    AddValues();
    StoreRows(chunk, this->kv_head_ * p_.group + g);
  }

  // Values (and weights) are there. Those that are not finite are taken out, as their product with
  // the weight 0 of a row before them would be NaN. Their columns are NaN from their rows to the
  // end of the span.
  HEED_DEVICE void WaitForValues() {
    block_.template WaitCopies<0>();
    block_.Sync();
    has_poison_ = block_.Any([&](int t) {
      bool finite = true;
      HEED_NO_UNROLL for (int n = t; n < kChunkTokens * kSliceCols; n += kBlockThreads) {
        finite = finite && IsFinite(ValueAt(t, n / kSliceCols, n % kSliceCols));
      }
      return !finite;
    });
    if (has_poison_) TakePoisonOut();
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
    return has_poison_ && row >= first_poison_.Load(t, col);
  }
  HEED_DEVICE void LoseState() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < Base::kState; ++n) {
        if (IsLost(t, kChunkTokens - 1, this->StateCol(t, n % 4 / 2))) this->state_(t, n) = kLost;
      }
    });
  }

  // What queries answer to the sums of keys before the chunk.
  HEED_DEVICE void FindKeySums() {
    Registers<float, 1> sum;
    block_.Each([&](int t) {
      constexpr int kHalf = kDim / 2;
      sum(t, 0) = 0;
      HEED_NO_UNROLL for (int c = t % 2 * kHalf; c < (t % 2 + 1) * kHalf; ++c) {
        sum(t, 0) += Base::NumberAt(q_, t, t / 2 * Rows::kStride + c) * this->sums_.Load(t, c);
      }
    });
    block_.template GroupSum<2>(sum);
    block_.Each([&](int t) {
      if (t % 2 == 0) key_sums_.Store(t, t / 2, sum(t, 0));
    });
    block_.Sync();
  }

  // Weights of the tokens of the chunk among each other, and what rows are multiplied by.
  HEED_DEVICE void WeighTokens() {
    Registers<float, kChunkTokens / 2> scores;
    Registers<float, 2> row_sums, largest;
    block_.Each(
        [&](int t) { HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) scores(t, n) = 0; });
    Rows::ScoreTile(block_, q_, this->k_, scores);
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) row_sums(t, half) = largest(t, half) = 0;
      HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) {
        const int row = Row(t, n % 4 / 2), token = n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
        float weight = 0;
        if (token <= row) {
          weight = scores(t, n) * (this->DecayBetween(t, token, row) * this->betas_.Load(t, token));
        }
        scores(t, n) = weight;
        row_sums(t, n % 4 / 2) += weight;
        if (IsFinite(weight)) largest(t, n % 4 / 2) = fmaxf(largest(t, n % 4 / 2), fabsf(weight));
      }
    });
    if (p_.normalize) block_.template GroupSum<4>(row_sums);
    if constexpr (Base::kIsNarrow) block_.template GroupMax<4>(largest);
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const float power = Base::kIsNarrow ? PowerFor(largest(t, half)) : 1.0f;
        if (t % 4 == 0) StoreFactors(t, Row(t, half), row_sums(t, half), power);
        StoreWeights(t, half, scores, 1 / power);
      }
    });
  }
  HEED_DEVICE static int Row(int t, int half) {
    return t / kWarp * kWarpRows + t % kWarp / 4 + 8 * half;
  }
  // A row of results is divided by `power` until it is stored.
  HEED_DEVICE void StoreFactors(int t, int row, float sum, float power) {
    const float decay = this->DecayUpTo(t, row);
    float factor = p_.scale;
    if (p_.normalize) {
      const float whole = sum + decay * key_sums_.Load(t, row);
      factor = whole * p_.scale == 0 ? 0.0f : 1 / whole;
    }
    state_factors_.Store(t, row, decay / power);
    row_factors_.Store(t, row, factor * power);
  }
  template <class Scores>
  HEED_DEVICE void StoreWeights(int t, int half, Scores& scores, float factor) {
    HEED_UNROLL for (int n = 2 * half; n < kChunkTokens / 2; n += 4) {
      const int at = Row(t, half) * Values::kStride + n / 4 * 8 + AccumulatorCol(t % kWarp, 0);
      const uint32_t pair = Block::Pack(T{}, scores(t, n) * factor, scores(t, n + 1) * factor);
      weights_.Store(t, at, T{static_cast<uint16_t>(pair)});
      weights_.Store(t, at + 1, T{static_cast<uint16_t>(pair >> 16)});
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

  HEED_DEVICE void StoreRows(int chunk, int head) {
    const float skip = p_.skip == nullptr ? 0.0f : p_.skip[head];
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; ++n) {
        const int row = OutRow(t, n), col = OutCol(t, n), token = chunk * kChunkTokens + row;
        if (token >= p_.len || this->first_col_ + col >= p_.width) continue;
        float out = out_(t, n) * row_factors_.Load(t, row);
        if (p_.skip != nullptr)
          out += skip * Base::NumberAt(this->v_, t, row * Values::kStride + col);
        char* to = p_.output.data + this->batch_ * p_.output.strides[0] +
                   head * p_.output.strides[1] + token * p_.output.strides[2];
        if (IsLost(t, row, col)) out = kLost;
        StoreAs(p_.output.dtype, to, this->first_col_ + col, out);
      }
    });
  }

  Shared q_, weights_;
  Floats key_sums_;       // of each row, from the state
  Floats state_factors_;  // what the answers of the state are multiplied by
  Floats row_factors_;    // and results
  typename Block::template Shared<int> first_poison_;  // token of each column
  Registers<float, kOut> out_;
  bool has_poison_;  // does a value of the chunk hold a number that is not finite?
};

// Numbers [index * kConvertNumbers, ...) of a tensor.
template <class Block>
HEED_DEVICE void ConvertNumbers(Block& block, const ConvertParams& p, int64_t index) {
  block.Each([&](int t) {
    HEED_NO_UNROLL for (int x = t; x < kConvertNumbers; x += kBlockThreads) {
      const int64_t n = index * kConvertNumbers + x;
      if (n >= p.numbers) return;
      const int64_t row = n / p.from.width, h = row / p.len % p.heads, b = row / p.len / p.heads;
      const int64_t i = row % p.len;
      const char* from =
          p.from.data + b * p.from.strides[0] + h * p.from.strides[1] + i * p.from.strides[2];
      char* to = p.to.data + b * p.to.strides[0] + h * p.to.strides[1] + i * p.to.strides[2];
      const int d = static_cast<int>(n % p.from.width);
      StoreAs(p.to.dtype, to, d, LoadAs(p.from.dtype, from, d));
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHUNK_KERNELS_H_
