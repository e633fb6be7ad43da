// The state of recurrent attention past prepared chunks (PreparedChunk): a block has kSliceCols
// columns of the state of one KV head and takes them past the chunks of a span. What the kernels of
// gated_chunk_kernels.h share: how a chunk becomes what it writes, and how that joins the state.
//
// Each warp has 16 columns of the state, transposed, and so are the values of a chunk and its
// results: accumulators of one product are operand A of the next, and no number that depends on
// the state leaves the registers.
//
//   state(4 n + e)   column AccumulatorRow(lane, e) of the warp,
//                    feature 8 n + AccumulatorCol(lane, e)
//   values, out      the same of tokens in place of features
//
// Four buffers of prepared rows, and as many stages of a chunk, in turn: what a stage has read is
// replaced by that of the next chunk while the next stage multiplies.
//
// Yang et al. 2024, arXiv:2406.06484; 2024, arXiv:2412.06464.
#ifndef HEED_SRC_CUDA_GATED_CHUNK_STATE_H_
#define HEED_SRC_CUDA_GATED_CHUNK_STATE_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "src/cuda/chunk_features.h"
#include "src/cuda/gated_chunk_params.h"
#include "src/cuda/products.h"

namespace heed::cuda {

// Up to kDim features.
template <class Block, int kDim>
class GatedState {
 public:
  static constexpr int kResident = kResidentGated;

 protected:
  using T = BFloat16;
  using Shared = typename Block::template Shared<T>;
  using Floats = typename Block::template Shared<float>;
  using Rows = MmaProducts<T, kDim, kChunkTokens>;
  using Matrix = MmaProducts<T, kChunkTokens, kChunkTokens>;
  template <class Number, int N>
  using Registers = typename Block::template Registers<Number, N>;
  using Tokens = Registers<float, kChunkTokens / 2>;  // 16 columns of a warp

  static_assert(kSliceCols == kChunkTokens);  // Matrix serves slices of values too
  static constexpr int kState = kDim / 2;
  static constexpr int kSteps = kChunkTokens / 16;
  static constexpr int kRowBytes = kChunkTokens * Rows::kStride * static_cast<int>(sizeof(T));
  static constexpr int kMatrixBytes = kChunkTokens * Matrix::kStride * static_cast<int>(sizeof(T));
  static constexpr int kStateBytes =
      2 * kRowBytes + 2 * kMatrixBytes + kDim * static_cast<int>(sizeof(float));
  static constexpr float kLost = std::numeric_limits<float>::quiet_NaN();

  HEED_DEVICE GatedState(Block& block, const GatedChunkParams& params)
      : block_(block),
        p_(params),
        erase_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        write_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        v_(block.template Allocate<T>(kChunkTokens * Matrix::kStride)),
        solution_(block.template Allocate<T>(kChunkTokens * Matrix::kStride)),
        decays_(block.template Allocate<float>(kDim)) {}

  // Slice index % slices of span index / slices % spans, and so on. Slices behind those of values
  // are of a model.
  HEED_DEVICE void Begin(int64_t index, int slices, int spans) {
    slice_ = static_cast<int>(index % slices);
    span_ = static_cast<int>(index / slices % spans);
    unit_ = static_cast<int>(index / slices / spans);
    batch_ = unit_ / p_.num_kv_heads;
    kv_head_ = unit_ % p_.num_kv_heads;
    length_ = p_.key_lengths == nullptr ? p_.len : p_.key_lengths[batch_];
    is_model_ = slice_ >= p_.slices;
    first_col_ = (is_model_ ? slice_ - p_.slices : slice_) * kSliceCols;
    chunk_ = span_ * p_.span_chunks;
    const int end = chunk_ + p_.span_chunks;
    end_chunk_ = end < p_.chunks ? end : p_.chunks;
  }
  HEED_DEVICE int WarpCol(int t, int half) const {
    return t / kWarp * kWarpRows + t % kWarp / 4 + 8 * half;
  }
  // body(n, number) for a thread's numbers of the state that there are. `stride` floats lie between
  // features, `col_stride` between columns.
  template <class Number, class Body>
  HEED_DEVICE void EachOfState(int t, Number* numbers, int64_t stride, int col_stride,
                               const Body& body) const {
    const int width = is_model_ ? p_.features : p_.width;
    const int first = AccumulatorCol(t % kWarp, 0), col = first_col_ + WarpCol(t, 0);
    const bool exists[2] = {col < width, col + 8 < width};
    Number* row = numbers + first * stride + col * col_stride;
    HEED_UNROLL for (int c = 0; c < kDim; c += 8) {
      HEED_UNROLL for (int e = 0; e < 2; ++e) {
        if (exists[0] && first + c + e < p_.features) body(c / 2 + e, row[e * stride]);
        if (exists[1] && first + c + e < p_.features)
          body(c / 2 + e + 2, row[e * stride + 8 * col_stride]);
      }
      row += 8 * stride;
    }
  }
  HEED_DEVICE void ClearState() {
    block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kState; ++n) state_(t, n) = 0; });
  }

  // The four stages read, one after the other: eraser rows and values, the solution, rows and
  // weights of queries, rows to write and decays. Copies of each are a group; a chunk behind the
  // last one has empty groups.
  HEED_DEVICE const char* PreparedAt(int chunk) const { return p_.ChunkAt(unit_, chunk); }
  template <class Layout>
  HEED_DEVICE void CopyPrepared(Shared& to, const char* from) {
    constexpr int kPieces = Layout::kDim / 8;  // of 16 bytes
    constexpr int kStep = kBlockThreads / kPieces;
    block_.Each([&](int t) {
      const int at = t / kPieces * Layout::kStride + t % kPieces * 8;
      const char* const piece = from + 16 * t;
      HEED_UNROLL for (int n = 0; n < kChunkTokens / kStep; ++n) {
        to.CopyAsync(t, at + n * kStep * Layout::kStride, piece + n * 16 * kBlockThreads);
      }
    });
  }
  HEED_DEVICE void CopyValues(int chunk) {
    if (chunk < end_chunk_) {
      const char* from = PreparedAt(chunk) + p_.place.erase;
      if (p_.delta) CopyPrepared<Rows>(erase_, from);
      if (!is_model_) {
        DeviceRows slice = p_.v;
        slice.data += first_col_ * static_cast<int>(sizeof(T));
        slice.width = p_.width - first_col_;
        CopyChunk<Matrix>(block_, v_, slice, ValueRow(slice, chunk, 0),
                          length_ - p_.TokenOf(chunk, 0),
                          p_.erases_apart() ? ChunkRows::kOddAndZeros : ChunkRows::kAll);
      }
    }
    block_.CommitCopies();
  }
  HEED_DEVICE const char* ValueRow(const DeviceRows& rows, int chunk, int token) const {
    return rows.data + batch_ * rows.strides[0] + kv_head_ * rows.strides[1] +
           p_.TokenOf(chunk, token) * rows.strides[2];
  }
  HEED_DEVICE void CopySolution(int chunk) {
    if (chunk < end_chunk_ && p_.delta) {
      const char* from = PreparedAt(chunk) + p_.place.solution;
      CopyPrepared<Matrix>(solution_, from);
    }
    block_.CommitCopies();
  }
  HEED_DEVICE void CopyWrites(int chunk) {
    if (chunk < end_chunk_) {
      const char* from = PreparedAt(chunk);
      CopyPrepared<Rows>(write_, from + p_.place.write);
      block_.Each([&](int t) {
        if (t < kDim / 4) decays_.CopyAsync(t, 4 * t, from + p_.place.decays + 16 * t);
      });
    }
    block_.CommitCopies();
  }
  // The copies of a stage are there; those of two stages behind it may be under way.
  HEED_DEVICE void AwaitStage() {
    block_.template WaitCopies<2>();
    block_.Sync();
  }

  // values_ become what the chunk writes.
  HEED_DEVICE void FindValues() {
    AwaitStage();
    CopyWrites(chunk_);
    block_.Each([&](int t) { lost_(t, 0) = lost_(t, 1) = 0; });
    is_poisoned_ = false;
    Tokens values;
    ClearTokens(values);
    if (p_.delta) AnswerRows(erase_, values);
    AddOwnValues(values);
    TakePoisonOut(values);
    AwaitStage();
    CopyValues(chunk_ + 1);
    if (!p_.delta) return;
    ClearTokens(values);
    AddValues(solution_, values);
    TakePoisonOut(values);
  }
  HEED_DEVICE void ClearTokens(Tokens& sums) {
    block_.Each(
        [&](int t) { HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) sums(t, n) = 0; });
  }
  // Adds the values of the chunk, of a model none, to what the state answers to their keys. With
  // erase_key it answered to the queries of those that write, which do not ask: that is dropped.
  HEED_DEVICE void AddOwnValues(Tokens& values) {
    if (p_.erases_apart()) {
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 1; n < kChunkTokens / 2; n += 2) values(t, n) = 0;
      });
    }
    if (is_model_) return;
    Registers<uint32_t, 4> a;
    HEED_UNROLL for (int token = 0; token < kChunkTokens; token += 16) {
      block_.LoadMatrixTransposed(a, v_, [token](int t) {
        return (token + RowOfTransposedA(t % kWarp)) * Matrix::kStride + t / kWarp * kWarpRows +
               ColOfTransposedA(t % kWarp);
      });
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < 8; ++n) {
          const uint32_t pair = a(t, n / 2);
          values(t, token / 2 + n) +=
              Block::Unpack(T{}, static_cast<uint16_t>(n % 2 == 0 ? pair : pair >> 16));
        }
      });
    }
  }
  // Adds what the state answers to rows [tokens, features].
  HEED_DEVICE void AnswerRows(const Shared& rows, Tokens& sums) {
    Registers<uint32_t, 4> a, b;
    HEED_UNROLL for (int d = 0; d < kDim; d += 16) {
      block_.Each([&](int t) {
        HEED_UNROLL for (int pair = 0; pair < 4; ++pair) {
          const int n = d / 2 + 2 * pair;
          a(t, pair) = Block::Pack(T{}, state_(t, n), state_(t, n + 1));
        }
      });
      HEED_UNROLL for (int token = 0; token < kChunkTokens; token += 16) {
        block_.LoadMatrix(b, rows, [d, token](int t) {
          return (token + RowOfB(t % kWarp)) * Rows::kStride + d + ColOfB(t % kWarp);
        });
        block_.Mma(T{}, sums, token / 8, a, b, 0);
        block_.Mma(T{}, sums, token / 8 + 1, a, b, 1);
      }
    }
  }
  // Adds values_, each with its weights [tokens that read, tokens that wrote], 0 above the diagonal
  // of its 16 x 16 blocks; those behind them are not read.
  HEED_DEVICE void AddValues(const Shared& weights, Tokens& sums) {
    Registers<uint32_t, 4> b;
    HEED_UNROLL for (int step = 0; step < kSteps; ++step) {
      HEED_UNROLL for (int token = 16 * step; token < kChunkTokens; token += 16) {
        block_.LoadMatrix(b, weights, [step, token](int t) {
          return (token + RowOfB(t % kWarp)) * Matrix::kStride + 16 * step + ColOfB(t % kWarp);
        });
        block_.Mma(T{}, sums, token / 8, values_[step], b, 0);
        block_.Mma(T{}, sums, token / 8 + 1, values_[step], b, 1);
      }
    }
  }
  // values_ are these, rounded. What is not finite is taken out, as its product with the weight 0
  // of a token before it would be NaN; from there on its column is lost_.
  HEED_DEVICE void TakePoisonOut(Tokens& values) {
    const bool is_poisoned = block_.AnyOfWarp([&](int t) {
      bool fits = true;
      HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) fits = Fits(values(t, n)) && fits;
      return !fits;
    });
    if (is_poisoned) {
      is_poisoned_ = true;
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kChunkTokens / 2; ++n) {
          const int token = n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
          if (Fits(values(t, n))) continue;
          float& lost = lost_(t, n % 4 / 2);
          lost = fmaxf(lost, static_cast<float>(kChunkTokens - token));
          values(t, n) = 0;
        }
      });
      block_.template GroupMax<4>(lost_);
    }
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kChunkTokens / 4; ++n) {
        values_[n / 4](t, n % 4) = Block::Pack(T{}, values(t, 2 * n), values(t, 2 * n + 1));
      }
    });
  }
  // Is it finite in bfloat16?
  HEED_DEVICE static bool Fits(float x) { return fabsf(x) < 0x1.ffp127f; }
  HEED_DEVICE bool IsLost(int t, int half, int token) {
    return static_cast<float>(kChunkTokens - token) <= lost_(t, half);
  }

  // The chunk decays the state, and joins it.
  HEED_DEVICE void WriteChunk() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kState; ++n) {
        state_(t, n) *= decays_.Load(t, n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4));
      }
    });
    Registers<uint32_t, 4> b;
    HEED_UNROLL for (int step = 0; step < kSteps; ++step) {
      HEED_UNROLL for (int d = 0; d < kDim; d += 16) {
        block_.LoadMatrixTransposed(b, write_, [d, step](int t) {
          return (16 * step + RowOfTransposedB(t % kWarp)) * Rows::kStride + d +
                 ColOfTransposedB(t % kWarp);
        });
        block_.Mma(T{}, state_, d / 8, values_[step], b, 0);
        block_.Mma(T{}, state_, d / 8 + 1, values_[step], b, 1);
      }
    }
    if (!is_poisoned_) return;
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kState; ++n) {
        if (lost_(t, n % 4 / 2) > 0) state_(t, n) = kLost;
      }
    });
  }

  Block& block_;
  const GatedChunkParams& p_;
  Shared erase_, write_, v_, solution_;
  Floats decays_;
  int slice_, span_, unit_, batch_, kv_head_, length_, first_col_, chunk_, end_chunk_;
  bool is_model_;
  bool is_poisoned_;  // may a column of the warp be lost in this chunk?
  Registers<float, kState> state_;
  Registers<uint32_t, 4> values_[kSteps];  // operands A: columns of a warp, 16 tokens
  Registers<float, 2> lost_;  // tokens at the end of the chunk, of both columns of a thread
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHUNK_STATE_H_
