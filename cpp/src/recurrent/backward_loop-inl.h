// Backward of one KV head: forward once more for the states, then the chunks from the last to the
// first.
//
// What reads a state is differentiated in one way, be it a query or, with delta rules, a key that
// asks for what is to be erased (see Reader). With S the state before a chunk, dS what arrives at
// the one after it, u the writes, a_i what arrives at answer i, and factors left out:
//
//   d_u_j = sum_i (r_i . k_j) a_i + dS^T k_j       d_r_i = sum_j (a_i . u_j) k_j + S a_i
//   d_k_j = sum_i (a_i . u_j) r_i + dS u_j         dS becomes dS + sum_i r_i a_i^T
#if defined(HEED_RECURRENT_BACKWARD_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_BACKWARD_LOOP_INL_H_
#undef HEED_RECURRENT_BACKWARD_LOOP_INL_H_
#else
#define HEED_RECURRENT_BACKWARD_LOOP_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/recurrent/backward_chunk-inl.h"
#include "src/recurrent/backward_problem.h"
#include "src/recurrent/backward_store-inl.h"
#include "src/recurrent/loop-inl.h"
#include "src/recurrent/meet_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class BackwardLoop : RecurrentLoop {
 public:
  BackwardLoop(const RecurrentPlan& plan, const RecurrentBackwardProblem& problem, int64_t batch,
               int64_t kv_head, RecurrentScratch& scratch, BackwardScratch& backward,
               const HeadGradients& sums)
      : RecurrentLoop(plan, batch, kv_head, scratch),
        g_(problem),
        back_(backward),
        meeting_gradient_(plan, scratch, backward),
        store_(plan, problem, batch, kv_head, scratch, backward, sums) {}

  void Run() {
    LoadState();
    const size_t chunks = NumChunks();
    const size_t segments = (chunks + kSegmentChunks - 1) / kSegmentChunks;
    for (size_t s = 0; s + 1 < segments; ++s) {
      CopyState(s_.state.get(), Border(s));
      for (size_t n = s * kSegmentChunks; n < (s + 1) * kSegmentChunks; ++n) Advance(n);
    }
    if (segments > 0) CopyState(s_.state.get(), Border(segments - 1));
    if (segments == 0) Arrive();
    for (size_t s = segments; s-- > 0;) {
      const size_t first = s * kSegmentChunks, end = std::min(chunks, first + kSegmentChunks);
      CopyState(Border(s), s_.state.get());
      for (size_t n = first; n < end; ++n) {
        CopyState(s_.state.get(), State(n));
        Advance(n);
      }
      if (end == chunks) Arrive();
      for (size_t n = end; n-- > first;) Retreat(n);
    }
    store_.Finish();
  }

 private:
  int64_t Length() const { return p_.KeyLength(b_); }
  size_t NumChunks() const {
    return (static_cast<size_t>(Length()) + plan_.chunk_len - 1) / plan_.chunk_len;
  }
  int64_t First(size_t chunk) const { return static_cast<int64_t>(chunk * plan_.chunk_len); }
  size_t Count(size_t chunk) const {
    return std::min(plan_.chunk_len, static_cast<size_t>(Length() - First(chunk)));
  }
  float* Border(size_t segment) const { return back_.borders.get() + segment * back_.state_floats; }
  float* State(size_t chunk) const {
    return back_.states.get() + chunk % kSegmentChunks * back_.state_floats;
  }
  void CopyState(const float* from, float* to) const { std::copy_n(from, back_.state_floats, to); }
  size_t Cols() const { return static_cast<size_t>(p_.state_cols); }

  // The state after a chunk.
  void Advance(size_t chunk) {
    const size_t count = Count(chunk);
    LoadTokens(First(chunk), count);
    if (!IsFinite(count)) return WriteRows(count);
    if (p_.erases()) {
      if (NeedsMeeting()) meeting_.PackKeys(s_.keys.get(), count);
      Erase(count);
    }
    Write(count);
  }

  void WriteRows(size_t count) {
    for (size_t r = 0; r < count; ++r) WriteRow(r);
  }

  // What arrives at the last state: from the caller, and from queries that read it alone.
  void Arrive() {
    std::fill_n(back_.d_state.get(), back_.state_floats, 0.0f);
    const TensorView<const float>& from = g_.gradients.d_final_state;
    for (size_t c = 0; c < plan_.dim && from.has_value(); ++c) {
      for (size_t e = 0; e < Cols(); ++e) {
        back_.d_state.get()[store_.AtState(c, e)] =
            from(b_, h_, static_cast<int64_t>(c), static_cast<int64_t>(e));
      }
    }
    const int64_t step = static_cast<int64_t>(plan_.chunk_len);
    for (int64_t t = o_.causal ? Length() : 0; t < p_.q_len; t += step) {
      const size_t count = static_cast<size_t>(std::min(step, p_.q_len - t));
      for (size_t g = 0; g < static_cast<size_t>(p_.group); ++g) ReadLast(t, count, g);
    }
  }

  void ReadLast(int64_t first, size_t count, size_t g) {
    const int64_t head = static_cast<int64_t>(FirstQueryHead() + g);
    float* queries = s_.queries.get();
    LoadFeatures(Side::kQuery, head, first, count, 1, queries);
    TimesState(queries, count);
    LoadArriving(first, count, head);
    Turn(s_.state.get());
    TimesTurned(back_.arriving.get(), count, back_.d_reader.get());
    AddOuter(queries, back_.arriving_panels.get(), count, back_.d_state.get());
    store_.Queries(first, count, head);
  }

  // From what arrives at the state after a chunk to what arrives at the one before it.
  void Retreat(size_t chunk) {
    const size_t count = Count(chunk);
    CopyState(State(chunk), s_.state.get());
    if (Differentiate(First(chunk), count)) return;
    // One token after the other: none may meet a NaN that it does not see.
    for (size_t i = count; i-- > 0;) {
      CopyState(State(chunk), s_.state.get());
      LoadTokens(First(chunk), count);
      WriteRows(i);
      Differentiate(First(chunk) + static_cast<int64_t>(i), 1);
    }
  }

  // Returns false, and has stored nothing that does not get written again, where several tokens are
  // not all finite.
  bool Differentiate(int64_t first, size_t count) {
    LoadTokens(first, count);
    if (count > 1 && !IsFinite(count)) return false;
    std::copy_n(s_.writes.get(), kChunkRows * plan_.cols, back_.values.get());
    if (NeedsMeeting()) meeting_.PackKeys(s_.keys.get(), count);
    if (p_.erases()) Erase(count);
    LoadWrites(count);
    Clear();
    Turn(s_.state.get());
    for (size_t g = 0; g < static_cast<size_t>(p_.group) && o_.causal; ++g) {
      if (!Query(first, count, static_cast<int64_t>(FirstQueryHead() + g))) return false;
    }
    ReachEnd(count);
    if (p_.erases()) Eraser(count);
    StateTakesWrites(count);
    store_.Tokens(first, count);
    if (o_.log_decay.has_value()) DecayState(count, back_.d_state.get());
    AddAll(back_.d_before.get(), back_.state_floats, back_.d_state.get());
    return true;
  }

  void Clear() {
    const size_t features = kChunkRows * plan_.rows;
    std::fill_n(back_.d_before.get(), back_.state_floats, 0.0f);
    std::fill_n(back_.d_writes.get(), kChunkRows * plan_.cols, 0.0f);
    std::fill_n(back_.d_met.get(), features, 0.0f);
    std::fill_n(back_.d_keys.get(), features, 0.0f);
    for (float* passed : {back_.reads.get(), back_.wrote.get(), back_.met.get()}) {
      std::fill_n(passed, kChunkRows * plan_.decay_step, 0.0f);
    }
  }

  // Writes as rows, and as columns for products with what arrives.
  void LoadWrites(size_t count) {
    const size_t cols = plan_.cols;
    float* rows = back_.write_rows.get();
    for (size_t e = 0; e < cols; e += PanelCols()) {
      for (size_t i = 0; i < count; ++i) {
        std::copy_n(WritePanel(e) + i * PanelCols(), PanelCols(), rows + i * cols + e);
      }
    }
    for (size_t j = 0; j < count; j += PanelCols()) {
      PackTransposedPanel(Rows{rows + j * cols, static_cast<int64_t>(cols)},
                          std::min(PanelCols(), count - j), cols,
                          back_.write_columns.get() + j * cols);
    }
  }

  // Turns a state, for products with its transpose.
  void Turn(const float* state) const {
    const size_t panel = PanelCols();
    for (size_t c = 0; c < plan_.rows; c += panel) {
      for (size_t e = 0; e < plan_.cols; e += panel) {
        PackTransposedPanel(Rows{state + e * plan_.rows + c * panel, static_cast<int64_t>(panel)},
                            panel, panel, back_.turned.get() + c * plan_.cols + e * panel);
      }
    }
  }

  // to[i][c] = row i times column c of the turned state.
  void TimesTurned(const float* rows, size_t count, float* to) const {
    for (size_t i = 0; i < count; i += kTileRows) {
      for (size_t c = 0; c < plan_.rows; c += PanelCols()) {
        RegisterTile<ARows, kTileRows>(
            MultiplyAccumulate(), rows + i * plan_.cols, back_.turned.get() + c * plan_.cols,
            plan_.cols, to + i * plan_.rows + c, plan_.rows, StoreOnly(), {plan_.cols});
      }
    }
  }

  static void AddAll(const float* HWY_RESTRICT from, size_t count, float* HWY_RESTRICT to) {
    const DF d;
    for (size_t n = 0; n < count; n += hn::Lanes(d)) {
      hn::Store(hn::Add(hn::Load(d, to + n), hn::Load(d, from + n)), d, to + n);
    }
  }

  // What arrives at the answers of a query head. `results` holds them before they are divided.
  void LoadArriving(int64_t first, size_t count, int64_t head) {
    const size_t width = static_cast<size_t>(p_.head_dim_v), cols = plan_.cols;
    float* rows = back_.arriving.get();
    std::fill_n(rows, RoundUp(count, kTileRows) * cols, 0.0f);
    for (size_t i = 0; i < count && width > 0; ++i) {
      const float* from = &g_.d_out(b_, head, first + static_cast<int64_t>(i), 0);
      float* to = rows + i * cols;
      if (!o_.normalize) {
        std::copy_n(from, width, to);
        continue;
      }
      const float* result = s_.results.get() + i * cols;
      const float sum = result[width];
      float along = 0;
      for (size_t e = 0; e < width && sum != 0.0f; ++e) {
        to[e] = from[e] / sum;
        along += to[e] * (result[e] / sum);
      }
      to[width] = -along;
    }
    PackPanels(Rows{rows, static_cast<int64_t>(cols)}, count, cols, kChunkRows,
               back_.arriving_panels.get());
  }

  // A query head. Returns false where several tokens are not all finite.
  bool Query(int64_t first, size_t count, int64_t head) {
    const Reach reach = p_.reads_first() ? Reach::kUndecayed : Reach::kOwn;
    float* queries = s_.queries.get();
    LoadFeatures(Side::kQuery, head, first, count, 1, queries);
    meeting_.Meet(queries, count, reach, 0);
    if (o_.normalize) {
      TimesState(Decayed(queries, count, reach), count);
      AddMeets(count);
    }
    LoadArriving(first, count, head);
    if (count > 1 && !(AllFinite(queries, count * plan_.rows) &&
                       AllFinite(back_.arriving.get(), count * plan_.cols))) {
      return false;
    }
    for (size_t j = 0; j < count; j += kTileRows) {
      AddToWrites(j, count, j);
    }
    Reader(queries, count, reach);
    MeetNearest(queries, count, Nearest(reach));
    store_.Queries(first, count, head);
    return true;
  }

  // d_writes of a tile of tokens from `j` on += meets with rows [begin, count) times what arrives.
  void AddToWrites(size_t j, size_t count, size_t begin) const {
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      RegisterTile<AColumns, kTileRows>(
          MultiplyAccumulate(), s_.meets.get() + begin * kChunk + j,
          back_.arriving_panels.get() + e * kChunkRows + begin * PanelCols(), count - begin,
          back_.d_writes.get() + e * kChunkRows + j * PanelCols(), PanelCols(), AddToStored(),
          {kChunk});
    }
  }

  // d_reader of rows that read; what the keys of other tokens, factors and the state get from that.
  void Reader(const float* rows, size_t count, Reach reach) {
    float* d_reader = back_.d_reader.get();
    std::fill_n(d_reader, kChunkRows * plan_.rows, 0.0f);
    meeting_gradient_.MultiplyArriving(count);
    const size_t nearest = Nearest(reach);
    for (size_t i = nearest; i < count; ++i) {
      nearest_[i] = back_.d_meets.get()[i * kChunk + i - nearest];
    }
    meeting_gradient_.Add(rows, count, reach);
    Pass(rows, d_reader, count, reach, back_.met.get());
    float* part = back_.part.get();
    TimesTurned(back_.arriving.get(), count, part);
    if (o_.log_decay.has_value()) DecayRows(part, count, reach, part);
    Pass(rows, part, count, reach, back_.reads.get());
    AddAll(part, count * plan_.rows, d_reader);
    AddOuter(Decayed(rows, count, reach), back_.arriving_panels.get(), count, back_.d_before.get());
  }

  // A row that reads before its own factor passes those before it.
  void Pass(const float* rows, const float* gradients, size_t count, Reach reach, float* to) const {
    if (!o_.log_decay.has_value()) return;
    const size_t late = Nearest(reach);
    for (size_t i = late; i < count; ++i) {
      store_.Pass(rows + i * plan_.rows, gradients + i * plan_.rows,
                  to + (i - late) * plan_.decay_step);
    }
  }

  // A query and the key so many tokens before it: no factor lies between them.
  void MeetNearest(const float* rows, size_t count, size_t before) {
    const DF d;
    const size_t width = plan_.rows;
    for (size_t i = before; i < count; ++i) {
      const VF met = hn::Set(d, nearest_[i]);
      const size_t key = (i - before) * width;
      for (size_t c = 0; c < width; c += hn::Lanes(d)) {
        float* d_reader = back_.d_reader.get() + i * width + c;
        float* d_key = back_.d_keys.get() + key + c;
        hn::Store(Fma(met, hn::Load(d, s_.keys.get() + key + c), hn::Load(d, d_reader)), d,
                  d_reader);
        hn::Store(Fma(met, hn::Load(d, rows + i * width + c), hn::Load(d, d_key)), d, d_key);
      }
    }
  }

  // d_writes += what arrives at the state after the chunk, by the keys that brought it there.
  void ReachEnd(size_t count) {
    const float* keys = KeysAtEnd(count);
    for (size_t i = 0; i < count; i += kTileRows) {
      for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
        RegisterTile<ARows, kTileRows>(MultiplyAccumulate(), keys + i * plan_.rows,
                                       back_.d_state.get() + e * plan_.rows, plan_.dim,
                                       back_.d_writes.get() + e * kChunkRows + i * PanelCols(),
                                       PanelCols(), AddToStored(), {plan_.rows});
      }
    }
  }

  // u_i = beta_i (v_i - w_i), w what state and earlier writes answer to the keys: a read, at which
  // -beta_i d_u_i arrives. Values become v - w.
  void Eraser(size_t count) {
    const float* keys = s_.keys.get();
    meeting_.Meet(keys, count, Reach::kEarlier, 0);
    SolveWrites(count);
    TimesState(Decayed(keys, count, Reach::kEarlier), count);
    AddMeets(count);
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      for (size_t i = 0; i < count; ++i) {
        float* value = back_.values.get() + e * kChunkRows + i * PanelCols();
        const float* known = s_.results.get() + i * plan_.cols + e;
        const float* arriving = back_.arriving_panels.get() + e * kChunkRows + i * PanelCols();
        for (size_t x = 0; x < PanelCols(); ++x) value[x] -= known[x];
        std::copy_n(arriving, PanelCols(), back_.arriving.get() + i * plan_.cols + e);
      }
    }
    Reader(keys, count, Reach::kEarlier);
    AddAll(back_.d_reader.get(), count * plan_.rows, back_.d_keys.get());
  }

  // From the last token on: a write gets what arrives at those that erased it.
  void SolveWrites(size_t count) {
    const DF d;
    for (size_t i = RoundUp(count, kTileRows); i > 0; i -= kTileRows) {
      const size_t first = i - kTileRows, end = std::min(i, count);
      if (end < count) AddToWrites(first, count, end);
      for (size_t e = 0; e < plan_.cols; e += hn::Lanes(d)) {
        const size_t at = e / PanelCols() * PanelCols() * kChunkRows + e % PanelCols();
        float* writes = back_.d_writes.get() + at;
        float* arriving = back_.arriving_panels.get() + at;
        for (size_t j = end; j-- > first;) {
          VF sum = hn::Load(d, writes + j * PanelCols());
          for (size_t r = j + 1; r < end; ++r) {
            sum = Fma(hn::Set(d, s_.meets.get()[r * kChunk + j]),
                      hn::Load(d, arriving + r * PanelCols()), sum);
          }
          hn::Store(sum, d, writes + j * PanelCols());
          hn::Store(hn::Mul(hn::Set(d, -s_.betas.get()[j]), sum), d, arriving + j * PanelCols());
        }
      }
    }
  }

  // d_keys += what the state after the chunk gives for the writes; `wrote` what that passed.
  void StateTakesWrites(size_t count) {
    Turn(back_.d_state.get());
    float* part = back_.part.get();
    TimesTurned(back_.write_rows.get(), count, part);
    if (o_.log_decay.has_value()) DecayToEnd(part, count, part);
    AddAll(part, count * plan_.rows, back_.d_keys.get());
    Pass(s_.keys.get(), part, count, Reach::kOwn, back_.wrote.get());
  }

  const RecurrentBackwardProblem& g_;
  BackwardScratch& back_;
  MeetingGradient meeting_gradient_;
  BackwardStore store_;
  float nearest_[kChunk];  // what arrives at a row times the write of its nearest token
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_BACKWARD_LOOP_INL_H_
