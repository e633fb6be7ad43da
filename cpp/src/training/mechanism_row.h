// What an attention layer wants to know of a row of the registry.
#ifndef HEED_SRC_TRAINING_MECHANISM_ROW_H_
#define HEED_SRC_TRAINING_MECHANISM_ROW_H_

#include <string>
#include <string_view>
#include <vector>

#include "heed/registry.h"

namespace heed::training {

// The row; throws Error(kOption) for an unknown id, Error(kUnsupported) for one without a gradient
// or whose needs no layer can meet.
const Mechanism& TrainableMechanism(const std::string& id);

// Inputs made from the context, token by token, and inputs that are parameters; of both those that
// a layer around this row has.
std::vector<std::string_view> GateInputs(const Mechanism& row);
std::vector<std::string_view> LearnedInputs(const Mechanism& row);

// Whether its outputs are sums without a denominator, which grow with the length.
bool HasUnboundedOutputs(const Mechanism& row);

}  // namespace heed::training

#endif  // HEED_SRC_TRAINING_MECHANISM_ROW_H_
