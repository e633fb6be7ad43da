// Gradients of Hopfield retrieval: back through the updates, whose states are all kept.
#include <algorithm>
#include <deque>
#include <utility>

#include "src/compose/backward_attention.h"
#include "src/compose/backward_request.h"
#include "src/compose/backward_rows.h"
#include "src/compose/compose_problem.h"
#include "src/compose/composed_request.h"
#include "src/compose/hopfield.h"
#include "src/message.h"

namespace heed {
namespace {

// One update of forward.
struct Step {
  ScratchVector<uint8_t> resting;  // rows that it did not move
  OwnedTensor lse;
  OwnedTensor states;  // after it
};

class RetrievalBackward {
 public:
  explicit RetrievalBackward(const ComposedBackward& call)
      : call_(call),
        r_(ReadComposed(call.reader)),
        o_(ReadHopfield(call.reader, r_)),
        update_(UpdateOptions(o_)) {
    if (r_.q.size() > 0) RunForward();
  }

  void Run() {
    const KeptAttention last(After(steps_.size()), r_.k, r_.v, o_.attention, call_.pool);
    const OwnedTensor d_states(r_.q.shape), d_k(r_.k.shape);
    OptionSums sums(call_.WantedOptions(), call_.pool);
    AttentionGradients to = sums.Next();
    to.d_q = d_states.view();
    to.d_k = d_k.view();
    to.d_v = call_.Wanted("v");
    to.d_lse = call_.d_lse();
    last.Backward(call_.d_output(), to);
    if (!steps_.empty()) StepsBackward(d_states.view(), d_k.view(), sums);
    SumOver(d_states.view(), call_.Wanted("q"), call_.pool);
    SumOver(d_k.view(), call_.Wanted("k"), call_.pool);
  }

 private:
  // The states after the first n updates.
  TensorView<const float> After(size_t n) const {
    return n == 0 ? r_.q : TensorView<const float>(steps_[n - 1].states.view());
  }

  void RunForward() {
    const Extents& q = r_.q.shape;
    const OwnedTensor newest = o_.steps > 1 ? OwnedTensor(q) : OwnedTensor();
    ScratchVector<uint8_t> resting;
    bool moving = true;
    for (int64_t step = 1; step < o_.steps && moving; ++step) {
      resting.resize(static_cast<size_t>(q[0] * q[1] * q[2]));
      Step& now = steps_.emplace_back();
      now.resting = resting;
      if (HasLse(update_)) now.lse = OwnedTensor({q[0], q[1], q[2], 1});
      now.states = OwnedTensor(q);
      CopyRows(After(steps_.size() - 1), now.states.view(), call_.pool);
      moving = UpdateStates(r_.k, o_, now.lse.view(), now.states, newest, resting, call_.pool);
      if (DryRun::Current() != nullptr) moving = true;  // only the data know
    }
  }

  void StepsBackward(const TensorView<float>& d_states, const TensorView<float>& d_k,
                     OptionSums& sums) {
    const OwnedTensor d_newest(r_.q.shape), d_before(r_.q.shape);
    const OwnedTensor as_keys(r_.k.shape), as_values(r_.k.shape);
    for (size_t n = steps_.size(); n-- > 0;) {
      const Step& step = steps_[n];
      MovedRows(step, d_states, [&](int64_t b, int64_t h, int64_t i, bool moved, int64_t d) {
        d_newest.view()(b, h, i, d) = moved ? d_states(b, h, i, d) : 0.0f;
      });
      AttentionGradients to = sums.Next();
      to.d_relative_values = {};
      to.d_q = d_before.view();
      to.d_k = as_keys.view();
      to.d_v = as_values.view();
      AttentionBackward(After(n), r_.k, r_.k, step.states.view(), step.lse.view(), d_newest.view(),
                        update_, to, &call_.pool);
      sums.Add(to);
      MovedRows(step, d_states, [&](int64_t b, int64_t h, int64_t i, bool moved, int64_t d) {
        if (moved) d_states(b, h, i, d) = d_before.view()(b, h, i, d);
      });
      AddRows(as_keys.view(), d_k, call_.pool);
      AddRows(as_values.view(), d_k, call_.pool);
    }
  }

  template <class Body>
  void MovedRows(const Step& step, const TensorView<float>& rows, const Body& body) {
    const Extents& shape = rows.shape;
    ForEachRow(shape, call_.pool, [&](int64_t b, int64_t h, int64_t i) {
      const bool moved = step.resting[static_cast<size_t>((b * shape[1] + h) * shape[2] + i)] == 0;
      for (int64_t d = 0; d < shape[3]; ++d) body(b, h, i, moved, d);
    });
  }

  const ComposedBackward& call_;
  ComposedRequest r_;
  HopfieldOptions o_;
  AttentionOptions update_;
  std::deque<Step> steps_;
};

}  // namespace

void HopfieldBackward(const ComposedBackward& call) { RetrievalBackward(call).Run(); }

}  // namespace heed
