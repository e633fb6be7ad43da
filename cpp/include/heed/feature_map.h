// Feature maps of linear attention in the user's hands: a callable on rows of queries or keys,
// written in C++ or compiled from an expression such as "x > 0 ? x + 1 : exp(x)".
#ifndef HEED_FEATURE_MAP_H_
#define HEED_FEATURE_MAP_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/expression.h"

namespace heed {

// Some queries or keys of one head before they meet, one row a token. Dimension c of row r is
// values[r * row_stride + c]; what lies between rows is not the function's.
struct FeatureRows {
  int64_t batch;
  int64_t head;  // query head of queries, KV head of keys
  bool is_key;
  size_t num_rows;
  size_t num_dims;  // head_dim
  float* values;
  size_t row_stride;
};

// Replaces the values of rows by as many features: any callable on FeatureRows. Called from several
// threads at once, for any number of rows in any order; must depend on its argument only, treat
// every row alike and not throw. Copies share the callable: they allocate nothing.
class FeatureFunction {
 public:
  FeatureFunction() = default;
  template <std::invocable<const FeatureRows&> Callable>
  FeatureFunction(Callable callable)  // NOLINT: converts, as std::function does
      : function_(std::make_shared<const Function>(std::move(callable))) {}

  explicit operator bool() const { return function_ != nullptr && *function_ != nullptr; }
  void operator()(const FeatureRows& rows) const { (*function_)(rows); }

 private:
  using Function = std::function<void(const FeatureRows&)>;
  std::shared_ptr<const Function> function_;
};

// Compiles an expression of one element to a feature map.
//
//   names      x (the element), b, h (query head of a query, KV head of a key), d (its dimension),
//              isKey (1 for keys, 0 for queries; is_key in C++'s spelling), and captured tensors
//
// The rest, errors and accuracy as in CompileExpression(). Cost: one pass over the rows for every
// operation that depends on x or d, up to 256 elements at a time; allocates when it is compiled
// only.
FeatureFunction CompileFeatureMap(std::string_view what, std::string_view text,
                                  std::vector<CapturedTensor> captured = {});

}  // namespace heed

#endif  // HEED_FEATURE_MAP_H_
