// One token of a recurrent mechanism: writing and reading the state.
#if defined(HEED_RECURRENT_TOKEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_TOKEN_INL_H_
#undef HEED_RECURRENT_TOKEN_INL_H_
#else
#define HEED_RECURRENT_TOKEN_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/recurrent/features-inl.h"
#include "src/recurrent/problem.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What a token does to the state.
struct Token {
  const float* keys;    // features, head_dim of them
  const float* decays;  // factors: head_dim of them with per_channel, else one; nullptr for none
  bool per_channel;
  float beta;
  const float* erasers;  // what is read to be erased; nullptr for nothing
  bool reads_undecayed;  // they read the state before its decay

  float Decay(size_t c) const {
    return decays == nullptr ? 1.0f : decays[per_channel ? c : size_t{0}];
  }
};

// A vector of columns of a state, of which `here` exist: row c lies at data + c * stride.
struct StateColumns {
  float* data;
  size_t stride;
  size_t here;

  HWY_INLINE VF Load(DF d, size_t c) const {
    const float* row = data + c * stride;
    return here == hn::Lanes(d) ? hn::LoadU(d, row) : hn::LoadN(d, row, here);
  }
  HWY_INLINE void Store(DF d, VF s, size_t c) const {
    float* row = data + c * stride;
    if (here == hn::Lanes(d)) {
      hn::StoreU(s, d, row);
    } else {
      hn::StoreN(s, d, row, here);
    }
  }
};

// Decays, erases and writes columns of the state. `value` is v to erase, else beta v.
inline void WriteToken(const Token& token, size_t dim, VF value, const StateColumns& state) {
  const DF d;
  const bool erases = token.erasers != nullptr;
  VF known = hn::Zero(d);
  for (size_t c = 0; c < dim && (token.decays != nullptr || erases); ++c) {
    const VF before = state.Load(d, c);
    VF s = before;
    if (token.decays != nullptr) {
      s = hn::Mul(s, hn::Set(d, token.Decay(c)));
      state.Store(d, s, c);
    }
    if (!erases) continue;
    known = Fma(hn::Set(d, token.erasers[c]), token.reads_undecayed ? before : s, known);
  }
  if (erases) value = hn::Mul(hn::Set(d, token.beta), hn::Sub(value, known));
  for (size_t c = 0; c < dim; ++c) {
    state.Store(d, Fma(hn::Set(d, token.keys[c]), value, state.Load(d, c)), c);
  }
}

// The direction of the key to erase by, and that times the rates of its channels.
inline void EraserOf(const RecurrentProblem& p, int64_t b, int64_t h, int64_t t, float* eraser,
                     float* write) {
  const size_t width = static_cast<size_t>(p.head_dim);
  UnitRow(&p.options.erase_key(b, h, t, 0), width, eraser);
  const float* rate = &p.options.erase_rate(b, h, t, 0);
  for (size_t c = 0; c < width; ++c) write[c] = rate[c] * eraser[c];
}

// Columns of the state, read by the features of a query.
inline VF ReadToken(const float* query, size_t dim, const StateColumns& state) {
  const DF d;
  VF sum = hn::Zero(d);
  for (size_t c = 0; c < dim; ++c) sum = Fma(hn::Set(d, query[c]), state.Load(d, c), sum);
  return sum;
}

// Writes a finished row of `width` outputs; column `width` holds the denominator with `normalize`.
inline void StoreAnswer(bool normalize, const float* from, size_t width, float* to) {
  if (!normalize) return ScaleRow(from, width, 1.0f, to);
  const float sum = from[width];
  for (size_t e = 0; e < width; ++e) to[e] = sum == 0.0f ? 0.0f : from[e] / sum;
}

// Adds the token's own value, times skip or what query and key give by the bonus.
inline void AddOwnValue(const RecurrentProblem& p, int64_t b, int64_t head, int64_t t, float* to) {
  const RecurrentOptions& o = p.options;
  if ((o.skip.empty() && !p.reads_first()) || t >= p.KeyLength(b)) return;
  const DF d;
  const int64_t h = head / p.group;
  float factor = o.skip.empty() ? 0.0f : o.skip[static_cast<size_t>(head)];
  for (int64_t c = 0; c < p.head_dim && p.reads_first(); ++c) {
    factor += p.scale * p.q(b, head, t, c) * o.bonus(0, head, 0, c) * p.k(b, h, t, c);
  }
  const float* value = &p.v(b, h, t, 0);
  const size_t width = static_cast<size_t>(p.head_dim_v);
  for (size_t e = 0; e < width; e += hn::Lanes(d)) {
    const size_t here = std::min(hn::Lanes(d), width - e);
    const VF own = hn::LoadN(d, value + e, here);
    hn::StoreN(Fma(hn::Set(d, factor), own, hn::LoadN(d, to + e, here)), d, to + e, here);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_TOKEN_INL_H_
