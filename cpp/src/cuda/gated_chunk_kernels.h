// Recurrent attention past prepared chunks (gated_chunk_tokens.h): GatedSums finds what each span
// of chunks makes of a state, ScanStates and ScanModels the states before spans, GatedReads answers
// the queries.
#ifndef HEED_SRC_CUDA_GATED_CHUNK_KERNELS_H_
#define HEED_SRC_CUDA_GATED_CHUNK_KERNELS_H_

#include <cstdint>

#include "src/cuda/gated_chunk_params.h"
#include "src/cuda/gated_chunk_state.h"
#include "src/cuda/plugs.h"

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
        const int behind = this->first_col_ + this->WarpCol(t, 0) - AccumulatorCol(t % kWarp, 0);
        HEED_UNROLL for (int n = 0; n < Base::kState; ++n) {
          if (n / 4 * 8 + n % 2 - n % 4 / 2 * 8 == behind) this->state_(t, n) = 1;
        }
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
      const auto store = [&](int n, float& x) { x = this->state_(t, n); };
      if (this->is_model_) {
        this->EachOfState(t, p_.ModelOf(this->unit_, this->span_), 1, p_.features, store);
      } else {
        this->EachOfState(t, p_.StateOf(this->unit_, this->span_), p_.width, 1, store);
      }
    });
  }

 private:
  using Base::block_;
  using Base::p_;
};

// A number of the state of KV head `unit` before the first chunk.
HEED_DEVICE float BeginOf(const GatedChunkParams& p, int unit, int feature, int column) {
  if (p.begin.data == nullptr) return 0;
  return p.begin.Row(unit / p.num_kv_heads, unit % p.num_kv_heads, feature)[column];
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
  // Of 32 bits: divisions of 64 took longer than all else.
  const uint32_t numbers = static_cast<uint32_t>(p.features) * static_cast<uint32_t>(p.width);
  const uint32_t blocks = (numbers + kBlockThreads - 1) / kBlockThreads;
  const uint32_t unit = static_cast<uint32_t>(index) / blocks;
  const uint32_t first = (static_cast<uint32_t>(index) - unit * blocks) * kBlockThreads;
  block.Each([&](int t) {
    const uint32_t n = first + static_cast<uint32_t>(t);
    if (n >= numbers) return;
    const int feature = static_cast<int>(n / static_cast<uint32_t>(p.width));
    const int column = static_cast<int>(n) - feature * p.width;
    float state = BeginOf(p, static_cast<int>(unit), feature, column);
    HEED_NO_UNROLL for (int span = 0; span < p.spans; ++span) {
      float* const place = p.StateOf(static_cast<int>(unit), span) + n;
      const float before = state;
      if (span + 1 < p.spans) {
        state = state * DecayOfSpan(p, static_cast<int>(unit), span, feature) + *place;
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
  const int unit = static_cast<int>(index) / blocks;
  const int first = (static_cast<int>(index) - unit * blocks) * kScanCols;
  typename Block::template Shared<float> before =
      block.template Allocate<float>(kBlockThreads * kScanCols);
  typename Block::template Registers<float, kScanCols> state;
  const auto exists = [&](int t, int n) { return t < p.features && first + n < p.width; };
  block.Each([&](int t) {
    HEED_UNROLL for (int n = 0; n < kScanCols; ++n) {
      state(t, n) = exists(t, n) ? BeginOf(p, unit, t, first + n) : 0.0f;
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
  static constexpr int kSharedBytes = Base::kStateBytes + Base::kRowBytes + 2 * Base::kMatrixBytes;

  HEED_DEVICE GatedReads(Block& block, const GatedChunkParams& params)
      : Base(block, params),
        reads_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        weights_(block.template Allocate<T>(kChunkTokens * Matrix::kStride)),
        results_(block.template Allocate<T>(kChunkTokens * Matrix::kStride)) {}

  HEED_DEVICE void Run(int64_t index) {
    this->Begin(index, p_.slices, p_.spans);
    this->CopyValues(this->chunk_);
    this->CopySolution(this->chunk_);
    CopyQueries(this->chunk_, 0);
    LoadState();
    HEED_NO_UNROLL for (; this->chunk_ < this->end_chunk_; ++this->chunk_) {
      this->FindValues();
      this->AwaitStage();
      this->CopySolution(this->chunk_ + 1);
      HEED_NO_UNROLL for (int g = 0; g < p_.group; ++g) {
        if (g > 0) NextQueries(g);
        ReadHead(this->kv_head_ * p_.group + g);
      }
      this->AwaitStage();
      StoreResults(this->kv_head_ * p_.group + p_.group - 1);
      CopyQueries(this->chunk_ + 1, 0);
      this->WriteChunk();
    }
    if (p_.end.data == nullptr || this->span_ + 1 < p_.spans) return;
    float* const end = p_.end.Row(this->batch_, this->kv_head_, 0);
    block_.Each([&](int t) {
      this->EachOfState(t, end, p_.end.strides[2], 1,
                        [&](int n, float& x) { x = this->state_(t, n); });
    });
  }

 private:
  using Base::block_;
  using Base::p_;
  static constexpr int kOut = kChunkTokens / 2;

  HEED_DEVICE void LoadState() {
    this->ClearState();
    if (!p_.scans && p_.begin.data == nullptr) return;
    const float* const state = p_.scans ? p_.StateOf(this->unit_, this->span_)
                                        : p_.begin.Row(this->batch_, this->kv_head_, 0);
    const int64_t stride = p_.scans ? p_.width : p_.begin.strides[2];
    block_.Each([&](int t) {
      this->EachOfState(t, state, stride, 1, [&](int n, float x) { this->state_(t, n) = x; });
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
    block_.Sync();  // those of the last head are read, its results are there
    StoreResults(this->kv_head_ * p_.group + g - 1);
    CopyQueries(this->chunk_, g);
    block_.template WaitCopies<0>();
    block_.Sync();
  }

  HEED_DEVICE void ReadHead(int head) {
    Tokens out;
    this->ClearTokens(out);
    this->AnswerRows(reads_, out);
    this->AddValues(weights_, out);
    if (p_.scale != 1) {
      block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kOut; ++n) out(t, n) *= p_.scale; });
    }
    if (p_.skip != nullptr) AddSkipped(p_.skip[head], out);
    if (this->is_poisoned_) {
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kOut; ++n) {
          if (this->IsLost(t, n % 4 / 2, TokenAt(t, n))) out(t, n) = Base::kLost;
        }
      });
    }
    if (!HasOwnType()) return StoreWide(head, out);
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; n += 2) {
        const uint32_t pair = Block::Pack(T{}, out(t, n), out(t, n + 1));
        const int at = TokenAt(t, n) * Matrix::kStride + this->WarpCol(t, n % 4 / 2);
        results_.Store(t, at, T{static_cast<uint16_t>(pair)});
        results_.Store(t, at + Matrix::kStride, T{static_cast<uint16_t>(pair >> 16)});
      }
    });
  }
  HEED_DEVICE static int TokenAt(int t, int n) {
    return n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
  }
  // body(n, row, column) for a thread's results of columns that there are and of tokens up to
  // `tokens`, whose rows are `stride` bytes apart from that of the chunk's first on.
  template <class Body>
  HEED_DEVICE void EachResult(int t, int tokens, char* rows, int64_t stride,
                              const Body& body) const {
    const int per_token = p_.erases_apart() ? 2 : 1;
    const int first = Block::Opaque(AccumulatorCol(t % kWarp, 0));
    const int end = (tokens - p_.TokenOf(this->chunk_, 0)) * per_token;
    const int col = this->first_col_ + this->WarpCol(t, 0);
    const bool exists[2] = {col < p_.width, col + 8 < p_.width};
    char* row = rows + first / per_token * stride;
    HEED_UNROLL for (int x = 0; x < kChunkTokens; x += 8) {
      HEED_UNROLL for (int e = 0; e < 2; ++e) {
        if (first + x + e >= end || IsEraser(e)) continue;
        char* const to = e / per_token == 0 ? row : row + stride;
        if (exists[0]) body(x / 2 + e, to, col);
        if (exists[1]) body(x / 2 + e + 2, to, col + 8);
      }
      row += 8 / per_token * stride;
    }
  }
  // v_ may hold values of the next chunk already.
  HEED_DEVICE void AddSkipped(float skip, Tokens& out) {
    char* const rows = const_cast<char*>(this->ValueRow(p_.v, this->chunk_, 0));
    block_.Each([&](int t) {
      EachResult(t, this->length_, rows, p_.v.strides[2], [&](int n, const char* row, int col) {
        out(t, n) += skip * Block::Unpack(T{}, reinterpret_cast<const T*>(row)[col].bits);
      });
    });
  }
  HEED_DEVICE bool IsEraser(int token) const { return p_.erases_apart() && token % 2 == 0; }
  HEED_DEVICE bool HasOwnType() const { return p_.output.dtype == DType::kBFloat16; }
  HEED_DEVICE char* ResultRow(int head, int token) const {
    return p_.output.data + this->batch_ * p_.output.strides[0] + head * p_.output.strides[1] +
           p_.TokenOf(this->chunk_, token) * p_.output.strides[2];
  }

  // Results of another type than bfloat16.
  HEED_DEVICE void StoreWide(int head, Tokens& out) {
    block_.Each([&](int t) {
      EachResult(t, p_.len, ResultRow(head, 0), p_.output.strides[2],
                 [&](int n, char* row, int col) {
                   if (p_.output.dtype == DType::kFloat32) {
                     reinterpret_cast<float*>(row)[col] = out(t, n);
                   } else {
                     const uint32_t pair = Block::Pack(Float16{}, out(t, n), 0.0f);
                     reinterpret_cast<Float16*>(row)[col] = {static_cast<uint16_t>(pair)};
                   }
                 });
    });
  }
  // What ReadHead() left in shared memory, behind a barrier.
  HEED_DEVICE void StoreResults(int head) {
    if (!HasOwnType()) return;
    constexpr int kPieces = kSliceCols / 8, kStep = kBlockThreads / kPieces;
    const int64_t stride = p_.output.strides[2] / (p_.erases_apart() ? 2 : 1);  // of chunk's tokens
    const int tokens = (p_.len - p_.TokenOf(this->chunk_, 0)) * (p_.erases_apart() ? 2 : 1);
    const int cols = p_.width - this->first_col_;
    char* const to = ResultRow(head, 0) + this->first_col_ * static_cast<int>(sizeof(T));
    const bool has_eights =
        (reinterpret_cast<uintptr_t>(to) | p_.output.strides[2] | cols * sizeof(T)) % 16 == 0;
    block_.Each([&](int t) {
      const int c = t % kPieces * 8, first = t / kPieces;
      if (c >= cols || IsEraser(first)) return;
      char* row = to + first / (p_.erases_apart() ? 2 : 1) * p_.output.strides[2];
      HEED_NO_UNROLL for (int token = first; token < kChunkTokens && token < tokens;
                          token += kStep) {
        uint32_t pairs[4];
        results_.LoadEight(t, token * Matrix::kStride + c, pairs);
        if (has_eights) {
          StoreGlobalEight(row + c * sizeof(T), pairs);
        } else {
          HEED_UNROLL for (int n = 0; n < 8; ++n) {
            const uint32_t bits = pairs[n / 2] >> (16 * (n % 2));
            if (c + n < cols) reinterpret_cast<T*>(row)[c + n] = {static_cast<uint16_t>(bits)};
          }
        }
        row += kStep * stride;
      }
    });
  }

  Shared reads_, weights_, results_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHUNK_KERNELS_H_
