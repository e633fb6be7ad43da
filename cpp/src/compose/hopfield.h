// What forward and backward of Hopfield retrieval share.
#ifndef HEED_SRC_COMPOSE_HOPFIELD_H_
#define HEED_SRC_COMPOSE_HOPFIELD_H_

#include "heed/compose.h"
#include "src/compose/rows.h"
#include "src/parallel/dry_run.h"

namespace heed {

// The options of all steps but the last.
AttentionOptions UpdateOptions(const HopfieldOptions& options);

// Moves the states that are not at rest by one update, whose output `newest` is. Returns whether
// any of them may still move. An absent lse is not written.
bool UpdateStates(const TensorView<const float>& k, const HopfieldOptions& options,
                  const TensorView<float>& lse, const OwnedTensor& states,
                  const OwnedTensor& newest, ScratchVector<uint8_t>& resting, ThreadPool& pool);

void CopyRows(const TensorView<const float>& from, const TensorView<float>& to, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_HOPFIELD_H_
