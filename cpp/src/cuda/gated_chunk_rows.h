// The tokens of a chunk in shared memory: features of queries and keys, sums of the logarithms of
// decays, and the rows that are made of them for other kernels (PreparedChunk). The rest of what is
// prepared is in gated_chunk_tokens.h.
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
// The logarithm of what kSubTokens tokens decay by, if a factor of its inverse is to leave room for
// keys of any size that matters: e^60 is 1e26.
inline constexpr float kStrongDecay = 60;

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

  static constexpr int kGateStride = kDim + 8;  // pairs of eight rows meet no bank twice
  static constexpr int kRowBytes =
      2 * kChunkTokens * Rows::kStride * static_cast<int>(sizeof(T)) +
      (kChunkTokens * kGateStride + kChunkTokens) * static_cast<int>(sizeof(float));

  HEED_DEVICE GatedChunkRows(Block& block, const GatedChunkParams& params)
      : block_(block),
        p_(params),
        q_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        k_(block.template Allocate<T>(kChunkTokens * Rows::kStride)),
        gates_(block.template Allocate<float>(kChunkTokens * kGateStride)),
        betas_(block.template Allocate<float>(kChunkTokens)) {}

  HEED_DEVICE void Begin(int64_t index) {
    const int chunk = static_cast<int>(index % p_.chunks);
    const int unit = static_cast<int>(index / p_.chunks);
    batch_ = unit / p_.num_kv_heads;
    kv_head_ = unit % p_.num_kv_heads;
    length_ = p_.key_lengths == nullptr ? p_.len : p_.key_lengths[batch_];
    chunk_ = chunk;
    chunk_at_ = p_.ChunkAt(unit, chunk);
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

  // Sums of logarithms from the beginning of each 16 tokens, and beta.
  HEED_DEVICE void LoadGates() {
    block_.Each([&](int t) {
      if (t < kChunkTokens) {
        const int token = TokenOf(t);
        const bool exists = token < length_;
        const bool has_beta = p_.beta.data != nullptr && exists && !IsEraser(t);
        const float beta = has_beta ? p_.beta.At(batch_, kv_head_, token, 0) : 1.0f;
        betas_.Store(t, t, exists ? beta : 0.0f);
      }
      const int width = p_.decays_channels ? kDim : 1;
      HEED_NO_UNROLL for (int n = t; n < width * kSubs && HasDecay(); n += kBlockThreads) {
        const int c = n % width, first = n / width * kSubTokens;
        float decays[kSubTokens];
        LoadLogDecays(first, c, decays);
        float sum = 0;
        HEED_UNROLL for (int r = 0; r < kSubTokens; ++r) {
          sum += decays[r];
          gates_.Store(t, (first + r) * kGateStride + c, sum);
        }
      }
    });
  }
  HEED_DEVICE bool HasDecay() const { return p_.log_decay.data != nullptr; }
  // Of channel c and the tokens from `first` on; 0 where there is none, and of two that are one
  // token for the second.
  HEED_DEVICE void LoadLogDecays(int first, int c, float (&decays)[kSubTokens]) const {
    const DevicePairs<float>& of = p_.log_decay;
    const int per_token = p_.erases_apart() ? 2 : 1;
    const int end = c < p_.features ? (length_ - TokenOf(first)) * per_token : 0;
    const float* from = of.data + batch_ * of.strides[0] + kv_head_ * of.strides[1] +
                        TokenOf(first) * of.strides[2] + c * of.strides[3];
    HEED_UNROLL for (int r = 0; r < kSubTokens; ++r) {
      const bool decays_state = per_token == 1 || r % 2 == 0;
      decays[r] = decays_state && r < end ? BoundedLogDecay(*from) : 0.0f;
      if (per_token == 1 || r % 2 == 1) from += of.strides[2];
    }
  }
  HEED_DEVICE float Beta(int t, int token) const { return betas_.Load(t, token); }
  // Of eight tokens; `first` is a multiple of 8.
  HEED_DEVICE void LoadBetas(int t, int first, float (&betas)[8]) const {
    betas_.LoadFour(t, first, *reinterpret_cast<float(*)[4]>(betas));
    betas_.LoadFour(t, first + 4, *reinterpret_cast<float(*)[4]>(betas + 4));
  }

  // Logarithms of decays of channel c. From the beginning of the token's 16 up to it, it included:
  HEED_DEVICE float Gate(int t, int token, int c) const {
    if (!HasDecay()) return 0;
    return gates_.Load(t, token * kGateStride + (p_.decays_channels ? c : 0));
  }
  // Does a token read the state before its own decay? Those that erase do, and those that write
  // behind them have none.
  HEED_DEVICE bool ReadsFirst() const { return p_.bonus.data != nullptr || p_.erases_apart(); }
  HEED_DEVICE float Total(int t, int sub, int c) const { return Gate(t, LastOf(sub), c); }
  // The same up to where a query of the token reads.
  HEED_DEVICE float ReadGate(int t, int token, int c) const {
    if (!ReadsFirst()) return Gate(t, token, c);
    return token % kSubTokens == 0 ? 0.0f : Gate(t, token - 1, c);
  }
  // Of channels c and c + 1, where they decay each at its rate; c is even.
  HEED_DEVICE void LoadTwoGates(int t, int token, int c, float (&gates)[2]) const {
    gates_.LoadTwo(t, token * kGateStride + c, gates);
  }
  // The same up to where a query reads, given those up to its token.
  HEED_DEVICE void LoadTwoReadGates(int t, int token, int c, const float (&own)[2],
                                    float (&gates)[2]) const {
    gates[0] = own[0], gates[1] = own[1];
    if (!ReadsFirst()) return;
    gates[0] = gates[1] = 0;
    if (token % kSubTokens != 0) LoadTwoGates(t, token - 1, c, gates);
  }

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

  HEED_DEVICE void StoreReads(int g) {
    StoreRows(
        chunk_at_ + p_.place.reads + g * p_.place.head, q_, From::kBeginning,
        [&](int t, int token, int c, float(&gates)[8]) { LoadReadGates(t, token, c, gates); },
        [](int, int) { return 1.0f; });
  }
  HEED_DEVICE void StoreErasers() {
    StoreRows(
        chunk_at_ + p_.place.erase, k_, From::kBeginning,
        [&](int t, int token, int c, float(&gates)[8]) { LoadGates8(t, token, c, gates); },
        [](int, int) { return -1.0f; });
  }
  // Without delta, beta joins the keys.
  HEED_DEVICE void StoreWrites() {
    StoreRows(
        chunk_at_ + p_.place.write, k_, From::kEnd,
        [&](int t, int token, int c, float(&gates)[8]) {
          float own[8];
          LoadGates8(t, token, c, own);
          LoadGates8(t, LastOf(token / kSubTokens), c, gates);
          HEED_UNROLL for (int n = 0; n < 8; ++n) gates[n] -= own[n];
        },
        [&](int t, int token) { return p_.delta ? 1.0f : Beta(t, token); });
    block_.Each([&](int t) {
      if (t >= kDim) return;
      float sum = 0;
      HEED_UNROLL for (int sub = 0; sub < kSubs; ++sub) sum += Total(t, sub, t);
      reinterpret_cast<float*>(chunk_at_ + p_.place.decays)[t] = Exp(sum);
    });
  }

  enum class From { kBeginning, kEnd };  // of the chunk
  HEED_DEVICE static int LastOf(int sub) { return sub * kSubTokens + kSubTokens - 1; }
  // Gates of eight neighbouring channels.
  HEED_DEVICE void LoadGates8(int t, int token, int c, float (&gates)[8]) const {
    if (HasDecay() && p_.decays_channels) {
      gates_.LoadFour(t, token * kGateStride + c, *reinterpret_cast<float(*)[4]>(gates));
      gates_.LoadFour(t, token * kGateStride + c + 4, *reinterpret_cast<float(*)[4]>(gates + 4));
      return;
    }
    const float gate = Gate(t, token, 0);
    HEED_UNROLL for (int n = 0; n < 8; ++n) gates[n] = gate;
  }
  HEED_DEVICE void LoadReadGates(int t, int token, int c, float (&gates)[8]) const {
    if (!ReadsFirst()) return LoadGates8(t, token, c, gates);
    if (token % kSubTokens != 0) return LoadGates8(t, token - 1, c, gates);
    HEED_UNROLL for (int n = 0; n < 8; ++n) gates[n] = 0;
  }
  // Rows times e to the gates(t, token, c) of their own 16 tokens and the totals of the 16 before
  // them (or behind them), times factor(t, token). A thread has eight channels of every eighth or
  // sixteenth row, 16 tokens after the other.
  template <class Gates, class Factor>
  HEED_DEVICE void StoreRows(char* to, const Shared& rows, From from, const Gates& gates_of,
                             const Factor& factor) {
    constexpr int kEights = kDim / 8, kStep = kBlockThreads / kEights;
    block_.Each([&](int t) {
      const int c = t % kEights * 8;
      float others[8] = {};
      HEED_NO_UNROLL for (int step = 0; step < kSubs; ++step) {
        const int sub = from == From::kBeginning ? step : kSubs - 1 - step;
        float gates[8];
        HEED_UNROLL for (int r = 0; r < kSubTokens; r += kStep) {
          const int token = sub * kSubTokens + r + t / kEights;
          gates_of(t, token, c, gates);
          HEED_UNROLL for (int n = 0; n < 8; ++n) gates[n] += others[n];
          StoreDecayed(t, to + (token * kEights + c / 8) * 16, rows, token * Rows::kStride + c,
                       gates, factor(t, token));
        }
        LoadGates8(t, LastOf(sub), c, gates);
        HEED_UNROLL for (int n = 0; n < 8; ++n) others[n] += gates[n];
      }
    });
  }
  // Eight numbers, each times e^gate.
  HEED_DEVICE void StoreDecayed(int t, char* to, const Shared& rows, int at,
                                const float (&gates)[8], float factor) const {
    uint32_t pairs[4];
    rows.LoadEight(t, at, pairs);
    float x[8];
    UnpackEight<Block, T>(pairs, x);
    if (p_.decays_channels) {
      HEED_UNROLL for (int n = 0; n < 8; ++n) x[n] *= Exp(gates[n]) * factor;
    } else {
      const float common = Exp(gates[0]) * factor;
      HEED_UNROLL for (int n = 0; n < 8; ++n) x[n] *= common;
    }
    StoreRounded(to, x);
  }
  // `to` is aligned to 16 bytes.
  HEED_DEVICE static void StoreRounded(char* to, const float (&x)[8]) {
    uint32_t pairs[4];
    PackEight<Block, T>(x, pairs);
    StoreGlobalEight(to, pairs);
  }

  Block& block_;
  const GatedChunkParams& p_;
  Shared q_, k_;
  Floats gates_, betas_;
  int batch_, kv_head_, length_, chunk_;
  char* chunk_at_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GATED_CHUNK_ROWS_H_
