// The checks of parameters and inputs that their rows of params.inc and inputs.inc state: types,
// words, whole and finite numbers, ranks. What makes sense together is the business of whoever
// reads them.
#ifndef HEED_SRC_PARAM_CHECKS_H_
#define HEED_SRC_PARAM_CHECKS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "heed/registry.h"
#include "heed/request.h"

namespace heed {

// Throws Error(kOption) for another type or an unknown word, Error(kRange) for a number that is not
// finite, not whole or, of a count, negative. Names that are no parameter pass.
void CheckParam(const NamedParam& param);

// A parameter of type seed: a number, or decimal digits. Throws Error(kRange) for any other.
uint64_t SeedOf(std::string_view name, const ParamValue& value);

// Throws Error(kShape) for a rank beyond 4 or a negative extent.
void CheckTensor(const NamedTensor& input);

// Throws Error(kOption) for elements without data.
void CheckData(const NamedTensor& input);

// Throws Error(kOption) unless the outputs are those that were planned.
void CheckOutputNames(std::span<const OutputSpec> planned, std::span<const NamedTensor> outputs);

// Throws Error(kShape) for a rank that no shape of the row has. Names that are no input pass.
void CheckRank(const NamedTensor& input);

// A symbol of inputs.inc has the same extent throughout a call. Where one input has 0 and another
// does not, Error(kShape): to most functions a list without elements is one that was not given.
void CheckZeros(const std::vector<NamedTensor>& inputs);

// Throws Error(kOption) for a parameter or input that, by `read_by` of its row, nothing would read.
void CheckRead(const Mechanism& mechanism, const Request& request);

}  // namespace heed

#endif  // HEED_SRC_PARAM_CHECKS_H_
