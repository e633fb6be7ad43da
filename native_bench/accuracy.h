// What each mechanism promises, as its header says: the bound that heed-bench holds it to.
#ifndef HEED_NATIVE_BENCH_ACCURACY_H_
#define HEED_NATIVE_BENCH_ACCURACY_H_

#include <string_view>

namespace heed::bench {

enum class RelativeTo {
  kValues,        // max |v| over all values
  kUnscaled,      // max |v| * max(1, head_dim / 16): products of normal vectors that nobody scales
                  // have terms whose absolute values sum to about head_dim
  kResults,       // max(1, max |output|)
  kNormedValues,  // max |v| over the smallest root mean square that a row of averages of kv_len
                  // normal values has, about 1 / sqrt(kv_len): rows are divided by it
};

struct Accuracy {
  double max_error;
  RelativeTo relative_to;
};

// Throws heed::Error(kUnsupported) for an id outside the registry.
Accuracy AccuracyOf(std::string_view mechanism);

// What heed/gradient.h promises for gradients, relative to the largest element of each. Throws
// likewise.
double GradientMaxErrorOf(std::string_view mechanism);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_ACCURACY_H_
