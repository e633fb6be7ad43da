// heed-bench as a function: parses the line, measures, prints, writes.
#ifndef HEED_NATIVE_BENCH_PROGRAM_H_
#define HEED_NATIVE_BENCH_PROGRAM_H_

namespace heed::bench {

// Returns the exit status that README.md tells. Throws nothing.
int RunProgram(int argc, const char* const* argv);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_PROGRAM_H_
