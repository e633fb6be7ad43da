// What Ctrl-C says before it ends the program.
#ifndef HEED_NATIVE_BENCH_INTERRUPT_H_
#define HEED_NATIVE_BENCH_INTERRUPT_H_

#include <string>

namespace heed::bench {

// From now on an interrupt writes this to standard error first. May be called again, from one
// thread; does nothing on systems without POSIX signals. Longer texts are cut at 500 bytes.
void SayWhenInterrupted(const std::string& text);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_INTERRUPT_H_
