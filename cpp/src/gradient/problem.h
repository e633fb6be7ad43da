// What the backward loop works on, after validation. Plain data, no SIMD.
#ifndef HEED_SRC_GRADIENT_PROBLEM_H_
#define HEED_SRC_GRADIENT_PROBLEM_H_

#include <span>

#include "heed/gradient.h"
#include "src/exact/problem.h"
#include "src/request_reader.h"

namespace heed {

struct GradientProblem {
  AttentionProblem attention;  // without outputs
  StoredTensor out;            // absent where the normaliser has no lse
  TensorView<const float> lse;
  StoredTensor d_out;
  AttentionGradients gradients;  // d_bias has stride 0 where bias broadcasts
};

// An option that is a tensor, and its gradient. Requests call the option by the same name.
struct TensorGradient {
  const char* name;
  const char* gradient_name;
  TensorView<const float> AttentionOptions::*option;
  TensorView<float> AttentionGradients::*gradient;
  bool of_score;  // a parameter of the score
};

inline constexpr TensorGradient kTensorGradients[] = {
    {"bias", "d_bias", &AttentionOptions::bias, &AttentionGradients::d_bias, false},
    {"distance_bias", "d_distance_bias", &AttentionOptions::distance_bias,
     &AttentionGradients::d_distance_bias, false},
    {"bucket_bias", "d_bucket_bias", &AttentionOptions::bucket_bias,
     &AttentionGradients::d_bucket_bias, false},
    {"log_gates", "d_log_gates", &AttentionOptions::log_gates, &AttentionGradients::d_log_gates,
     false},
    {"score_matrix", "d_score_matrix", &AttentionOptions::score_matrix,
     &AttentionGradients::d_score_matrix, true},
    {"query_weight", "d_query_weight", &AttentionOptions::query_weight,
     &AttentionGradients::d_query_weight, true},
    {"key_weight", "d_key_weight", &AttentionOptions::key_weight, &AttentionGradients::d_key_weight,
     true},
    {"score_vector", "d_score_vector", &AttentionOptions::score_vector,
     &AttentionGradients::d_score_vector, true},
    {"relative_keys", "d_relative_keys", &AttentionOptions::relative_keys,
     &AttentionGradients::d_relative_keys, true},
    {"relative_queries", "d_relative_queries", &AttentionOptions::relative_queries,
     &AttentionGradients::d_relative_queries, true},
    {"relative_values", "d_relative_values", &AttentionOptions::relative_values,
     &AttentionGradients::d_relative_values, false},
    {"content_bias", "d_content_bias", &AttentionOptions::content_bias,
     &AttentionGradients::d_content_bias, true},
    {"position_bias", "d_position_bias", &AttentionOptions::position_bias,
     &AttentionGradients::d_position_bias, true},
    {"cope_table", "d_cope_table", &AttentionOptions::cope_table, &AttentionGradients::d_cope_table,
     false}};

// The same for options that are lists of numbers.
struct VectorGradient {
  const char* name;
  const char* gradient_name;
  std::span<const float> AttentionOptions::*option;
  std::span<float> AttentionGradients::*gradient;
  bool of_score;
};

inline constexpr VectorGradient kVectorGradients[] = {
    {"alibi_slopes", "d_alibi_slopes", &AttentionOptions::alibi_slopes,
     &AttentionGradients::d_alibi_slopes, false},
    {"sinks", "d_sinks", &AttentionOptions::sinks, &AttentionGradients::d_sinks, false},
    {"width", "d_width", &AttentionOptions::width, &AttentionGradients::d_width, true},
    {"temperature", "d_temperature", &AttentionOptions::temperature,
     &AttentionGradients::d_temperature, true},
    {"score_bias", "d_score_bias", &AttentionOptions::score_bias, &AttentionGradients::d_score_bias,
     true}};

// Whether gradients of some parameters of the score are wanted: they are differentiated along with
// queries and keys.
inline bool WantsScoreParams(const AttentionGradients& to) {
  for (const TensorGradient& tensor : kTensorGradients) {
    if (tensor.of_score && (to.*tensor.gradient).has_value()) return true;
  }
  for (const VectorGradient& vector : kVectorGradients) {
    if (vector.of_score && !(to.*vector.gradient).empty()) return true;
  }
  return false;
}

// Compiles the derivatives of the user functions of a request, of those that it has.
void CompileSlopes(const RequestReader& reader, AttentionGradients& to);

// Throws Error(kUnsupported), by name, for options that have no gradient.
void CheckIsDifferentiable(const AttentionOptions& options);

// Checks everything. Throws Error.
GradientProblem ValidateGradient(const StoredTensor& q, const StoredTensor& k,
                                 const StoredTensor& v, const StoredTensor& out,
                                 const TensorView<const float>& lse, const StoredTensor& d_out,
                                 const AttentionOptions& options,
                                 const AttentionGradients& gradients);

// Checks everything but the inputs of attention, which are checked already: `attention`, made of
// `options`, and the tensors are set.
void CompleteGradient(GradientProblem& problem, const AttentionOptions& options);

// Runs what was checked. Between the two a mechanism may say in `attention` which keys it chose.
// Throws Error(kMemory).
void RunGradientProblem(const GradientProblem& problem, ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_GRADIENT_PROBLEM_H_
