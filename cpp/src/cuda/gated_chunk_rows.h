// The tokens of a chunk in shared memory: features of queries and keys, and how fast they decay.
// What decays make of them is in gated_channel_decays.h and gated_head_decays.h.
#ifndef HEED_SRC_CUDA_GATED_CHUNK_ROWS_H_
#define HEED_SRC_CUDA_GATED_CHUNK_ROWS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/chunk_features.h"
#include "src/cuda/gated_chunk_params.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"
#include "src/cuda/rows_in_memory.h"

namespace heed::cuda {

// Tokens whose decays are summed up by themselves: the rows of a warp.
inline constexpr int kSubTokens = kWarpRows;
inline constexpr int kSubs = kChunkTokens / kSubTokens;
// Up to kDim features.
template <class Block, int kDim>
class GatedChunkRows {
 protected:
  using T = BFloat16;
  using Shared = typename Block::template Shared<T>;
  using Floats = typename Block::template Shared<float>;
  using Rows = MmaProducts<T, kDim, kChunkTokens>;
  template <class Number, int N>
  using Registers = typename Block::template Registers<Number, N>;

  static constexpr int kMatrixBytes = kChunkTokens * Rows::kStride * static_cast<int>(sizeof(T));
  static constexpr int kRowBytes =
      2 * kMatrixBytes + kChunkTokens * static_cast<int>(sizeof(float));

  HEED_DEVICE GatedChunkRows(Block& block, const GatedChunkParams& params)
      : block_(block),
        p_(params),
        q_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        k_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        betas_(block.template Allocate<float>(kChunkTokens)) {}

  HEED_DEVICE void Begin(int64_t index) {
    const int chunk = static_cast<int>(index % p_.chunks);
    const int unit = static_cast<int>(index / p_.chunks);
    batch_ = unit / p_.num_kv_heads;
    kv_head_ = unit % p_.num_kv_heads;
    length_ = p_.key_lengths == nullptr ? p_.len : p_.key_lengths[batch_];
    chunk_ = chunk;
    chunk_at_ = p_.ChunkAt(unit, chunk);
    turn_ = static_cast<int>(index / 128 % kSubs);
  }
  HEED_DEVICE int TokenOf(int token) const { return p_.TokenOf(chunk_, token); }
  HEED_DEVICE bool IsEraser(int token) const { return p_.erases_apart() && token % 2 == 0; }

  // Starts to copy rows, but those of tokens that erase. Tokens that do not exist are zeros.
  HEED_DEVICE void CopyKeys() { CopyTokens(k_, p_.k, kv_head_, length_); }
  HEED_DEVICE void CopyQueries(int g) { CopyTokens(q_, p_.q, kv_head_ * p_.group + g, p_.len); }
  HEED_DEVICE void CopyTokens(Shared& to, const DeviceRows& rows, int head, int end) {
    const int first = TokenOf(0);
    const char* const from =
        rows.data + batch_ * rows.strides[0] + head * rows.strides[1] + first * rows.strides[2];
    CopyChunk<Rows>(block_, to, rows, from, end - first,
                    p_.erases_apart() ? ChunkRows::kOdd : ChunkRows::kAll);
  }

  // A warp has 16 tokens. The last ones of a chunk meet most keys, so they are not always those of
  // the same warp: blocks that share a multiprocessor, some 128 apart, would leave its other
  // quarters idle.
  HEED_DEVICE int SubOf(int t) const { return (t / kWarp + turn_) % kSubs; }

  HEED_DEVICE void LoadBetas() {
    block_.Each([&](int t) {
      if (t >= kChunkTokens) return;
      const int token = TokenOf(t);
      const bool exists = token < length_;
      const bool has_beta = p_.beta.data != nullptr && exists && !IsEraser(t);
      const float beta = has_beta ? p_.beta.At(batch_, kv_head_, token, 0) : 1.0f;
      betas_.Store(t, t, exists ? beta : 0.0f);
    });
  }
  HEED_DEVICE float Beta(int t, int token) const { return betas_.Load(t, token); }

  HEED_DEVICE bool HasDecay() const { return p_.log_decay.data != nullptr; }
  // Logarithms to base 2 of channels c to c + kCount - 1, of the tokens from `first` on; 0 where
  // there is none, and of two that are one token for the second. `first` is even.
  template <int kTokens, int kCount>
  HEED_DEVICE void LoadLogDecays(int first, int c, float (&decays)[kTokens][kCount]) const {
    const DevicePairs<float>& of = p_.log_decay;
    const int per_token = p_.erases_apart() ? 2 : 1;
    const int end = (length_ - TokenOf(first)) * per_token;
    const float* from = of.data + batch_ * of.strides[0] + kv_head_ * of.strides[1] +
                        TokenOf(first) * of.strides[2] + c * of.strides[3];
    const auto each = [&](const auto& load) {
      HEED_UNROLL for (int r = 0; r < kTokens; ++r) {
        const bool exists = (per_token == 1 || r % 2 == 0) && r < end;
        HEED_UNROLL for (int x = 0; x < kCount; ++x) decays[r][x] = 0;
        if (exists) load(decays[r]);
        HEED_UNROLL for (int x = 0; x < kCount; ++x) {
          decays[r][x] = BoundedLogDecay(decays[r][x]) * kLog2E;
        }
        if (per_token == 1 || r % 2 == 1) from += of.strides[2];
      }
    };
    if constexpr (kCount == 2) {
      if (p_.has_decay_pairs && c < p_.features) {
        return each([&](float(&numbers)[2]) { LoadGlobalTwo(from, numbers); });
      }
    }
    each([&](float(&numbers)[kCount]) {
      HEED_UNROLL for (int x = 0; x < kCount; ++x) {
        if (c + x < p_.features) numbers[x] = from[x * of.strides[3]];
      }
    });
  }
  // Does a token read the state before its own decay? Those that erase do, and those that write
  // behind them have none.
  HEED_DEVICE bool ReadsFirst() const { return p_.bonus.data != nullptr || p_.erases_apart(); }

  // Rows in shared memory become their features, rounded to the type.
  HEED_DEVICE void MapRows(Shared& rows, bool is_key) {
    if (p_.feature_map == FeatureMap::kIdentity) return;
    MapPointwise<Rows>(block_, rows, p_.features, p_.feature_map);
    if (p_.feature_map == FeatureMap::kComplement && is_key) {
      MapNumbers<Rows>(block_, rows, p_.features, [](float x) { return -expm1f(x); });
    }
    if (p_.feature_map == FeatureMap::kUnit) MakeUnit(rows);
    block_.Sync();
  }
  // Two threads have a row, every other eight numbers of it each. It is divided by its largest
  // number first, so that squares stay within float32, and smaller ones than the smallest whose
  // inverse does are made larger before.
  HEED_DEVICE void MakeUnit(Shared& rows) {
    constexpr float kSmall = 0x1p-100f;
    Registers<float, 2> inverse;  // of the largest number, in two factors
    Registers<float, 1> largest, squares;
    const auto each = [&](int t, const auto& body) {
      HEED_NO_UNROLL for (int c = t % 2 * 8; c < kDim; c += 16) {
        const int at = t / 2 * Rows::kStride + c;
        uint32_t pairs[4];
        float x[8];
        rows.LoadEight(t, at, pairs);
        UnpackEight<Block, T>(pairs, x);
        body(at, x);
      }
    };
    block_.Each([&](int t) {
      largest(t, 0) = squares(t, 0) = 0;
      each(t, [&](int, const float(&x)[8]) {
        HEED_UNROLL for (int n = 0; n < 8; ++n) largest(t, 0) = fmaxf(largest(t, 0), fabsf(x[n]));
      });
    });
    block_.template GroupMax<2>(largest);
    block_.Each([&](int t) {
      inverse(t, 0) = largest(t, 0) < kSmall ? 1 / kSmall : 1.0f;
      inverse(t, 1) = largest(t, 0) > 0 ? 1 / (largest(t, 0) * inverse(t, 0)) : 1.0f;
      each(t, [&](int, const float(&x)[8]) {
        HEED_UNROLL for (int n = 0; n < 8; ++n) {
          const float relative = x[n] * inverse(t, 0) * inverse(t, 1);
          squares(t, 0) += relative * relative;
        }
      });
    });
    block_.template GroupSum<2>(squares);
    block_.Each([&](int t) {
      if (squares(t, 0) == 0) return;
      const float factor = inverse(t, 1) / sqrtf(squares(t, 0));
      each(t, [&](int at, float(&x)[8]) {
        uint32_t pairs[4];
        HEED_UNROLL for (int n = 0; n < 8; ++n) x[n] *= inverse(t, 0) * factor;
        PackEight<Block, T>(x, pairs);
        StoreEight<T>(rows, t, at, pairs);
      });
    });
  }
  // With erase_key: minus its directions as queries of the tokens that erase, and erase_rate times
  // them as keys. Four threads have a token. No barrier.
  HEED_DEVICE void LoadErasers() {
    Registers<float, 1> largest, squares;
    block_.Each([&](int t) {
      largest(t, 0) = squares(t, 0) = 0;
      EachOfEraser(t, p_.erase_key,
                   [&](int, float x) { largest(t, 0) = fmaxf(largest(t, 0), fabsf(x)); });
    });
    block_.template GroupMax<4>(largest);
    const auto relative = [&](int t, float x) { return largest(t, 0) > 0 ? x / largest(t, 0) : x; };
    block_.Each([&](int t) {
      EachOfEraser(t, p_.erase_key,
                   [&](int, float x) { squares(t, 0) += relative(t, x) * relative(t, x); });
    });
    block_.template GroupSum<4>(squares);
    block_.Each([&](int t) {
      const float factor = squares(t, 0) != 0 ? 1 / sqrtf(squares(t, 0)) : 0.0f;
      EachOfEraser(t, p_.erase_key, [&](int at, float x) {
        q_.Store(t, at, RoundedTo<Block, T>(-relative(t, x) * factor));
      });
      EachOfEraser(t, p_.erase_rate, [&](int at, float rate) {
        k_.Store(t, at, RoundedTo<Block, T>(rate * -NumberAt(q_, t, at)));
      });
    });
  }
  // body(place, number) for every fourth number of an eraser's row; of features that there are not,
  // zeros. Loads of four are under way together.
  template <class Body>
  HEED_DEVICE void EachOfEraser(int t, const FloatRows<const float>& rows, const Body& body) {
    const int eraser = t / 4 * 2, token = TokenOf(eraser);
    const float* row = rows.Row(batch_, kv_head_, token);
    HEED_NO_UNROLL for (int first = t % 4; first < kDim; first += 16) {
      float x[4];
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        const int c = first + 4 * n;
        x[n] = token < length_ && c < p_.features ? row[c] : 0.0f;
      }
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        body(eraser * Rows::kStride + first + 4 * n, x[n]);
      }
    }
  }

  HEED_DEVICE static float NumberAt(const Shared& shared, int t, int at) {
    return NumberIn<Block, T>(shared, t, at);
  }

  Block& block_;
  const GatedChunkParams& p_;
  Shared q_, k_;
  Floats betas_;
  int batch_, kv_head_, length_, chunk_, turn_;
  char* chunk_at_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHUNK_ROWS_H_
