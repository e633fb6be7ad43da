// Recurrent attention past prepared chunks (gated_chunk_tokens.h): GatedSums finds what each span
// of chunks makes of a state, ScanStates and ScanModels the states before spans, GatedReads answers
// the queries.
#ifndef HEED_SRC_CUDA_GATED_CHUNK_KERNELS_H_
#define HEED_SRC_CUDA_GATED_CHUNK_KERNELS_H_

#include <cstdint>

#include "src/cuda/gated_chunk_params.h"
#include "src/cuda/gated_chunk_state.h"
#include "src/cuda/plugs.h"
#include "src/cuda/rows_in_memory.h"

namespace heed::cuda {

// What every span but the last makes of a state of zeros, and, with delta, of any state.
template <class Block, int kDim>
class GatedSums : GatedState<Block, kDim> {
  using Base = GatedState<Block, kDim>;

 public:
  using Base::kResident;
  static constexpr int kSharedBytes = Base::kStateBytes;

  HEED_DEVICE GatedSums(Block& block, const GatedChunkParams& params) : Base(block, params) {}

  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index, p_.slices + p_.model_slices, p_.spans - 1);
    this->ClearState();
    if (this->is_model_) {
      block_.Each([&](int t) {
        this->EachOfState(
            t, [&](int n, int c, int col) { this->state_(t, n) = c == col ? 1.0f : 0.0f; });
      });
    }
    this->CopyValues(this->chunk_);
    this->CopySolution(this->chunk_);
    HEED_NO_UNROLL for (; this->chunk_ < this->end_chunk_; ++this->chunk_) {
      block_.CommitCopies();  // of queries there are none
      this->FindValues();
      this->AwaitStage();
      this->CopySolution(this->chunk_ + 1);
      this->AwaitStage();
      this->WriteChunk();
    }
    block_.Each([&](int t) {
      float* const state = this->is_model_ ? p_.ModelOf(this->unit_, this->span_)
                                           : p_.StateOf(this->unit_, this->span_);
      const int col_stride = this->is_model_ ? p_.features : 1;
      const int row_stride = this->is_model_ ? 1 : p_.width;
      this->EachOfState(t, [&](int n, int c, int col) {
        state[c * row_stride + col * col_stride] = this->state_(t, n);
      });
    });
  }

 private:
  using Base::block_;
  using Base::p_;
};

// The number n of the state of KV head `unit` before the first chunk.
HEED_DEVICE float BeginOf(const GatedChunkParams& p, int unit, int64_t n) {
  if (p.begin.data == nullptr) return 0;
  return p.begin.Row(unit / p.num_kv_heads, unit % p.num_kv_heads, n / p.width)[n % p.width];
}

// Of a feature. Loads of eight chunks are under way together.
HEED_DEVICE float DecayOfSpan(const GatedChunkParams& p, int unit, int span, int c) {
  float decay = 1;
  HEED_NO_UNROLL for (int first = 0; first < p.span_chunks; first += 8) {
    float of_chunks[8];
    HEED_UNROLL for (int n = 0; n < 8; ++n) {
      const char* at = p.ChunkAt(unit, span * p.span_chunks + first + n) + p.place.decays;
      const bool exists = first + n < p.span_chunks;
      of_chunks[n] = exists ? reinterpret_cast<const float*>(at)[c] : 1.0f;
    }
    HEED_UNROLL for (int n = 0; n < 8; ++n) decay *= of_chunks[n];
  }
  return decay;
}

// Without delta. Numbers [index % blocks * kBlockThreads, ...) of the state of KV head index /
// blocks.
template <class Block>
HEED_DEVICE void ScanStates(Block& block, const GatedChunkParams& p, int64_t index) {
  const int64_t numbers = int64_t{p.features} * p.width;
  const int64_t blocks = (numbers + kBlockThreads - 1) / kBlockThreads;
  const int unit = static_cast<int>(index / blocks);
  block.Each([&](int t) {
    const int64_t n = index % blocks * kBlockThreads + t;
    if (n >= numbers) return;
    float state = BeginOf(p, unit, n);
    HEED_NO_UNROLL for (int span = 0; span < p.spans; ++span) {
      float* const place = p.StateOf(unit, span) + n;
      const float before = state;
      if (span + 1 < p.spans) {
        state = state * DecayOfSpan(p, unit, span, static_cast<int>(n / p.width)) + *place;
      }
      *place = before;
    }
  });
}

// With delta: the same by products with the models of spans. A block has kScanCols columns, a
// thread a feature of them.
inline constexpr int kScanCols = 8;
inline constexpr int kScanBytes = kBlockThreads * kScanCols * static_cast<int>(sizeof(float));

template <class Block>
HEED_DEVICE void ScanModels(Block& block, const GatedChunkParams& p, int64_t index) {
  const int blocks = (p.width + kScanCols - 1) / kScanCols;
  const int unit = static_cast<int>(index / blocks);
  const int first = static_cast<int>(index % blocks) * kScanCols;
  typename Block::template Shared<float> before =
      block.template Allocate<float>(kBlockThreads * kScanCols);
  typename Block::template Registers<float, kScanCols> state;
  const auto exists = [&](int t, int n) { return t < p.features && first + n < p.width; };
  block.Each([&](int t) {
    HEED_UNROLL for (int n = 0; n < kScanCols; ++n) {
      state(t, n) = exists(t, n) ? BeginOf(p, unit, int64_t{t} * p.width + first + n) : 0.0f;
    }
  });
  HEED_NO_UNROLL for (int span = 0; span < p.spans; ++span) {
    float* const states = p.StateOf(unit, span);
    block.Sync();  // the last span's are read
    block.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScanCols; ++n) {
        float* const place = states + int64_t{t} * p.width + first + n;
        before.Store(t, t * kScanCols + n, state(t, n));
        if (!exists(t, n)) continue;
        const float kept = state(t, n);
        if (span + 1 < p.spans) state(t, n) = *place;
        *place = kept;
      }
    });
    block.Sync();
    if (span + 1 == p.spans) return;
    const float* const model = p.ModelOf(unit, span);
    block.Each([&](int t) {
      if (t >= p.features) return;
      HEED_NO_UNROLL for (int first_c = 0; first_c < p.features; first_c += 8) {
        float row[8];  // loads of eight features are under way together
        HEED_UNROLL for (int x = 0; x < 8; ++x) {
          const int c = first_c + x;
          row[x] = c < p.features ? model[c * p.features + t] : 0.0f;
        }
        HEED_UNROLL for (int x = 0; x < 8; ++x) {
          if (first_c + x >= p.features) break;
          HEED_UNROLL for (int n = 0; n < kScanCols; ++n) {
            state(t, n) += row[x] * before.Load(t, (first_c + x) * kScanCols + n);
          }
        }
      }
    });
  }
}

template <class Block, int kDim>
class GatedReads : GatedState<Block, kDim> {
  using Base = GatedState<Block, kDim>;
  using typename Base::Matrix;
  using typename Base::Rows;
  using typename Base::Shared;
  using typename Base::T;
  using typename Base::Tokens;

 public:
  using Base::kResident;
  static constexpr int kSharedBytes = Base::kStateBytes + Base::kRowBytes + Base::kMatrixBytes;

  HEED_DEVICE GatedReads(Block& block, const GatedChunkParams& params)
      : Base(block, params),
        reads_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        weights_(block.template Allocate<T>(kChunkTokens * Matrix::kStride)) {}

  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index, p_.slices, p_.spans);
    LoadState();
    this->CopyValues(this->chunk_);
    this->CopySolution(this->chunk_);
    CopyQueries(this->chunk_, 0);
    HEED_NO_UNROLL for (; this->chunk_ < this->end_chunk_; ++this->chunk_) {
      this->FindValues();
      this->AwaitStage();
      this->CopySolution(this->chunk_ + 1);
      HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) {
        if (g > 0) NextQueries(g);
        ReadHead(this->kv_head_ * p_.group + g);
      }
      this->AwaitStage();
      CopyQueries(this->chunk_ + 1, 0);
      this->WriteChunk();
    }
    if (p_.end.data == nullptr || this->span_ + 1 < p_.spans) return;
    block_.Each([&](int t) {
      this->EachOfState(t, [&](int n, int c, int col) {
        p_.end.Row(this->batch_, this->kv_head_, c)[col] = this->state_(t, n);
      });
    });
  }

 private:
  using Base::block_;
  using Base::p_;

  HEED_DEVICE void LoadState() {
    this->ClearState();
    block_.Each([&](int t) {
      const float* const state = p_.StateOf(this->unit_, this->span_);
      this->EachOfState(
          t, [&](int n, int c, int col) { this->state_(t, n) = state[c * p_.width + col]; });
    });
  }
  HEED_DEVICE void CopyQueries(int chunk, int g) {
    if (chunk < this->end_chunk_) {
      const char* from = this->PreparedAt(chunk) + g * p_.place.head;
      this->template CopyPrepared<Rows>(reads_, from + p_.place.reads);
      this->template CopyPrepared<Matrix>(weights_, from + p_.place.weights);
    }
    block_.CommitCopies();
  }
  HEED_DEVICE void NextQueries(int g) {
    block_.Sync();  // those of the last head are read
    CopyQueries(this->chunk_, g);
    block_.template WaitCopies<0>();
    block_.Sync();
  }

  HEED_DEVICE void ReadHead(int head) {
    Tokens out;
    this->ClearTokens(out);
    this->AnswerRows(reads_, out);
    this->AddValues(weights_, out);
    const float skip = p_.skip == nullptr ? 0.0f : p_.skip[head];
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) {
        const int token = n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4), half = n % 4 / 2;
        const int col = this->first_col_ + this->WarpCol(t, half);
        const int row = p_.TokenOf(this->chunk_, token);
        if (n % 2 == 0 && p_.erases_apart()) continue;  // these erase
        if (row >= p_.len || col >= p_.width) continue;
        float x = p_.scale * out(t, n);
        if (p_.skip != nullptr) x += skip * ValueAt(token, col);
        if (this->IsLost(t, half, token)) x = Base::kLost;
        char* to = p_.output.data + this->batch_ * p_.output.strides[0] +
                   head * p_.output.strides[1] + row * p_.output.strides[2];
        StoreAs(p_.output.dtype, to, col, x);
      }
    });
  }
  // v_ may hold values of the next chunk already.
  HEED_DEVICE float ValueAt(int token, int col) const {
    const char* row = this->ValueRow(p_.v, this->chunk_, token);
    return row == nullptr ? 0.0f : LoadAs(p_.v.dtype, row, col);
  }

  Shared reads_, weights_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHUNK_KERNELS_H_
