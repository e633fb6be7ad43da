// How often instructions of a launch ran (HEED_PTX_COUNTS=1): a look at what a kernel has to do,
// where nothing can be timed.
#ifndef HEED_TESTS_CUDA_INTERPRETER_COUNTS_H_
#define HEED_TESTS_CUDA_INTERPRETER_COUNTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "program.h"

namespace heed::interpreter {

// One line for the launch, with the instructions of the program that ran at all, then one for each
// kind of instruction, the most frequent first.
// counts[n] says how often warps ran program.code[n].
std::string CountsText(const Program& program, const std::vector<uint64_t>& counts, uint64_t warps);

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_COUNTS_H_
