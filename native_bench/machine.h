// The machine and the build that a report comes from.
#ifndef HEED_NATIVE_BENCH_MACHINE_H_
#define HEED_NATIVE_BENCH_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace heed::bench {

struct Cache {
  std::string name;  // "L1d", "L2", "L3"
  int64_t bytes = 0;
};

// What cannot be read on this system is empty or 0.
struct Machine {
  std::string system;     // kernel name, release and architecture
  std::string cpu_model;  // as the processor calls itself, with family and model where it has them
  int cores = 0;          // logical processors this process may run on
  std::vector<Cache> caches;
  std::string governor;  // of processor 0
  int64_t memory_bytes = 0;
  double load_average = 0;  // of the last minute, when the report began
  std::string date;         // ISO 8601, UTC
};

// How this program was compiled.
struct Build {
  std::string compiler;
  std::string flags;
  std::string build_type;
  std::string commit;  // empty when built outside a git checkout; "+dirty" marks local changes
};

Machine DescribeMachine();
Build DescribeBuild();

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_MACHINE_H_
