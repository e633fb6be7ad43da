// The state of chunked recurrent attention: a block has kSliceCols columns of the state of one KV
// head and takes them past chunks of kChunkTokens tokens. What both of its kernels share: the
// tokens of a chunk in shared memory, their decays, and the product that adds them to the state.
//
// Each warp has 16 columns of the state, transposed, as an accumulator of values^T keys. A thread
// then holds the numbers that it needs as operand B of queries * state: the state never leaves
// its registers.
//
//   state(4 n + e)  column AccumulatorRow(lane, e) of the warp, feature 8 n + AccumulatorCol(lane,
//   e)
//
// Yang et al. 2023, arXiv:2312.06635; Dao and Gu 2024, arXiv:2405.21060, section 6.
#ifndef HEED_SRC_CUDA_CHUNK_STATE_H_
#define HEED_SRC_CUDA_CHUNK_STATE_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "src/cuda/chunk_features.h"
#include "src/cuda/chunk_params.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"

namespace heed::cuda {

// A power of two at which numbers up to `largest` stay below 2^13, within 2^-40 and 2^40: what
// float16 is divided by so that it neither overflows nor loses what is small. 1 for 0 and NaN.
HEED_DEVICE float PowerFor(float largest) {
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23 & 0xff) - 127 - 12;
  if (!(largest > 0)) return 1.0f;
  const int within = exponent < -40 ? -40 : exponent > 40 ? 40 : exponent;
  return std::bit_cast<float>(static_cast<uint32_t>(within + 127) << 23);
}

// Up to kDim features.
template <class Block, class T, int kDim>
class ChunkState {
 protected:
  template <class Number, int N>
  using Registers = typename Block::template Registers<Number, N>;
  using Shared = typename Block::template Shared<T>;
  using Floats = typename Block::template Shared<float>;
  using Rows = MmaProducts<T, kDim, kChunkTokens>;          // of q and k
  using Values = MmaProducts<T, kSliceCols, kChunkTokens>;  // of v, and weights

  // The type has fewer exponents than float32.
  static constexpr bool kIsNarrow = std::is_same_v<T, Float16>;
  static constexpr int kState = kDim / 2;
  static constexpr int kGroup = 8;  // tokens whose decays a thread adds up
  static constexpr int kStateBytes =
      2 * static_cast<int>(kChunkTokens * (Rows::kStride + Values::kStride) * sizeof(T)) +
      (5 * kChunkTokens + kDim + 4) * static_cast<int>(sizeof(float)) +
      kChunkTokens / kGroup * static_cast<int>(sizeof(double));

  HEED_DEVICE ChunkState(Block& block, const ChunkParams& params)
      : block_(block),
        p_(params),
        k_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        v_(block.template Allocate<T>(kChunkTokens * Values::kStride)),
        next_k_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        next_v_(block.template Allocate<T>(kChunkTokens * Values::kStride)),
        gates_(block.template Allocate<float>(kChunkTokens)),
        group_sums_(block.template Allocate<double>(kChunkTokens / kGroup)),
        decays_(block.template Allocate<float>(2 * kChunkTokens)),
        betas_(block.template Allocate<float>(kChunkTokens)),
        strengths_(block.template Allocate<float>(kChunkTokens)),
        sums_(block.template Allocate<float>(kDim)),
        largest_(block.template Allocate<float>(4)) {}

  // Slice index % slices of span index / slices % spans_here, and so on.
  HEED_DEVICE void Begin(int64_t index, int spans_here) {
    slice_ = static_cast<int>(index % p_.slices);
    span_ = static_cast<int>(index / p_.slices % spans_here);
    unit_ = static_cast<int>(index / p_.slices / spans_here);
    batch_ = unit_ / p_.num_kv_heads;
    kv_head_ = unit_ % p_.num_kv_heads;
    length_ = p_.key_lengths == nullptr ? p_.len : p_.key_lengths[batch_];
    first_col_ = slice_ * kSliceCols;
    const int end = (span_ + 1) * p_.span_chunks;
    end_chunk_ = end < p_.chunks ? end : p_.chunks;
  }
  HEED_DEVICE int FirstChunk() const { return span_ * p_.span_chunks; }

  // The column of values of half `half` of a thread's numbers of the state.
  HEED_DEVICE int StateCol(int t, int half) const {
    return t / kWarp * kWarpRows + t % kWarp / 4 + 8 * half;
  }
  // body(n, number) for a thread's numbers of the state that there are, of rows of features of
  // `stride` floats.
  template <class Body>
  HEED_DEVICE void EachOfState(int t, float* rows, int64_t stride, const Body& body) const {
    const int first = AccumulatorCol(t % kWarp, 0), col = first_col_ + StateCol(t, 0);
    const bool exists[2] = {col < p_.width, col + 8 < p_.width};
    float* row = rows + first * stride + col;
    HEED_UNROLL for (int c = 0; c < kDim; c += 8) {
      HEED_UNROLL for (int e = 0; e < 2; ++e) {
        if (exists[0] && first + c + e < p_.features) body(c / 2 + e, row[e * stride]);
        if (exists[1] && first + c + e < p_.features) body(c / 2 + e + 2, row[e * stride + 8]);
      }
      row += 8 * stride;
    }
  }
  HEED_DEVICE void ClearState() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kState; ++n) state_(t, n) = 0;
      if (t < kDim) sums_.Store(t, t, 0.0f);
    });
  }
  HEED_DEVICE void LoadState(float* from) {
    ClearState();
    block_.Each([&](int t) {
      EachOfState(t, from, p_.cols, [&](int n, float x) { state_(t, n) = x; });
      if (p_.normalize && t < p_.features) sums_.Store(t, t, from[t * p_.cols + p_.width]);
    });
  }
  HEED_DEVICE void StoreState(float* to, int64_t stride) {
    block_.Each([&](int t) {
      EachOfState(t, to, stride, [&](int n, float& x) { x = state_(t, n); });
      const bool stores_sums = p_.normalize && slice_ == 0 && t < p_.features;
      if (stores_sums) to[t * stride + p_.width] = sums_.Load(t, t);
    });
  }

  // Starts to bring the tokens of a chunk: keys and values in a group of copies, which nobody may
  // read any more in the place of the chunk before the last, decays and betas in registers. Tokens
  // that do not exist are zeros.
  HEED_DEVICE void PrefetchTokens(int chunk) {
    if (chunk < end_chunk_) {
      const int first = chunk * kChunkTokens, count = length_ - first;
      CopyChunk<Rows>(block_, next_k_, p_.k, RowAt(p_.k, kv_head_, first), count);
      DeviceRows slice = p_.v;
      slice.data += first_col_ * static_cast<int>(sizeof(T));
      slice.width = p_.width - first_col_;
      CopyChunk<Values>(block_, next_v_, slice, RowAt(slice, kv_head_, first), count);
      LoadGates(first);
    }
    block_.CommitCopies();
  }
  HEED_DEVICE const char* RowAt(const DeviceRows& rows, int head, int token) const {
    return rows.data + batch_ * rows.strides[0] + head * rows.strides[1] + token * rows.strides[2];
  }
  HEED_DEVICE void LoadGates(int first) {
    block_.Each([&](int t) {
      const int token = first + t;
      const bool exists = t < kChunkTokens && token < length_;
      next_gates_(t, 0) = 0;
      next_gates_(t, 1) = exists ? 1.0f : 0.0f;
      if (HasDecay() && exists) next_gates_(t, 0) = p_.log_decay.At(batch_, kv_head_, token, 0);
      if (HasBeta() && exists) next_gates_(t, 1) = p_.beta.At(batch_, kv_head_, token, 0);
    });
  }
  // Decays and betas go to shared memory, copies arrive: before the barrier at which all threads
  // have read the last chunk.
  HEED_DEVICE void AwaitTokens() {
    block_.Each([&](int t) {
      if (t >= kChunkTokens) return;
      gates_.Store(t, t, BoundedLogDecay(next_gates_(t, 0)));
      betas_.Store(t, t, next_gates_(t, 1));
    });
    block_.template WaitCopies<0>();
  }
  // Behind it. A barrier where tokens are not plain.
  HEED_DEVICE void TakeTokens(int chunk) {
    Swap(k_, next_k_);
    Swap(v_, next_v_);
    is_plain_ = !HasDecay() && !HasBeta() && (chunk + 1) * kChunkTokens <= length_;
    PrefetchTokens(chunk + 1);
    chunk_decay_ = 1;
    if (!is_plain_) FindDecays();
  }
  HEED_DEVICE static void Swap(Shared& a, Shared& b) {
    const Shared c = a;
    a = b;
    b = c;
  }

  HEED_DEVICE bool HasDecay() const { return p_.log_decay.data != nullptr; }
  HEED_DEVICE bool HasBeta() const { return p_.beta.data != nullptr; }

  // Rows in shared memory become their features, rounded to the type. No barrier.
  HEED_DEVICE void MapRows(Shared& rows) {
    MapPointwise<Rows>(block_, rows, p_.features, p_.feature_map);
  }
  HEED_DEVICE bool HasMap() const { return p_.feature_map != FeatureMap::kIdentity; }
  HEED_DEVICE static float NumberAt(const Shared& shared, int t, int at) {
    return NumberIn<Block, T>(shared, t, at);
  }

  // Decays of the chunk: the sum of the logarithms up to each token, in two floats, so that their
  // differences are right however strongly another token decays; and what is left at the end of
  // the chunk of what tokens write with. Ends with a barrier.
  HEED_DEVICE void FindDecays() {
    constexpr int kGroups = kChunkTokens / kGroup;
    Registers<double, 1> sum;
    double total = 0;
    if (HasDecay()) {
      block_.Each([&](int t) {
        sum(t, 0) = 0;
        if (t >= kChunkTokens) return;
        HEED_UNROLL for (int first = 0; first < kGroup; first += 4) {
          float x[4];
          gates_.LoadFour(t, t / kGroup * kGroup + first, x);
          HEED_UNROLL for (int n = 0; n < 4; ++n) {
            sum(t, 0) += first + n <= t % kGroup ? x[n] : 0.0f;
          }
        }
        if (t % kGroup == kGroup - 1) group_sums_.Store(t, t / kGroup, sum(t, 0));
      });
      block_.Sync();
      double before[kGroups];
      HEED_UNROLL for (int g = 0; g < kGroups; ++g) {
        before[g] = total;
        total += group_sums_.LoadUniform(g);
      }
      block_.Each([&](int t) {
        if (t >= kChunkTokens) return;
        HEED_UNROLL for (int g = 1; g < kGroups; ++g) {
          if (g == t / kGroup) sum(t, 0) += before[g];
        }
        const float rounded = static_cast<float>(sum(t, 0));
        decays_.Store(t, 2 * t, rounded);
        decays_.Store(t, 2 * t + 1, static_cast<float>(sum(t, 0) - rounded));
      });
      chunk_decay_ = Exp(static_cast<float>(total));
    }
    Registers<float, 1> largest;
    block_.Each([&](int t) {
      largest(t, 0) = 0;
      if (t >= kChunkTokens) return;
      float strength = betas_.Load(t, t);
      if (HasDecay()) strength *= Exp(static_cast<float>(total - sum(t, 0)));
      strengths_.Store(t, t, strength);
      largest(t, 0) = fabsf(strength);
    });
    if constexpr (kIsNarrow) {
      block_.template GroupMax<kWarp>(largest);
      block_.Each([&](int t) {
        if (t % kWarp == 0) largest_.Store(t, t / kWarp, largest(t, 0));
      });
    }
    block_.Sync();
  }

  // The chunk decays the state, and joins it.
  HEED_DEVICE void WriteChunk() {
    // Strengths of float16 become 1 at most: values may be as large as the type goes.
    float power = 1;
    if constexpr (kIsNarrow) {
      if (!is_plain_) {
        const float largest = fmaxf(largest_.LoadUniform(0), largest_.LoadUniform(1));
        if (largest != 0) power = 0x1p13f * PowerFor(largest);
      }
    }
    if (chunk_decay_ != power) ScaleState(chunk_decay_ / power);
    if (is_plain_) {
      AddChunk<false>(1);
    } else {
      AddChunk<true>(1 / power);
    }
    if (power != 1) ScaleState(power);
    if (p_.normalize) AddSums();
  }
  HEED_DEVICE void ScaleState(float factor) {
    block_.Each(
        [&](int t) { HEED_UNROLL for (int n = 0; n < kState; ++n) state_(t, n) *= factor; });
  }
  // Plain tokens are not scaled.
  template <bool kScales>
  HEED_DEVICE void AddChunk(float factor) {
    Registers<uint32_t, 4> a, b;
    HEED_UNROLL for (int token = 0; token < kChunkTokens; token += 16) {
      block_.LoadMatrixTransposed(a, v_, [token](int t) {
        return (token + RowOfTransposedA(t % kWarp)) * Values::kStride + t / kWarp * kWarpRows +
               ColOfTransposedA(t % kWarp);
      });
      if constexpr (kScales) {
        block_.Each([&](int t) {
          HEED_UNROLL for (int n = 0; n < 4; ++n) {
            const int first = token + t % 4 * 2 + n / 2 * 8;
            const float low = Block::Unpack(T{}, static_cast<uint16_t>(a(t, n)));
            const float high = Block::Unpack(T{}, static_cast<uint16_t>(a(t, n) >> 16));
            a(t, n) = Block::Pack(T{}, low * (strengths_.Load(t, first) * factor),
                                  high * (strengths_.Load(t, first + 1) * factor));
          }
        });
      }
      HEED_UNROLL for (int d = 0; d < kDim; d += 16) {
        block_.LoadMatrixTransposed(b, k_, [d, token](int t) {
          return (token + RowOfTransposedB(t % kWarp)) * Rows::kStride + d +
                 ColOfTransposedB(t % kWarp);
        });
        block_.Mma(T{}, state_, d / 8, a, b, 0);
        block_.Mma(T{}, state_, d / 8 + 1, a, b, 1);
      }
    }
  }
  // Neighbours have eight features of different tokens.
  HEED_DEVICE void AddSums() {
    constexpr int kSharers = kBlockThreads / (kDim / 8);
    Registers<float, 8> sums;
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < 8; ++n) sums(t, n) = 0;
      HEED_UNROLL for (int token = 0; token < kChunkTokens; token += kSharers) {
        uint32_t pairs[4];
        float x[8];
        k_.LoadEight(t, (token + t % kSharers) * Rows::kStride + t / kSharers * 8, pairs);
        UnpackEight<Block, T>(pairs, x);
        const float strength = is_plain_ ? 1.0f : strengths_.Load(t, token + t % kSharers);
        HEED_UNROLL for (int n = 0; n < 8; ++n) sums(t, n) += strength * x[n];
      }
    });
    block_.template GroupSum<kSharers>(sums);
    block_.Each([&](int t) {
      if (t % kSharers != 0) return;
      HEED_UNROLL for (int n = 0; n < 8; ++n) {
        const int c = t / kSharers * 8 + n;
        sums_.Store(t, c, sums_.Load(t, c) * chunk_decay_ + sums(t, n));
      }
    });
  }

  Block& block_;
  const ChunkParams& p_;
  Shared k_, v_, next_k_, next_v_;
  Floats gates_;  // logarithms of decays
  typename Block::template Shared<double> group_sums_;
  Floats decays_;             // up to each token, logarithms: the sum and its rest
  Floats betas_, strengths_;  // what tokens write with, and what is left of it at the end
  Floats sums_;               // of keys, one a feature
  Floats largest_;            // strengths of the tokens of a warp

  int slice_, span_, unit_, batch_, kv_head_, length_, first_col_, end_chunk_;
  bool is_plain_;  // do all tokens of the chunk exist, write with 1 and not decay?
  float chunk_decay_;
  Registers<float, kState> state_;
  Registers<float, 2> next_gates_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHUNK_STATE_H_
